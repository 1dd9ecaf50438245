"""The ingest's driver, killed by SIGKILL while a batch is under way: the tables equal the truth.

It dies at every step from inside, and at any moment from outside, alone or with its JVM. Links are
bad and clocks wrong meanwhile, and all but the tables is lost now and then. A driver ingests with
Spark (`spark`) or without it (`here`), which takes a tenth of the processor time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import STEPS
from tests.helpers.faulty_landing import FaultyLanding, remove_all_but_tables
from tests.helpers.local_ingest import check, ingest, ingest_by_spark

pytestmark = pytest.mark.spark

LIMIT_S = 300.0
"""Seconds for which a driver may live: a loaded machine takes a minute to start a JVM."""

BEFORE, ON_MS = 12, 1_500
"""Maximum steps, and ms after them, after which a driver is killed from outside."""

CHOSEN = ("events", "committed", "written")
"""Steps at which a driver dies first: between the two commits, and after and before both."""

LOST = 0.15
"""Share of the kills after which all but the tables is lost."""

_DRIVER = "tests.helpers.killed_driver"

IDLE = ("filed", "over")
"""Steps after which a driver has nothing left to do, so that a kill interrupts no work."""


class End(NamedTuple):
    """The end of a driver: its exit status, and the steps that it printed."""

    status: int
    steps: list[str]
    inside: bool

    @property
    def was_interrupted(self) -> bool:
        """Return whether it was killed while it worked: by itself at a step, or after its first."""
        at_work = self.inside or (bool(self.steps) and self.steps[-1] not in IDLE)
        return self.status == -signal.SIGKILL and at_work


class Drivers:
    """Starts drivers one after another, and kills them; leaves none behind."""

    def __init__(self, fleet: FleetFolder, engine: str) -> None:
        self._fleet = fleet
        self.engine = engine
        self._orphans: list[int] = []
        self._suspended: list[int] = []

    def crash_at(self, step: str, number: int) -> End:
        """Run a driver that kills itself when it takes the step for the `number`th time."""
        process = self._start(step, str(number))
        with self._kill_at_the_end(process, with_jvm=False):
            steps = self._read(process, lambda printed: printed.count(step) == number)
            return End(process.wait(LIMIT_S), steps, inside=steps.count(step) == number)

    def suspend_at(self, step: str) -> subprocess.Popen[bytes]:
        """Start a driver that ignores the lease; return it when it is suspended at the step."""
        process = self._start(step, "1", "SIGSTOP")
        self._suspended.append(process.pid)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return process

    def resume(self, process: subprocess.Popen[bytes]) -> End:
        """Let a suspended driver go on; return how it ends."""
        with self._kill_at_the_end(process, with_jvm=True):
            process.send_signal(signal.SIGCONT)
            steps = self._read(process, lambda printed: printed[-1:] == ["over"])
            return End(process.wait(LIMIT_S), steps, inside=False)

    def kill_after(self, steps: int, on_ms: int, *, with_jvm: bool) -> End:
        """Kill a driver so many ms after so many steps, alone or with its JVM."""
        process = self._start()
        with self._kill_at_the_end(process, with_jvm=with_jvm):
            printed = self._read(process, lambda printed: len(printed) == steps)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(on_ms / 1000)
            if with_jvm:
                _kill_group(process.pid)
            process.kill()
            status = process.wait(LIMIT_S)
            return End(status, printed + _rest(process), inside=False)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", _DRIVER, str(self._fleet.root), self.engine, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(self._fleet.root.parent)},
        )

    def _read(
        self, process: subprocess.Popen[bytes], enough: Callable[[list[str]], bool]
    ) -> list[str]:
        """Read the steps of a driver until they are `enough` or it ends."""
        assert process.stdout is not None
        printed: list[str] = []
        while not enough(printed) and (line := process.stdout.readline()):
            printed.append(line.decode().strip())
            self.kill_orphans()
        return printed

    @contextlib.contextmanager
    def _kill_at_the_end(
        self, process: subprocess.Popen[bytes], *, with_jvm: bool
    ) -> Iterator[None]:
        """Kill a driver at the end; its JVM may run on until the next driver starts."""
        late = threading.Timer(LIMIT_S, _kill_group, [process.pid])
        late.start()
        try:
            yield
        finally:
            late.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._orphans.append(process.pid)
            if with_jvm:
                self.kill_orphans()

    def kill_orphans(self) -> None:
        """Kill the JVMs of drivers that have ended."""
        while self._orphans:
            _kill_group(self._orphans.pop())

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        self._orphans += self._suspended
        self.kill_orphans()


def _kill_group(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def _rest(process: subprocess.Popen[bytes]) -> list[str]:
    """Return the steps that were printed and not read yet; a JVM may hold the pipe."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    output = process.stdout.read() or b""
    process.stdout.close()
    return output.decode().split()


def kill_one(drivers: Drivers, dice: Random, number: int) -> End:
    """Let one driver die: in turn from inside, at each step once, and from outside."""
    steps = [*CHOSEN, *(step for step in STEPS if step not in CHOSEN)]
    inside, remainder = divmod(number, 2)
    if remainder == 0:
        step = steps[inside] if inside < len(steps) else dice.choice(STEPS)
        last = step in ("ended", "filed")
        return drivers.crash_at(step, 1 if last else dice.randint(1, 2))
    on_ms = dice.randrange(ON_MS)
    return drivers.kill_after(dice.randint(1, BEFORE), on_ms, with_jvm=dice.random() < 0.5)


STEPS_OF_A_BATCH = ("began", "written", "events")
SUSPENDED = [
    *(("here", step) for step in STEPS_OF_A_BATCH),
    *(pytest.param("spark", step, marks=pytest.mark.long) for step in STEPS_OF_A_BATCH),
]


def ingest_with(spark: SparkSession, fleet: FleetFolder, engine: str) -> None:
    """Ingest all waiting files in this process."""
    if engine == "spark":
        ingest_by_spark(spark, fleet)
    else:
        ingest(fleet)


@pytest.mark.parametrize(("engine", "step"), SUSPENDED)
def test_a_driver_that_was_suspended_while_another_worked_adds_nothing(
    spark: SparkSession, fleet: FleetFolder, seed: int, engine: str, step: str
) -> None:
    landing = FaultyLanding(fleet, Random(seed))
    landing.fill()
    with Drivers(fleet, engine) as drivers:
        process = drivers.suspend_at(step)
        ingest_with(spark, fleet, engine)
        assert drivers.resume(process).status in (0, 1)
    landing.fill(all_of_it=True)
    ingest_with(spark, fleet, engine)
    check(fleet, landing)


@pytest.mark.parametrize("engine", ["here", pytest.param("spark", marks=pytest.mark.long)])
def test_two_concurrent_drivers_add_each_event_once(
    spark: SparkSession, fleet: FleetFolder, seed: int, engine: str
) -> None:
    """Both have judged the same ledger and written their files before either commits."""
    landing = FaultyLanding(fleet, Random(seed))
    landing.fill()
    with Drivers(fleet, engine) as drivers, ThreadPoolExecutor(2) as pool:
        suspended = [drivers.suspend_at("written") for _ in range(2)]
        ends = list(pool.map(drivers.resume, suspended))
        assert {end.status for end in ends} <= {0, 1}
        assert any("committed" in end.steps for end in ends)
    landing.fill(all_of_it=True)
    ingest_with(spark, fleet, engine)
    check(fleet, landing)


@pytest.mark.parametrize("between", [False, True], ids=["anywhere", "between the commits"])
def test_kills_during_batches_lose_and_duplicate_no_event(
    spark: SparkSession,
    fleet: FleetFolder,
    scale: Callable[[int, int], int],
    seed: int,
    *,
    between: bool,
) -> None:
    """With small counts, a Spark driver is killed once, between the commits."""
    dice = Random(seed)
    landing = FaultyLanding(fleet, dice)
    kills, ends = scale(2, 50), Counter[str]()
    engines = ("here",) * 4 + ("spark",) * scale(0, 1)  # a driver with Spark takes a minute
    with Drivers(fleet, "spark") as drivers:
        while (interrupted := ends.total()) < kills:
            if ends and dice.random() < LOST:
                remove_all_but_tables(fleet)
            landing.fill()
            landing.fill()
            drivers.engine = dice.choice(engines) if interrupted or not between else "spark"
            end = drivers.crash_at("events", 1) if between else kill_one(drivers, dice, interrupted)
            assert end.was_interrupted or end.status in (0, -signal.SIGKILL), end
            ends[f"{'at' if end.inside else 'after'} {end.steps[-1]}"] += end.was_interrupted
    assert ends["at events"] == kills or not between
    landing.fill(all_of_it=True)
    ingest_by_spark(spark, fleet)
    check(fleet, landing)
