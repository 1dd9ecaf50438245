"""Run the command `fieldpost` as an operator would, and return its output.

The simulator shares no code with the gateway, so it uses this command.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from firmware_sim.errors import SimulationFailed

COMMAND_S: Final = 120.0
"""Maximum seconds for one command: enough to print a million events from a slow card."""


def program() -> str:
    """Return the path of `fieldpost`: beside the Python interpreter, else in `$PATH`.

    Raises:
        SimulationFailed: the command is not installed.
    """
    beside = Path(sys.executable).with_name("fieldpost")
    found = str(beside) if beside.exists() else shutil.which("fieldpost")
    if found is None:
        raise SimulationFailed(
            "the `fieldpost` command is not installed; install the gateway in this environment"
        )
    return found


def run(*words: str | Path, stdin: str = "") -> str:
    """Run `fieldpost` with arguments, and return its standard output.

    Args:
        words: the arguments, such as "events", "--json".
        stdin: the command's standard input.

    Raises:
        SimulationFailed: the command is not installed, failed, or took longer than `COMMAND_S`.
    """
    argv = [program(), *(str(word) for word in words)]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            argv, input=stdin, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SimulationFailed(f"{' '.join(argv)}: {error}") from error
    if done.returncode != 0:
        raise SimulationFailed(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
