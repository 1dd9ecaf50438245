"""The ingest: against Spark's own reader of JSON, how it grows, and with two workers for one.

Segments are of 500 readings, of 100 simulated gateways, and are linked into the landing of a new
fleet folder for each run. The session is warm, and its start is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import fleet_data, json_lines, spark
from benchmarks.report import Goal, Settings, Topic, number, table
from sync.central.folders import FleetFolder
from sync.central.ingest import run_ingest
from sync.central.manifest import LocalCommits
from sync.central.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from benchmarks.fleet_data import Filed
    from firmware_sim.fleet.settings import FleetSettings

GATEWAYS: Final = 100
EVENTS: Final = 500
"""Events of a segment."""

DAYS: Final = 10
"""Days of the largest run: each is 2 million events."""

GROWTH: Final = (400, 4_000, 40_000)
"""Segments of the runs by which growth is told: 0.2, 2 and 20 million events."""

SMALL: Final = 14
"""Events of a small segment: what a gateway with 4,000 readings a day seals every five minutes."""

COMPARED: Final = 2_000
"""Segments, and files of JSON lines, that are compared: a whole batch, and a million events."""

BEFORE: Final = 20
"""Segments in the tables before: the ledger is asked."""

ROUNDS: Final = 5

CLUSTERS: Final = 3
"""Clusters of each number of workers."""

FASTER: Final = 1.4
"""How many times as fast as the reader of JSON the ingest is to be."""


class Pool(NamedTuple):
    """Segments to take from, as they arrive, and where they lie."""

    root: Path
    files: Sequence[Filed]


class Run(NamedTuple):
    """What an ingest of `files` segments with `events` events took, and what it left.

    `parquet` is the number of files of events, `size` the bytes of these, `ledger` those of the
    files of segments.
    """

    files: int
    events: int
    seconds: float
    processor: float
    parquet: int
    steps: dict[str, float]
    size: int = 0
    ledger: int = 0

    @property
    def each(self) -> float:
        """Seconds an event."""
        return self.seconds / self.events


def measure(settings: Settings) -> Topic:
    """Measure all three."""
    gateways, days = round(settings.choose(GATEWAYS, 4)), round(settings.choose(DAYS, 1))
    pool = pool_of(settings, fleet_data.fleet(gateways, days), EVENTS)
    small = pool_of(
        settings, fleet_data.fleet(gateways, 1, GROWTH[1] // GATEWAYS * SMALL * 2), SMALL
    )
    wide = pool_of(settings, fleet_data.fleet(len(small.files), 1, 2 * SMALL - 1), SMALL, "wide")
    against = spark.apart(_against, settings, pool)
    growth = spark.apart(_growth, settings, pool, small, wide)
    workers = _workers(settings, pool)
    blocks = (*_against_blocks(against), *_growth_blocks(growth), *_workers_blocks(workers))
    ratio = statistics.median(_ratios(against))
    goal = Goal(
        f"{ratio:.2f} times as fast as the reader of JSON (to reach: {FASTER})", ratio >= FASTER
    )
    return Topic("ingest", "The ingest", blocks, [goal])


def pool_of(settings: Settings, fleet: FleetSettings, events: int, name: str = "") -> Pool:
    """Write the segments of a fleet, of so many events each, to take from."""
    root = settings.folder / f"pool-{name or events}"
    return Pool(root, fleet_data.write_pool(fleet, events, root))


def _counts(settings: Settings, pool: Pool) -> Sequence[int]:
    """Give the sizes by which growth is told: the first ones, smaller, to see that it runs."""
    return [min(each, len(pool.files)) for each in ((4, 40) if settings.quick else GROWTH)]


@contextmanager
def _taken(settings: Settings, files: Sequence[Filed], pool: Pool) -> Iterator[FleetFolder]:
    """Make a fleet folder in which these segments have landed; it is removed at the end."""
    with tempfile.TemporaryDirectory(dir=settings.folder, ignore_cleanup_errors=True) as root:
        fleet = FleetFolder(Path(root) / "fleet")
        fleet.create()
        fleet_data.place(pool.root, files, fleet.landing)
        yield fleet


def ingest(session: SparkSession, fleet: FleetFolder) -> Run:
    """Take what landed into the tables; times are in seconds, by step."""
    steps: dict[str, float] = {}
    began = last = time.perf_counter()
    used = spark.processor()

    def on_step(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        steps[step] = steps.get(step, 0.0) + now - last
        last = now

    summary = run_ingest(session, fleet, LocalCommits(fleet.tables), on_step)
    seconds = time.perf_counter() - began
    used = spark.processor() - used
    events, segments = (
        [path.stat().st_size for path in fleet.tables.glob(f"data/*/*/*/{name}/**/*.parquet")]
        for name in ("events", "segments")
    )
    counts = summary.counts
    sizes = sum(events), sum(segments)
    return Run(counts.segments, counts.events, seconds, used, len(events), steps, *sizes)


def _grown(settings: Settings, session: SparkSession, pool: Pool, count: int) -> Run:
    with _taken(settings, pool.files[:count], pool) as fleet:
        return ingest(session, fleet)


class Compared(NamedTuple):
    """Seconds and processor seconds of both sides of a pair."""

    ours: Run
    json: Run


def _growth(settings: Settings, pool: Pool, small: Pool, wide: Pool) -> list[Run]:
    """Measure one size after the other; then small segments, and at last one of each gateway."""
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        counts = _counts(settings, pool)
        _grown(settings, session, pool, counts[0])
        runs = [_grown(settings, session, pool, count) for count in counts]
        count = min(counts[-2], len(small.files), len(wide.files))
        return [*runs, *(_grown(settings, session, each, count) for each in (small, wide))]


def _against(settings: Settings, pool: Pool) -> list[Compared]:
    """Measure pairs, in turn; each side begins every other one."""
    count = min(round(settings.choose(COMPARED, 20)), len(pool.files) - BEFORE)
    files = pool.files[BEFORE : BEFORE + count]
    lines = settings.folder / "json"
    for filed in files:
        json_lines.write(pool.root / filed.path, lines / f"{filed.path}.json.gz")
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        sides: list[Callable[[], Run]] = [
            lambda: _ours(settings, session, pool, count),
            lambda: _json(settings, session, lines, count),
        ]
        return _pairs(settings, sides)


def _pairs(settings: Settings, sides: Sequence[Callable[[], Run]]) -> list[Compared]:
    found = []
    for turn in range(round(settings.choose(ROUNDS, 1)) + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        runs = {side: sides[side]() for side in order}
        if runs[0].events != runs[1].events:
            raise RuntimeError(f"{runs[0].events} events, and {runs[1].events} of JSON")
        found.append(Compared(runs[0], runs[1]))
    return found[1:]  # the first pair warmed both up


def _ours(settings: Settings, session: SparkSession, pool: Pool, count: int) -> Run:
    with _taken(settings, pool.files[:BEFORE], pool) as fleet:
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


def _workers(settings: Settings, pool: Pool) -> dict[int, list[Run]]:
    """Measure one worker and two, in turn, each time on a cluster of its own."""
    count = round(settings.choose(GROWTH[1], 20))
    found: dict[int, list[Run]] = {1: [], 2: []}
    for _ in range(round(settings.choose(CLUSTERS, 1))):
        for workers, runs in found.items():
            runs.append(spark.apart(_on_cluster, settings, pool, workers, count))
    return found


def _on_cluster(settings: Settings, pool: Pool, workers: int, count: int) -> Run:
    with (
        tempfile.TemporaryDirectory(dir=settings.folder) as folder,
        spark.cluster(workers, Path(folder)) as session,
    ):
        spark.warm(session)
        _grown(settings, session, pool, min(GROWTH[0], count))
        return _grown(settings, session, pool, count)


def _ratios(pairs: Sequence[Compared]) -> list[float]:
    return [pair.json.seconds / pair.ours.seconds for pair in pairs]


def _against_blocks(pairs: Sequence[Compared]) -> tuple[str, ...]:
    first = pairs[0].ours
    ratios = sorted(_ratios(pairs))
    used = statistics.median(pair.json.processor / pair.ours.processor for pair in pairs)
    return (
        f"{first.files:,} files of {EVENTS} events into Parquet, divided by day, in"
        f" {len(pairs)} pairs in turn, in one session of as many tasks as there are cores. The"
        " ingest checks each segment's checksum and columns, asks the ledger, writes its rows of"
        " events and of segments, syncs them, commits a manifest, and moves each file to the"
        " archive. The other side is `spark.read.json` with a schema, of the same events in as many"
        " gzipped files, and the writing of the same columns: no check and no ledger."
        " Medians.",
        table(
            ("", "seconds", "processor seconds", "us an event", "files of Parquet"),
            [_side("ingest", [p.ours for p in pairs]), _side("JSON", [p.json for p in pairs])],
        ),
        f"Ratios of the seconds: {', '.join(f'{each:.2f}' for each in ratios)}; of the processor"
        f" seconds: median {used:.2f}.",
    )


def _side(name: str, runs: Sequence[Run]) -> tuple[object, ...]:
    return (
        name,
        number(statistics.median(run.seconds for run in runs)),
        number(statistics.median(run.processor for run in runs)),
        number(statistics.median(run.each for run in runs) * 1e6),
        number(statistics.median(run.parquet for run in runs)),
    )


def _growth_blocks(runs: Sequence[Run]) -> tuple[str, ...]:
    *grown, small, wide = runs
    folders = wide.files - min(GATEWAYS, small.files)
    middle, large = grown[-2], grown[-1]
    more = (large.seconds - middle.seconds) / (large.events - middle.events)
    return (
        "How it grows: one run of each, in one session, with the default of 2,000 segments a"
        " batch. In the last two lines the segments are small: of as many gateways as above, and of"
        " a gateway each. `judged`: read, decoded, and asked of the ledger; `events`: written;"
        " `filed`: moved to the archive.",
        table(
            (
                "events",
                "files",
                "seconds",
                "us an event",
                "processor, us",
                "judged",
                "events, s",
                "segments, s",
                "filed",
                "files of Parquet",
            ),
            [_grown_row(run) for run in runs],
        ),
        f"From {middle.events:,} to {large.events:,} events an event costs {more * 1e6:.1f} us,"
        f" which is {more / middle.each:.2f} of what one costs up to there; it takes"
        f" {large.size / large.events:.1f} bytes in the table, and a segment"
        f" {large.ledger / large.files:.0f} in the ledger. A small segment costs"
        f" {small.seconds / small.files * 1e3:.2f} ms, {small.processor / small.files * 1e3:.2f} of"
        f" a processor; a folder more in the landing"
        f" {(wide.seconds - small.seconds) / folders * 1e3:.2f} ms,"
        f" {(wide.processor - small.processor) / folders * 1e3:.2f} of a processor.",
    )


def _grown_row(run: Run) -> tuple[object, ...]:
    steps = (number(run.steps[name]) for name in ("judged", "events", "segments", "filed"))
    return (
        f"{run.events:,}",
        f"{run.files:,}",
        number(run.seconds),
        number(run.each * 1e6),
        number(run.processor / run.events * 1e6),
        *steps,
        run.parquet,
    )


def _workers_blocks(workers: dict[int, list[Run]]) -> tuple[str, ...]:
    one, two = ([run.seconds for run in runs] for runs in workers.values())
    ratios = [a / b for a, b in zip(one, two, strict=True)]
    return (
        f"On a cluster of Spark's own on this machine: a master, workers of one core and"
        f" {spark.EXECUTOR_MEMORY} each, and the driver here, which all share its cores."
        f" {workers[1][0].events:,} events, after a first run that is not counted.",
        table(
            ("workers", "seconds", "us an event"),
            [
                (count, ", ".join(number(run.seconds) for run in runs), number(runs[-1].each * 1e6))
                for count, runs in workers.items()
            ],
        ),
        f"Two are {', '.join(f'{each:.2f}' for each in ratios)} times as fast as one.",
    )
