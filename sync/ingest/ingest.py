"""Ingest landed segments into the tables, exactly once.

Two things make it exactly once: the receiver never replaces a landed file, and the ledger records
which segments are in the tables. Each batch is committed to events and ledger under one number (an
application transaction of Delta Lake), so that two processes cannot commit the same batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyarrow import dataset
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.common.progress import Progress, no_progress
from sync.ingest.archive import IngestedFile, archive_files, waiting_files
from sync.ingest.batch import Decode, ReadLedger, ingest_batch
from sync.ingest.decoding import decode_files
from sync.ingest.decoding_tasks import decode_in_tasks
from sync.ingest.ledger import related_claims
from sync.ingest.ledger_tasks import related_in_tasks
from sync.storage.locations import FleetStorage
from sync.storage.storage import Storage
from sync.tables.delta import EVENTS, SEGMENTS, Counts, FleetTables
from sync.tables.spark_session import BATCH_FILES, TASK_BYTES, summarise_error

CLEANED_EVERY: Final = 100
"""Number of batches after which old commits are removed from the tables' logs."""

HERE_FILES: Final = BATCH_FILES
HERE_BYTES: Final = TASK_BYTES
"""Maximum number of files (`HERE_FILES`), and of their bytes together (`HERE_BYTES`), that are
ingested without Spark. One Spark task would ingest as much; without Spark, this takes less time
than Spark's start."""

STEPS: Final = ("began", "judged", "written", "events", "committed", "ended", "filed")
"""The steps of an ingest in order; all up to `committed` are taken once for each batch. At `events`
the batch is in the table `events`, and not yet in `segments`. At `filed`, the files are moved."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of an ingest: the number of batches, and the counts of their files and events."""

    batches: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class IngestControl:
    """The callback of an ingest, and the event that asks it to stop.

    `on_step` is called after each of `STEPS`. An exception in it ends the ingest there, as a crash
    would. Once `stopping` is set, no further batch begins. `progress` shows how many files are
    done.
    """

    on_step: Callable[[str], None] = lambda step: None
    progress: Progress = no_progress
    stopping: threading.Event = field(default_factory=threading.Event)


def ingest_waiting(
    session: Callable[[], SparkSession],
    places: FleetStorage,
    control: IngestControl | None = None,
    *,
    batch_files: int = BATCH_FILES,
    here_files: int = HERE_FILES,
) -> IngestResult:
    """Ingest all waiting files, `batch_files` at a time, and move them out of the landing.

    `session` starts Spark. It is not called if at most `here_files` files wait, with at most
    `HERE_BYTES` in total: this process ingests these itself.
    Raises LeaseError if another ingest runs, FleetError if a batch fails.
    """
    control = control or IngestControl()
    segments, fleet = places.segments, FleetTables(places.tables, places.segments)
    committed: list[Counts] = []
    with fleet.lease():
        fleet.recover()
        _move_committed(segments, fleet)
        waiting = waiting_files(segments)
        _require_text(waiting)
        files = sorted(waiting.values(), key=lambda file: (file.modified, file.path))
        few = len(files) <= here_files and sum(file.size for file in files) <= HERE_BYTES
        decode: Decode = partial(decode_files, segments, places.tables)
        read_ledger: ReadLedger = related_claims
        if not few:
            decode = partial(decode_in_tasks, session(), segments, places.tables)
            read_ledger = partial(related_in_tasks, session())
        try:
            for at in range(0, len(files), batch_files):
                if control.stopping.is_set():
                    break
                control.progress("ingesting files", at, len(files))
                chosen = files[at : at + batch_files]
                counts = ingest_batch(chosen, decode, read_ledger, fleet, control.on_step)
                committed.append(counts)
        except LeaseError:
            raise
        except (FleetError, OSError, PySparkException, Py4JError) as error:
            raise FleetError(f"the ingest failed: {summarise_error(error)}") from error
        control.on_step("ended")
        _move_committed(segments, fleet)
        control.on_step("filed")
    return IngestResult(len(committed), sum(committed, Counts()))


def _require_text(paths: Iterable[str]) -> None:
    """Raise FleetError for a name that is not UTF-8, which no table can hold."""
    for path in paths:
        if not path.isascii() and path != path.encode(errors="replace").decode():
            raise FleetError(f"the file name {path} is not UTF-8; rename the file, or remove it")


def _move_committed(segments: Storage, fleet: FleetTables) -> None:
    """Move committed files to archive or quarantine; sometimes remove old commits from the logs."""
    unarchived = fleet.unarchived()
    if unarchived:
        snapshot = fleet.snapshot()
        recent = dataset.field("batch") > snapshot.batch - unarchived
        rows = snapshot.read_segments(IngestedFile._fields, recent)
        archive_files(segments, [IngestedFile(**row) for row in rows])
        fleet.mark_archived(snapshot.batch)
        if snapshot.batch // CLEANED_EVERY > (snapshot.batch - unarchived) // CLEANED_EVERY:
            for name in (EVENTS, SEGMENTS):
                fleet.clean_log(name)
