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
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=project, stdout=subprocess.DEVNULL, check=True, timeout=BUILD_S,
    )  # fmt: skip
    [built] = set(folder.glob("*.whl")) - before
    return built
