"""Run Prometheus' `promtool`, which checks metrics and rules, and tests rules."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def run(*words: object, text: str = "") -> None:
    """Fail with the output of `promtool WORDS` if it finds a fault; skip if it is missing."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool (make interop-packages)")
    done = subprocess.run(
        [program, *map(str, words)],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
