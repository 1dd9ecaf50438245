"""Benchmark: the ingest against Spark's JSON reader, and with growing data.

Segments have 500 readings unless stated otherwise, come from 100 simulated gateways, and are linked
into the landing of a new fleet folder for each run. The session is warm; its start is not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from benchmarks import fleet_data, json_lines, spark
from benchmarks.fleet_data import PooledSegment
from benchmarks.ingest_page import (
    Comparison,
    Run,
    against_blocks,
    goal,
    growth_blocks,
)
from benchmarks.report import Settings, Topic
from firmware_sim.fleet.settings import FleetSettings
from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import IngestControl, ingest_waiting
from sync.storage.locations import FleetStorage
from sync.tables.spark_session import spark_session

GATEWAYS: Final = 100
EVENTS: Final = 500
"""Events of a segment."""

DAYS: Final = 10
"""Days of the largest run: each has 2 million events."""

GROWTH: Final = (400, 4_000, 40_000)
"""Segments of the runs that show growth: 0.2, 2 and 20 million events."""

SMALL: Final = 14
"""Events of a small segment: a gateway with 4,000 readings per day seals so many in five minutes.
"""

FULL: Final = 2_000
"""Events of a full segment: a gateway seals at this number."""

COMPARED: Final = 1_000_000
"""Events of a comparison: a whole batch of segments of 500."""

BEFORE: Final = 20
"""Segments that are already in the tables, so that the ledger is read."""

ROUNDS: Final = 5


class Pool(NamedTuple):
    """Segments to take in order of arrival, and their folder."""

    root: Path
    files: Sequence[PooledSegment]


def measure(settings: Settings) -> Topic:
    """Measure both."""
    gateways, days = round(settings.choose(GATEWAYS, 4)), round(settings.choose(DAYS, 1))
    pool = pool_of(settings, fleet_data.fleet(gateways, days), EVENTS)
    small = pool_of(
        settings, fleet_data.fleet(gateways, 1, GROWTH[1] // GATEWAYS * SMALL * 2), SMALL
    )
    wide = pool_of(settings, fleet_data.fleet(len(small.files), 1, 2 * SMALL - 1), SMALL, "wide")
    full = pool_of(settings, fleet_data.fleet(gateways, 1), FULL)
    against = {
        events: spark.in_new_process(_compare, settings, each, COMPARED // events)
        for events, each in ((EVENTS, pool), (FULL, full))
    }
    growth = spark.in_new_process(_growth, settings, pool, small, wide)
    blocks = (*against_blocks(against), *growth_blocks(growth, gateways))
    return Topic("ingest", "The ingest", blocks, [goal(*each) for each in against.items()])


def pool_of(settings: Settings, fleet: FleetSettings, events: int, name: str = "") -> Pool:
    """Write the segments of a fleet, with a number of events each, and return them as a pool."""
    root = settings.folder / f"pool-{name or events}"
    return Pool(root, fleet_data.write_pool(fleet, events, root))


def _growth_sizes(settings: Settings, pool: Pool) -> Sequence[int]:
    """Return the sizes of the growing runs; smaller ones in a quick run."""
    return [min(each, len(pool.files)) for each in ((4, 40) if settings.quick else GROWTH)]


@contextmanager
def landed(settings: Settings, files: Sequence[PooledSegment], pool: Pool) -> Iterator[FleetFolder]:
    """Create a fleet folder in which these segments have landed; remove it at the end."""
    with tempfile.TemporaryDirectory(dir=settings.folder, ignore_cleanup_errors=True) as root:
        fleet = FleetFolder(Path(root) / "fleet")
        fleet.create()
        fleet_data.place(pool.root, files, fleet.landing)
        yield fleet


def ingest(session: SparkSession, fleet: FleetFolder) -> Run:
    """Ingest what has landed; times are in seconds, by step."""
    steps: dict[str, float] = {}
    began = last = time.perf_counter()
    used = spark.processor()

    def on_step(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        steps[step] = steps.get(step, 0.0) + now - last
        last = now

    places = FleetStorage.of(fleet)
    summary = ingest_waiting(lambda: session, places, IngestControl(on_step), here_files=0)
    seconds = time.perf_counter() - began
    used = spark.processor() - used
    events, segments = (
        [path.stat().st_size for path in fleet.tables.glob(f"{name}/**/*.parquet")]
        for name in ("events", "segments")
    )
    counts = summary.counts
    sizes = sum(events), sum(segments)
    return Run(counts.segments, counts.events, seconds, used, len(events), steps, *sizes)


def ingest_again(settings: Settings, session: SparkSession, pool: Pool, count: int) -> Run:
    """Ingest the first segments of a pool into a new fleet folder."""
    with landed(settings, pool.files[:count], pool) as fleet:
        return ingest(session, fleet)


def _growth(settings: Settings, pool: Pool, small: Pool, wide: Pool) -> list[Run]:
    """Measure each size in turn, then small segments, then small segments of one gateway each."""
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        counts = _growth_sizes(settings, pool)
        ingest_again(settings, session, pool, counts[0])
        runs = [ingest_again(settings, session, pool, count) for count in counts]
        count = min(counts[-2], len(small.files), len(wide.files))
        return [*runs, *(ingest_again(settings, session, each, count) for each in (small, wide))]


def _compare(settings: Settings, pool: Pool, most: int) -> list[Comparison]:
    """Measure pairs; the side that runs first alternates."""
    count = min(round(settings.choose(most, 20)), len(pool.files) - BEFORE)
    files = pool.files[BEFORE : BEFORE + count]
    lines = settings.folder / f"json-{pool.root.name}"
    for filed in files:
        json_lines.write(pool.root / filed.path, lines / f"{filed.path}.json.gz")
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        sides: list[Callable[[], Run]] = [
            lambda: _ingest_pool(settings, session, pool, count),
            lambda: _json(settings, session, lines, count),
        ]
        return _pairs(settings, sides)


def _pairs(settings: Settings, sides: Sequence[Callable[[], Run]]) -> list[Comparison]:
    found = []
    for turn in range(round(settings.choose(ROUNDS, 1)) + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        runs = {side: sides[side]() for side in order}
        if runs[0].events != runs[1].events:
            raise RuntimeError(
                f"the ingest wrote {runs[0].events} events, the JSON reader {runs[1].events}"
            )
        found.append(Comparison(runs[0], runs[1]))
    return found[1:]  # the first pair is a warm-up


def _ingest_pool(settings: Settings, session: SparkSession, pool: Pool, count: int) -> Run:
    with landed(settings, pool.files[:BEFORE], pool) as fleet:
        ingest(session, fleet)
        fleet_data.place(pool.root, pool.files[BEFORE : BEFORE + count], fleet.landing)
        return ingest(session, fleet)


def _json(settings: Settings, session: SparkSession, lines: Path, count: int) -> Run:
    with tempfile.TemporaryDirectory(dir=settings.folder) as out:
        began, used = time.perf_counter(), spark.processor()
        json_lines.take(session, lines, f"{out}/events")
        seconds, used = time.perf_counter() - began, spark.processor() - used
        written = sum(1 for _ in Path(out).rglob("*.parquet"))
        events = session.read.parquet(f"{out}/events").count()
    return Run(count, events, seconds, used, written, {})
