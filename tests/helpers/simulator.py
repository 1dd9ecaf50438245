"""The command `fieldpost-sim`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = Path(sys.executable).with_name("fieldpost-sim")

RUN_S: Final = 1200
"""Seconds for the longest run in its full size, on two busy cores."""


def simulate(*words: object) -> tuple[int, dict[str, Any], str]:
    """Run a scenario; returns its exit status, its verdict, and what it said besides."""
    done = subprocess.run(
        [PROGRAM, "run", *(str(word) for word in words), "--json"],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr
