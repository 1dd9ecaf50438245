"""Benchmark: a Spark cluster on this machine, the memory of its driver, and listings.

A standalone cluster has a master and workers with one core each; segments and tables are on the
local disk, because an S3 server for tests would be slower than all else. The report whose memory is
measured goes to such a server, because only then the executors draw its pages.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks import fleet_data, spark, usage
from benchmarks.ingest import EVENTS, Pool, ingest, ingest_again, landed, pool_of
from benchmarks.report import Goal, Settings, Topic, number, table
from benchmarks.reports import make_report
from sync.cli.gather import LARGE_FLEET, Selection, gather
from sync.common.fleet_folder import FleetFolder
from sync.ingest.archive import waiting_files
from sync.pages.files import write_report
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage, open_storage
from sync.storage.storage import Storage
from sync.tables.spark_session import DRIVER_MEMORY
from tests.helpers.object_store import BUCKET, environment, s3_server

GATEWAYS: Final = LARGE_FLEET + 1

COMPARED: Final = 2_000_000
"""Events that one executor and two ingest and report."""

GROWTH: Final = (1_000_000, 10_000_000)
"""Events of the runs that show the driver's memory."""

LANES: Final = 30_000
"""Lanes that are listed: those of 10,000 gateways."""

DAY_EVENTS: Final = GATEWAYS * fleet_data.READINGS

WARM: Final = 20
"""Segments of the ingest that warms a cluster."""

ROUNDS: Final = 3

LISTINGS: Final = 3

RATIO: Final = 1.7
"""How many times as fast two executors are at least, if the driver has a core of its own."""

NOT_JUDGED: Final = (
    f" The goal that two executors are {RATIO} times as fast as one is not judged on this machine:"
    " the driver shares the processors of two executors, and has one of its own beside one."
)

GROWN: Final = 1.2
"""Largest ratio of the driver's memory of the larger run to that of the smaller run."""


Rounds = Sequence[Mapping[int, Mapping[str, "Work"]]]
"""The work of each round, by the number of executors and the part of the work."""


class Work(NamedTuple):
    """Seconds of a part of the work, and processor seconds of driver, master and executors."""

    seconds: float
    processor: float


class Memory(NamedTuple):
    """Bytes of a driver: the peaks of its Python process and JVM, and the JVM's live objects."""

    python: int
    jvm: int
    live: int


class Grown(NamedTuple):
    """The number of events, and the driver's memory after their ingest and their report."""

    events: int
    ingested: Memory
    reported: Memory


