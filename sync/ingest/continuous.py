"""An ingest that goes on: it reads what waits, pauses, and reads again, until asked to stop.

Each reading is a stream that ends, as a single one is: only then can what it read leave the
landing, and what it passed over be noticed. Between two readings the lease is free for upkeep.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sync.common.errors import LeaseError
from sync.ingest.ingest import IngestControl, IngestResult, run_ingest
from sync.ingest.spark_log import rotate_stderr
from sync.tables.locations import FleetStorage
from sync.tables.manifest import Commits, Counts
from sync.tables.spark_session import BATCH_FILES

EVERY_S: Final = 60.0
"""Seconds from the beginning of one reading to that of the next: what landed is in the tables in
about two minutes, and a stream's start, a second or so, is little of it."""

LEAST_PAUSE_S: Final = 1.0
"""Seconds for which the lease is free between two readings, however long they take: upkeep that
waits looks twice as often."""


def run_continuously(
    spark: SparkSession,
    places: FleetStorage,
    commits: Commits,
    watch: IngestControl,
    on_reading: Callable[[IngestResult], None] = lambda summary: None,
    *,
    every_s: float = EVERY_S,
    batch_files: int = BATCH_FILES,
    log: Path | None = None,
) -> IngestResult:
    """Read what waits every `every_s` seconds until `watch.stopping` is set; gives the sum of it.

    `on_reading` is told what each reading did. While upkeep holds the lease, readings are left out.
    `log` is the file that stderr goes to, which is kept within its bound; None: it is no file.
    Raises FleetError when a reading fails: whoever starts this starts it again.
    """
    total = IngestResult(0, Counts())
    while not watch.stopping.is_set():
        began = time.monotonic()
        with contextlib.suppress(LeaseError):
            summary = run_ingest(spark, places, commits, batch_files=batch_files, watch=watch)
            total += summary
            on_reading(summary)
        if log is not None:
            rotate_stderr(log)
        watch.stopping.wait(max(LEAST_PAUSE_S, began + every_s - time.monotonic()))
    return total


@contextlib.contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Set `stopping` on SIGTERM and SIGINT within the block; the batch at work is ended first."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda *_: stopping.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
