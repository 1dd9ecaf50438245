"""Read the events of a run from the output of `fieldpost events --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from firmware_sim.scenarios import gateway_command
from firmware_sim.scenarios.record import EVENT


def from_gateway(directory: Path) -> list[str]:
    """Return the lines of a gateway's event log: one JSON object for each event.

    Raises:
        SimulationFailed: the command is not installed, failed, or took too long.
    """
    return gateway_command.run("events", "--dir", directory, "--json").split("\n")[:-1]


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Parse lines of JSON, one event each; skip empty lines.

    Raises:
        ValueError: a line is not a JSON object; the text gives the line number.
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


def of_run(lines: Iterable[str], run: str) -> Iterator[tuple[str, int]]:
    """Return (the device's full JID, tag `n`) of each event that devices sent in the run `run`.

    Raises:
        ValueError: a line is not a JSON object, or an event of the run is incomplete.
    """
    for row in events(lines):
        tags = row.get("tags") or {}
        if row.get("kind") == "log" and row.get("name") == EVENT and tags.get("run") == run:
            source, number = row.get("source"), str(tags.get("n"))
            if source is None or not number.isdecimal():
                raise ValueError(
                    f"the event {row.get('seq')} has no source, or no number in its tag n"
                )
            yield str(source), int(number)
