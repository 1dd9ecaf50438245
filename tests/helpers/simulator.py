"""The command `fieldpost-sim` in a process in which `fieldpost` commands are calls.

A scenario provisions many devices, and a process takes longer to start than to add a device.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from edge.cli.commands import main as fieldpost
from firmware_sim.__main__ import main
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import gateway_command

RUN_S: Final = 2400
"""Seconds for the longest run in its full size, on two very busy cores."""

_LOCK: Final = threading.Lock()  # `CliRunner` replaces the standard streams


def simulate(*words: object) -> tuple[int, dict[str, Any], str]:
    """Run a scenario; return its exit status, its verdict, and its standard error."""
    result = subprocess.run(
        [sys.executable, "-m", __name__, "run", *(str(word) for word in words), "--json"],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert result.returncode in (0, 1), result.stderr
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout), result.stderr


def _call(*words: str | Path, stdin: str = "") -> str:
    with _LOCK:
        result = CliRunner().invoke(fieldpost, [str(word) for word in words], input=stdin)
    if result.exit_code != 0:
        raise SimulationFailed(result.output)
    return result.stdout


if __name__ == "__main__":
    gateway_command.run = _call
    main()
