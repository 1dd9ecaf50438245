"""The project's wheels, built from this checkout without network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEVICE = ROOT / "firmware_sim" / "device"
SIMULATOR = ROOT / "firmware_sim"
BUILD_S = 120


def build(folder: Path, project: Path = ROOT) -> Path:
    """Build a project's wheel into `folder`, which must not contain it, and return its path."""
    before = set(folder.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, *offline, "-w", folder, project], check=True, timeout=BUILD_S)
    [built] = set(folder.glob("*.whl")) - before
    return built
