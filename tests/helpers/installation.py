"""An environment with installed wheels beside the packages of the test environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests.helpers.wheel import build

SECONDS = 180


class Installation:
    """A virtual environment. The checkout is not on its path."""

    def __init__(self, folder: Path) -> None:
        base = f"{sys.base_prefix}/bin/python3"
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True, timeout=SECONDS)
        self.bin = folder / "bin"
        [self.site] = folder.glob("lib/python*/site-packages")
        # Python reads no `.pth` files there, and so not that of the editable installation.
        (self.site / "others.pth").write_text(sysconfig.get_path("purelib"), "utf-8")

    def install(self, *wheels: Path) -> None:
        python = str(self.bin / "python3")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        offline = ["--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
        subprocess.run([*pip, *offline, *wheels], check=True, timeout=SECONDS)

    def run(self, command: str, *words: str | Path, **options: Any) -> str:
        """Run a command of the environment, and return its standard output."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self.bin / command, *words],
            cwd=self.bin,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True, text=True, check=False, timeout=SECONDS, **options,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def other_packages(folder: Path) -> list[Path]:
    """Return wheels of other projects, with a module `edge` and a module `sync`."""
    return [_other(folder / name, name) for name in ("edge", "sync")]


def _other(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f'WHOSE = "the other {name}"\n', "utf-8")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "{name}"\nversion = "1"\n',
        "utf-8",
    )
    return build(folder, folder)
