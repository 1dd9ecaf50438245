"""Run the command `fieldpost` as an operator would, and read the events that it prints.

The simulator shares no code with the gateway, so it uses this command.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios.record import EVENT, Key

COMMAND_S: Final = 120.0
"""Maximum seconds for one command: enough to print a million events from a slow card."""


def program() -> str:
    """Return the path of `fieldpost`: beside the Python interpreter, else in `$PATH`.

    Raises SimulationFailed if the command is not installed.
    """
    beside = Path(sys.executable).with_name("fieldpost")
    found = str(beside) if beside.exists() else shutil.which("fieldpost")
    if found is None:
        raise SimulationFailed(
            "the `fieldpost` command is not installed; install the gateway in this environment"
        )
    return found


def run(*words: str | Path, stdin: str = "") -> str:
    """Run `fieldpost` with arguments, such as "events", "--json"; return its standard output.

    Raises SimulationFailed if the command is not installed, failed, or took longer than
    `COMMAND_S`.
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


def read(folder: Path, *words: str) -> list[Any]:
    """Run a `fieldpost` command with `--json` on a gateway's folder; return the printed objects.

    Raises SimulationFailed if the command failed (see `run`), or its output is not as documented.
    """
    try:
        return list(objects(run(*words, "--json", "--dir", folder).split("\n")))
    except ValueError as error:
        raise SimulationFailed(f"fieldpost {' '.join(words)}: {error}") from error


def objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Parse lines of JSON, one object each; skip empty lines.

    Raises ValueError if a line is not a JSON object; the text gives the line number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield found


def of_run(events: Iterable[dict[str, Any]], run: str) -> Iterator[Key]:
    """Return (the device's full JID, tag `n`) of each event that devices sent in the run `run`.

    Raises ValueError if an event of the run is incomplete.
    """
    for event in events:
        tags = event.get("tags") or {}
        if event.get("kind") == "log" and event.get("name") == EVENT and tags.get("run") == run:
            source, number = event.get("source"), str(tags.get("n"))
            if source is None or not number.isdecimal():
                raise ValueError(
                    f"the event {event.get('seq')} has no source, or no number in its tag n"
                )
            yield str(source), int(number)
