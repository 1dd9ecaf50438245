"""Continuous ingest: ingest the waiting segments, pause, and repeat until asked to stop.

Between two runs the lease is free for maintenance.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sync.common.durable_files import replace_file
from sync.common.errors import LeaseError
from sync.common.text import os_error
from sync.ingest.ingest import IngestControl, IngestResult, ingest_waiting
from sync.storage.locations import FleetStorage
from sync.tables.spark_session import BATCH_FILES

EVERY_S: Final = 60.0
"""Seconds from the start of one run to the start of the next: a segment is in the tables in about
two minutes."""

MIN_PAUSE_S: Final = 1.0
"""Minimum seconds for which the lease is free between two runs. Maintenance tries to take the lease
more often than that."""

LOG_BYTES: Final = 4 * 1024 * 1024
"""Size in bytes above which the log is truncated. Its last `LOG_BYTES` are first copied to a
second file, through memory. They have more than 20,000 lines, the log of some days."""

_STDERR: Final = 2


def run_continuously(
    session: Callable[[], SparkSession],
    places: FleetStorage,
    control: IngestControl,
    on_run: Callable[[IngestResult], None] = lambda result: None,
    *,
    every_s: float = EVERY_S,
    batch_files: int = BATCH_FILES,
    log: Path | None = None,
) -> None:
    """Ingest every `every_s` seconds until `control.stopping` is set.

    `session` starts Spark; it is called only if more files wait than `ingest_waiting` ingests
    without Spark. `on_run` gets the result of each run. While maintenance holds the lease,
    runs are skipped. `log` is the file to which stderr is written, None if stderr is not a file; it
    is truncated at `LOG_BYTES`. Raises FleetError if a run fails.
    """
    while not control.stopping.is_set():
        began = time.monotonic()
        with contextlib.suppress(LeaseError):
            on_run(ingest_waiting(session, places, batch_files=batch_files, control=control))
        if log is not None:
            truncate_log(log)
        control.stopping.wait(max(MIN_PAUSE_S, began + every_s - time.monotonic()))


def truncate_log(log: Path, most: int = LOG_BYTES) -> None:
    """Truncate the file `log`, to which stderr is redirected, if it has more than `most` bytes.

    The last `most` bytes are copied to a file with the suffix `.1`. The log is not renamed, because
    the JVM appends to it too. It is accessed as stderr, because another process may have replaced
    the file at its path. Lines written between copying and truncating are lost. If copying fails,
    all lines are lost, and the log says so. Raises OSError if the log cannot be truncated.
    """
    if os.fstat(_STDERR).st_size <= most:
        return
    note = ""
    try:
        with Path(f"/proc/self/fd/{_STDERR}").open("rb") as written:
            written.seek(-most, os.SEEK_END)
            last = written.read(most)
        replace_file(log.with_name(f"{log.name}.1"), last)
    except OSError as error:
        note = f"earlier messages are lost: {os_error(error)}\n"
    os.ftruncate(_STDERR, 0)
    with contextlib.suppress(OSError):  # the disk may still be full
        os.write(_STDERR, note.encode())


@contextlib.contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Set `stopping` on SIGTERM and SIGINT within the block; the current batch is completed."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda *_: stopping.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
