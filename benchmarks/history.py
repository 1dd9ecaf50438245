"""Benchmark: the cost of a small ingest, by the number of old batches and of empty folders.

Old batches are manifests, each with a file of the ledger. Empty folders are lanes without a file,
which a listing of the landing still visits.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks import fleet_data, ingest, spark
from benchmarks.ingest import Pool
from benchmarks.ingest_page import Run
from benchmarks.report import Settings, Topic, number, table
from sync.common.fleet_folder import FleetFolder
from sync.tables.spark_session import spark_session

MANIFESTS: Final = (0, 1_000, 10_000)
"""Numbers of old batches: half a day, a day and a week with one batch per minute."""

FOLDERS: Final = (0, 3_000, 30_000)
"""Numbers of lanes without a file: of 1,000 and of 10,000 gateways."""

FOUND: Final = 20
"""Segments that an ingest finds."""

ROUNDS: Final = 3


def measure(settings: Settings) -> Topic:
    """Measure the cost of old batches and of empty folders."""
    pool = ingest.pool_of(settings, fleet_data.fleet(8, 1), ingest.EVENTS)
    behind, empty = spark.in_new_process(_measure, settings, pool)
    blocks = (
        f"An ingest of {FOUND} segments of {ingest.EVENTS} events, in a warm session;"
        f" medians of {ROUNDS} alternating runs, in seconds. Manifests were not compacted.",
        table(("manifests", *_HEAD), [_row(*each) for each in behind.items()]),
        table(("folders without a file", *_HEAD), [_row(*each) for each in empty.items()]),
    )
    return Topic("history", "The cost of old batches and empty folders", blocks)


_HEAD: Final = ("all", "until the first batch", "judged", "filed")


def _measure(settings: Settings, pool: Pool) -> tuple[dict[int, list[Run]], dict[int, list[Run]]]:
    small = settings.quick
    with spark_session("fieldpost-benchmark") as session:
        spark.warm(session)
        _one(settings, session, pool, 0, 0)
        behind: dict[int, list[Run]] = {}
        empty: dict[int, list[Run]] = {}
        for _ in range(round(settings.choose(ROUNDS, 1))):
            for count in (0, 10) if small else MANIFESTS:
                behind.setdefault(count, []).append(_one(settings, session, pool, count, 0))
            for count in (0, 30) if small else FOLDERS:
                empty.setdefault(count, []).append(_one(settings, session, pool, 0, count))
    return behind, empty


def _one(
    settings: Settings, session: SparkSession, pool: Pool, manifests: int, folders: int
) -> Run:
    with tempfile.TemporaryDirectory(dir=settings.folder) as root:
        fleet = FleetFolder(Path(root) / "fleet")
        fleet.create()
        fleet_data.place(pool.root, pool.files[:FOUND], fleet.landing)
        ingest.ingest(session, fleet)
        _write_old_batches(fleet, manifests)
        for number_ in range(folders):
            (fleet.landing / f"gw-{number_:06d}.example" / "E" / "readings").mkdir(parents=True)
        fleet_data.place(pool.root, pool.files[FOUND : 2 * FOUND], fleet.landing)
        return ingest.ingest(session, fleet)


def _write_old_batches(fleet: FleetFolder, count: int) -> None:
    """Copy the one existing manifest, each time with a ledger file of its own."""
    (first,) = fleet.tables.glob("manifests/*/0.json")
    (ledger,) = fleet.tables.glob("data/*/*/*/segments/*.parquet")
    text = first.read_text("utf-8").replace(first.parent.name, "long-ago")
    others = fleet.tables / "manifests" / "long-ago"
    others.mkdir()
    old = ledger.relative_to(fleet.tables).as_posix().replace(first.parent.name, "long-ago")
    for batch in range(count):
        name = old.replace("/0/", f"/{batch}/", 1)
        target = fleet.tables / name
        target.parent.mkdir(parents=True)
        os.link(ledger, target)
        again = text.replace(old, name).replace('"batch": 0', f'"batch": {batch}')
        (others / f"{batch}.json").write_text(again, "utf-8")
        (others / f"{batch}.filed").touch()


def _row(count: int, runs: Sequence[Run]) -> tuple[object, ...]:
    steps = (
        number(statistics.median(run.steps[name] for run in runs))
        for name in ("began", "judged", "filed")
    )
    return f"{count:,}", number(statistics.median(run.seconds for run in runs)), *steps
