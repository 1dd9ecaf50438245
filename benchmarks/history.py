"""Benchmark: the cost of a small ingest, by the number of old batches and of empty folders.

Each old batch has a file of the ledger. Empty folders are lanes without a file, which a listing of
the landing still visits.
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
from sync.tables.data_files import add_action
from sync.tables.delta import SEGMENTS, Batch, local_tables
from sync.tables.spark_session import spark_session

BATCHES: Final = (0, 1_000, 10_000)
"""Numbers of old batches: none, and those of a day and of a week with one batch per minute."""

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
        f" medians of {ROUNDS} alternating runs, in seconds. The tables were not compacted.",
        table(("old batches", *_HEAD), [_row(*each) for each in behind.items()]),
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
            for count in (0, 10) if small else BATCHES:
                behind.setdefault(count, []).append(_one(settings, session, pool, count, 0))
            for count in (0, 30) if small else FOLDERS:
                empty.setdefault(count, []).append(_one(settings, session, pool, 0, count))
    return behind, empty


def _one(settings: Settings, session: SparkSession, pool: Pool, batches: int, folders: int) -> Run:
    with tempfile.TemporaryDirectory(dir=settings.folder) as root:
        fleet = FleetFolder(Path(root) / "fleet")
        fleet.create()
        fleet_data.place(pool.root, pool.files[:FOUND], fleet.landing)
        ingest.ingest(session, fleet)
        _write_old_batches(fleet, batches)
        for number_ in range(folders):
            (fleet.landing / f"gw-{number_:06d}.example" / "E" / "readings").mkdir(parents=True)
        fleet_data.place(pool.root, pool.files[FOUND : 2 * FOUND], fleet.landing)
        return ingest.ingest(session, fleet)


def _write_old_batches(fleet: FleetFolder, count: int) -> None:
    """Commit copies of the one file of the ledger, each as a batch without events."""
    tables = local_tables(fleet.tables)
    (name,) = tables.snapshot().segment_files
    content = (fleet.tables / name).read_bytes()
    for number_ in range(count):
        path = f"old-{number_}.parquet"
        os.link(fleet.tables / name, fleet.tables / SEGMENTS / path)
        batch = Batch([], add_action(path, content))
        tables.commit(tables.snapshot(), batch)
    tables.mark_archived(tables.snapshot().batch)


def _row(count: int, runs: Sequence[Run]) -> tuple[object, ...]:
    steps = (
        number(statistics.median(run.steps[name] for run in runs))
        for name in ("began", "judged", "filed")
    )
    return f"{count:,}", number(statistics.median(run.seconds for run in runs)), *steps