def measure(settings: Settings) -> Topic:
    """Measure all three."""
    compared, *grown = (_events(settings, each) for each in (COMPARED, *GROWTH))
    days = -(-max(compared, *grown) // DAY_EVENTS)
    gateways = round(settings.choose(GATEWAYS, 4))
    pool = pool_of(settings, fleet_data.fleet(gateways, days), EVENTS)
    rounds = [
        {
            executors: spark.in_new_process(_work, settings, pool, executors, compared)
            for executors in (1, 2)
        }
        for _ in range(round(settings.choose(ROUNDS, 1)))
    ]
    memory = [spark.in_new_process(_memory, settings, pool, each) for each in grown]
    lanes = round(settings.choose(LANES * settings.share, 30))
    blocks = (
        *_work_blocks(rounds, compared),
        *_memory_blocks(memory),
        *_listing_blocks(lanes, spark.in_new_process(_listings, settings, lanes)),
    )
    return Topic("cluster", "A Spark cluster", blocks, _goals(rounds, memory))


def pins(executors: int) -> list[str]:
    """Return the processors of each executor, and those of the driver and the master.

    Those have the processors that are left, or all if none are.
    """
    everything = sorted(os.sched_getaffinity(0))
    left = everything[executors:] or everything
    return [*map(str, everything[:executors]), ",".join(map(str, left))]


def _events(settings: Settings, full: int) -> int:
    """Return a number of events: of a quick run, `full`, or the share of it that is wanted."""
    return round(settings.choose(full * settings.share, EVENTS * WARM * 2))


def _work(settings: Settings, pool: Pool, executors: int, events: int) -> dict[str, Work]:
    """Measure an ingest and a report, by part of the work."""
    cores = pins(executors)
    os.sched_setaffinity(0, {int(each) for each in cores[-1].split(",")})
    with (
        tempfile.TemporaryDirectory(dir=settings.folder) as folder,
        spark.cluster(executors, Path(folder), cores) as session,
    ):
        spark.warm(session)
        ingest_again(settings, session, pool, WARM)
        with landed(settings, pool.files[: events // EVENTS], pool) as fleet:
            run = ingest(session, fleet)
            used = spark.processor()
            report = make_report(session, fleet, Path(folder) / "report")
            used = spark.processor() - used
    return {
        "ingest": Work(run.seconds, run.processor),
        "daily summaries": Work(report.summarised, 0.0),
        "report": Work(report.seconds, used),
    }


def _memory(settings: Settings, pool: Pool, events: int) -> Grown:
    with ExitStack() as stack:
        os.environ.update(environment(stack.enter_context(s3_server())))  # executors inherit them
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder))
        session = stack.enter_context(spark.cluster(2, Path(folder)))
        fleet = stack.enter_context(landed(settings, pool.files[: events // EVENTS], pool))
        spark.warm(session)
        count = ingest(session, fleet).events
        ingested = driver_memory(session)
        out = open_storage(f"s3://{BUCKET}/report")
        write_report(gather(session, FleetStorage.of(fleet), Selection(), out), out)
        return Grown(count, ingested, driver_memory(session))


def driver_memory(session: SparkSession) -> Memory:
    """Return the memory of this process, which is a driver, and of its JVM."""
    gateway: Any = SparkContext._gateway
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    live = runtime.totalMemory() - runtime.freeMemory()
    return Memory(usage.peak(os.getpid()), usage.peak(gateway.proc.pid), live)


def _listings(settings: Settings, lanes: int) -> dict[str, float]:
    """Return the seconds to list a landing, by where it is and whether its lanes have a segment."""
    names = [f"gw-{at // 3:05}.example/e/lane-{at % 3}" for at in range(lanes)]
    fleet = FleetFolder(settings.folder / "lanes")
    for name in names:
        (fleet.landing / name).mkdir(parents=True)
    disk = LocalStorage(fleet.root)
    found = {"disk, empty lanes": _listing(disk, 0)}
    for name in names:
        (fleet.landing / name / "1-1.seg").touch()
    found["disk, a segment in each lane"] = _listing(disk, lanes)
    with s3_server() as url:
        os.environ.update(environment(url))
        bucket = open_storage(f"s3://{BUCKET}")
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(lambda name: bucket.create(f"landing/{name}/1-1.seg", b""), names):
                pass
        found["S3 server for tests, a segment in each lane"] = _listing(bucket, lanes)
    return found


def _listing(storage: Storage, files: int) -> float:
    seconds = []
    for _ in range(LISTINGS):
        began = time.perf_counter()
        count = len(waiting_files(storage))
        seconds.append(time.perf_counter() - began)
        if count != files:
            raise RuntimeError(f"a listing has {count} files in place of {files}")
    return statistics.median(seconds)


def _ratios(rounds: Rounds, part: str) -> list[float]:
    return [each[1][part].seconds / each[2][part].seconds for each in rounds]


def _work_blocks(rounds: Rounds, events: int) -> tuple[str, ...]:
    rows = []
    for part in rounds[0][1]:
        for executors in rounds[0]:
            seconds = statistics.median(each[executors][part].seconds for each in rounds)
            used = statistics.median(each[executors][part].processor for each in rounds)
            ratio = statistics.median(_ratios(rounds, part)) if executors == 2 else None
            rows.append(
                (
                    part,
                    executors,
                    number(seconds),
                    number(events / seconds / executors),
                    number(used / events * 1e6) if used else "",
                    number(ratio) if ratio else "",
                )
            )
    return (
        f"{events:,} readings of {GATEWAYS} gateways are ingested and reported by a standalone"
        f" cluster on this machine, {len(rounds)} times by one executor and by two, alternating,"
        " each time on a new cluster that has ingested a little before. An executor has one core"
        f" and {spark.EXECUTOR_MEMORY}, and is pinned to a processor of its own by `taskset`: one"
        f" executor {_pinned(1)}, two {_pinned(2)}. `report` contains the daily summaries, which"
        " are the part that grows with the events; the rest plans some hundred small queries in"
        " the driver. Processor time is that of driver, master and executors. Values are medians."
        + ("" if _ratio_is_judged() else NOT_JUDGED),
        table(
            (
                "work",
                "executors",
                "seconds",
                "events per second and core",
                "processor, us per event",
                "times as fast",
            ),
            rows,
        ),
    )


def _ratio_is_judged() -> bool:
    """Return whether the driver has a processor of its own beside two executors."""
    return len(os.sched_getaffinity(0)) > 2


def _pinned(executors: int) -> str:
    *own, others = pins(executors)
    return f"on {' and '.join(own)} with driver and master on {others}"


def _memory_blocks(runs: Sequence[Grown]) -> tuple[str, ...]:
    rows = [
        (f"{run.events:,}", after, *(number(each / usage.MIB) for each in memory))
        for run in runs
        for after, memory in (("ingest", run.ingested), ("report", run.reported))
    ]
    return (
        "The driver's memory, with two executors that are not pinned and draw the pages. More"
        " events are more days, of which the report shows more. The heap of the JVM has at most"
        f" {DRIVER_MEMORY}, and grows before garbage is collected: its live objects were counted"
        " after a collection.",
        table(
            ("events", "after", "Python, peak MiB", "JVM, peak MiB", "JVM, live objects, MiB"), rows
        ),
    )


def _listing_blocks(lanes: int, found: Mapping[str, float]) -> tuple[str, ...]:
    return (
        f"Listing a landing with {lanes:,} lanes, as each ingest does. Values are medians of"
        f" {LISTINGS}.",
        table(
            ("landing", "seconds", "ms per lane"),
            [(name, number(each), f"{each / lanes * 1e3:.3f}") for name, each in found.items()],
        ),
    )


def _goals(rounds: Rounds, memory: Sequence[Grown]) -> list[Goal]:
    small, large = (run.reported for run in memory)
    grown = max(large.python / small.python, large.live / small.live)
    text = f"{memory[1].events:,} events need {grown:.2f} times the driver's memory of"
    goals = [Goal(f"{text} {memory[0].events:,} (goal: {GROWN})", grown <= GROWN)]
    if _ratio_is_judged():
        ratio = statistics.median(_ratios(rounds, "ingest"))
        text = f"two executors ingest {ratio:.2f} times as fast as one (goal: {RATIO})"
        goals.append(Goal(text, ratio >= RATIO))
    return goals
