"""Reads the events of a run from a gateway's log, as `fieldpost events --json` prints it.

It runs the gateway's own command or reads a file of its output; it never opens the gateway's
database, and it judges nothing (`verdict` does).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from firmware_sim.scenarios import gateway_command


def from_gateway(directory: Path) -> list[str]:
    """Ask the gateway that lives in a folder for its events, one JSON object a line.

    Raises:
        GatewayCommandFailed: the command is not installed, failed, or took too long.
    """
    return gateway_command.run("events", "--dir", directory, "--json").split("\n")[:-1]


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
