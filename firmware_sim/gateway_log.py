"""Reads the events of a run from a gateway's log, as `fieldpost events --json` prints it.

It runs the gateway's own command or reads a file of its output; it never opens the gateway's
database, and it judges nothing (`verdict` does).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.errors import GatewayCommandFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COMMAND_S: Final = 120.0
"""Seconds that the gateway's command may take: a million events on a slow card."""


def from_gateway(directory: Path) -> list[str]:
    """Ask the gateway that lives in a folder for its events, one JSON object a line.

    Raises:
        GatewayCommandFailed: the command is not installed, failed, or took too long.
    """
    beside = Path(sys.executable).with_name("fieldpost")
    program = str(beside) if beside.exists() else shutil.which("fieldpost")
    if program is None:
        raise GatewayCommandFailed("the `fieldpost` command is not installed")
    argv = [program, "events", "--dir", str(directory), "--json"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command, with a folder for an argument
            argv, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GatewayCommandFailed(f"{' '.join(argv)}: {error}") from error
    if done.returncode != 0:
        raise GatewayCommandFailed(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.split("\n")[:-1]


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Parse lines of JSON, one event each; empty lines are skipped.

    Raises:
        ValueError: a line is not a JSON object; it is named by its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from error
        if not isinstance(event, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield event


def of_run(lines: Iterable[str], event: str, run: str) -> Iterator[tuple[str, int]]:
    """Give (source, n) of each logged event of that name whose tag `run` is this run's.

    Raises:
        ValueError: a line is not what the command prints.
    """
    for row in events(lines):
        tags = row.get("tags") or {}
        if row.get("kind") == "log" and row.get("name") == event and tags.get("run") == run:
            yield str(row["source"]), int(tags["n"])
