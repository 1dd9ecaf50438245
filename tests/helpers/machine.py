"""A machine whose clocks a test sets, in the test's own process or in a gateway's.

`SimulatedMachine` has the true time and the state of a machine: its boots, the error of its wall
clock, and whether that is synchronised. `python -m tests.helpers.machine DIR FILE SPEED` runs the
gateway of `DIR` with the clock readings in `FILE`, written by `write_readings`; uptime runs `SPEED`
times as fast.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from edge import timekeeping
from edge.app import App
from edge.config import load
from edge.engine.time.clock import MachineClocks
from edge.journal import Journal
from tests.helpers.processes import Process

EPOCH: Final = 1_760_000_000.0
"""The true time at which the machine begins, in seconds since 1970 UTC."""

CHECK_S: Final = 0.2
"""Seconds between two checks of the wall clock by a gateway with these clocks."""


class SimulatedMachine:
    """The true time, and a machine."""

    def __init__(self, *, synchronised: bool = False) -> None:
        self.true_time = 0.0
        self.booted = -100.0
        self.boots = 1
        self.error = 0.0
        self.synchronised = synchronised
        self.synchronised_calls = 0

    def reboot(self, *, synchronised: bool = False, error: float = 0.0) -> None:
        """Boot again, with a wall clock that is wrong by `error` seconds."""
        self.boots += 1
        self.booted = self.true_time - 5.0
        self.synchronised = synchronised
        self.error = error

    @property
    def clocks(self) -> MachineClocks:
        return MachineClocks(
            uptime=lambda: self.true_time - self.booted,
            wall=lambda: round((EPOCH + self.true_time + self.error) * 1000),
            synchronised=self._synchronised,
            boot=lambda: f"boot-{self.boots}",
        )

    def _synchronised(self) -> bool:
        self.synchronised_calls += 1
        return self.synchronised


class ClockReadings(NamedTuple):
    """The clock readings for a gateway in another process, valid until the next ones.

    `uptime` in seconds at its start; `wall` in seconds before or after the real wall clock.
    """

    boot: str
    uptime: float
    wall: float
    synchronised: bool


def write_readings(path: Path, readings: ClockReadings) -> None:
    """Write the clock readings for a gateway atomically."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(readings), "utf-8")
    temporary.replace(path)


def run(folder: Path, path: Path, speed: int = 1) -> Process:
    """Start a gateway with the clocks of `path`; use it as a context manager."""
    from tests.helpers.processes import start

    return start("python", "-m", "tests.helpers.machine", folder, path, str(speed))


def _file_clocks(path: Path, speed: float) -> MachineClocks:
    def now() -> ClockReadings:
        return ClockReadings(*json.loads(path.read_text("utf-8")))

    began, first = time.monotonic(), now()

    def passed() -> float:
        return (time.monotonic() - began) * speed

    start = time.time()
    return MachineClocks(
        uptime=lambda: first.uptime + passed(),
        wall=lambda: round((start + passed() + now().wall) * 1000),
        synchronised=lambda: now().synchronised,
        boot=lambda: first.boot,
    )


def _main(folder: Path, path: Path, speed: float) -> None:
    app = App(folder, load.load(folder), Journal(), _file_clocks(path, speed))
    with patch.object(timekeeping, "CHECK_INTERVAL", CHECK_S):
        asyncio.run(app.serve(partial(print, flush=True)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
