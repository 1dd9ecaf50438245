"""Ingest what has landed into the tables, exactly once.

Three layers make it exactly once: the receiver creates each file exclusively; the stream's
checkpoint records what was read; and the ledger of segments, to which each batch is committed under
an application transaction, records what is in the tables, whatever the checkpoint says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, NoReturn

from pyarrow import dataset
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.archive import IngestedFile, archive_files, waiting_files
from sync.ingest.batch import BatchIngest
from sync.ingest.batch_files import BatchFiles, LocalFiles, StreamedFiles
from sync.tables import tables
from sync.tables.delta import EVENTS, SEGMENTS, Counts, FleetTables
from sync.tables.locations import ASIDE, CHECKPOINTS, LANDING, FleetStorage
from sync.tables.spark_session import BATCH_FILES, TASK_BYTES, file_batches, summarise_error
from sync.tables.storage import File, LocalStorage, Storage

LANDING_RETENTION: Final = "30d"
"""Age, relative to the newest file of the landing, up to which the stream reads a file. It limits
what the stream's checkpoint remembers; older files are noticed, and read by a new query."""

CLEANED_EVERY: Final = 100
"""Batches after which old commits are removed from the tables' logs, as maintenance does too."""

HERE: Final = "here"
"""The query id of batches that are ingested without Spark, each with the number of its batch."""

HERE_FILES: Final = BATCH_FILES
HERE_BYTES: Final = TASK_BYTES
"""Files, and bytes of files, up to which they are ingested without Spark: what one of its tasks
would take, in less time than Spark needs to start."""

START_TIMEOUT_S: Final = 60.0
"""Seconds until a started query must have reported its id, which it has before its first batch."""

STEPS: Final = ("began", "judged", "written", "events", "committed", "ended", "filed")
"""The steps of an ingest in order; all up to `committed` are taken once for each batch. At `events`
the batch is in the table `events`, and not yet in `segments`."""

_FILE: Final = "path string, modificationTime timestamp, length long, content binary"


class CheckpointError(FleetError):
    """The stream ended although no batch failed: its checkpoint is damaged."""


class _StoppedError(Exception):
    """The ingest was asked to stop; the next batch is not begun."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of an ingest: `batches` committed, and `reread` files that were missed."""

    batches: int
    counts: Counts
    reread: int = 0

    def __add__(self, other: IngestResult) -> IngestResult:
        return IngestResult(
            self.batches + other.batches, self.counts + other.counts, self.reread + other.reread
        )


@dataclass(frozen=True, slots=True)
class IngestControl:
    """Callbacks of an ingest, and the event that asks it to stop.

    `on_step` is called after each of `STEPS`, `on_batch` with the counts of each committed batch.
    An exception that they raise ends the ingest there, as a crash would. Once `stopping` is set, no
    further batch begins.
    """

    on_step: Callable[[str], None] = lambda step: None
    on_batch: Callable[[Counts], None] = lambda counts: None
    stopping: threading.Event = field(default_factory=threading.Event)


def run_ingest(
    spark: SparkSession,
    where: FleetFolder | FleetStorage,
    control: IngestControl | None = None,
    *,
    batch_files: int = BATCH_FILES,
) -> IngestResult:
    """Ingest all waiting files, `batch_files` at a time, and move them to the archive.

    Raises LeaseError if another ingest runs, FleetError if a batch fails or if files are still
    unread at the end.
    """
    places = where if isinstance(where, FleetStorage) else FleetStorage.of(where)
    control = control or IngestControl()
    fleet = FleetTables(places.tables, places.segments)
    with fleet.lease():
        fleet.recover()
        before = set(waiting_files(places.segments))
        first = _Run(places, fleet, control, batch_files)
        with contextlib.suppress(CheckpointError):
            first.stream(spark, _checkpoint(places.tables, new=False))
        missed = before & set(waiting_files(places.segments))
        if not missed or control.stopping.is_set():
            return first.result()
        again = _Run(places, fleet, control, batch_files)
        again.stream(spark, _checkpoint(places.tables, new=True))
        left = before & set(waiting_files(places.segments))
        if left and not control.stopping.is_set():
            msg = f"{len(left)} files in the landing were not read, among them {min(left)}"
            raise FleetError(msg)
        return first.result() + again.result(len(missed))


def ingest_waiting(
    session: Callable[[], SparkSession],
    places: FleetStorage,
    control: IngestControl | None = None,
    *,
    batch_files: int = BATCH_FILES,
) -> IngestResult:
    """Ingest all waiting files as `run_ingest` does, in this process if they are few.

    `session` starts Spark if it is needed.
    """
    control = control or IngestControl()
    if isinstance(places.segments, LocalStorage) and isinstance(places.tables, LocalStorage):
        fleet = FleetTables(places.tables, places.segments)
        with fleet.lease():
            fleet.recover()
            _move_committed(places.segments, fleet)
            _forget_planned(places.tables)
            waiting = waiting_files(places.segments)
            _require_text(waiting)
            size = sum(file.size for file in waiting.values())
            if len(waiting) <= HERE_FILES and size <= HERE_BYTES:
                run = _Run(places, fleet, control, batch_files)
                run.read_here(waiting.values())
                return run.result()
    return run_ingest(session(), places, control, batch_files=batch_files)


def _require_text(paths: Iterable[str]) -> None:
    """Raise FleetError for a name that is not UTF-8, which no table can hold."""
    for path in paths:
        if not path.isascii() and path != path.encode(errors="replace").decode():
            msg = f"the file name {path} is not UTF-8; rename the file, or remove it"
            raise FleetError(msg)


def _forget_planned(tables: Storage) -> None:
    """Remove a checkpoint whose stream has planned a batch and not ended it.

    The stream would look for the files of the batch where they no longer are.
    """
    for checkpoint in tables.folders(CHECKPOINTS):
        planned, ended = (
            {PurePosixPath(file.path).name for file in tables.files(folder)}
            for folder in (f"{CHECKPOINTS}/{checkpoint}/{name}" for name in ("offsets", "commits"))
        )
        if planned != ended:
            tables.remove(f"{CHECKPOINTS}/{checkpoint}")


def _move_committed(segments: Storage, fleet: FleetTables) -> None:
    """Move committed files out of the landing."""
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


def _checkpoint(storage: Storage, *, new: bool) -> str:
    """Return the URI of the newest stream checkpoint, or of a new one."""
    names = storage.folders(CHECKPOINTS)
    number = max((int(name) for name in names if name.isdecimal()), default=1)
    return storage.uri(f"{CHECKPOINTS}/{number + new:06d}")


class _Run:
    """Batch after batch, from a stream or in this process; then moving the files."""

    def __init__(
        self, places: FleetStorage, fleet: FleetTables, control: IngestControl, batch_files: int
    ) -> None:
        self._batch_files = batch_files
        self._segments = places.segments
        self._fleet = fleet
        self._control = control
        self._batches = BatchIngest(places.segments, fleet, control.on_step)
        self._failure: Exception | None = None
        self._committed: list[Counts] = []

    def result(self, reread: int = 0) -> IngestResult:
        return IngestResult(len(self._committed), sum(self._committed, Counts()), reread)

    def read_here(self, waiting: Iterable[File]) -> None:
        """Ingest the waiting files in this process. Raises FleetError if a batch fails."""
        files = sorted(waiting, key=lambda file: (file.modified, file.path))
        try:
            for at in range(0, len(files), self._batch_files):
                if self._control.stopping.is_set():
                    break
                chosen = LocalFiles(self._segments, files[at : at + self._batch_files])
                self._ingest(chosen, HERE, self._fleet.snapshot().batch + 1)
        except (FleetError, OSError) as error:
            _raise_as_fleet_error(error)
        self._finish()

    def stream(self, spark: SparkSession, checkpoint: str) -> None:
        """Ingest all waiting files by Spark. Raises FleetError if the stream fails."""
        started: Future[str] = Future()

        def ingest(files: DataFrame, number: int) -> None:
            try:
                query = started.result(timeout=START_TIMEOUT_S)
                if self._control.stopping.is_set():
                    raise _StoppedError
                if not self._fleet.is_committed(query, number):
                    self._ingest(StreamedFiles(spark, files), query, number)
            except Exception as error:
                self._failure = error
                raise

        stream = _files(spark, self._segments, self._batch_files).writeStream.foreachBatch(ingest)
        stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        try:
            with file_batches(spark, local=isinstance(self._segments, LocalStorage)):
                query = stream.start()
                started.set_result(str(query.id))
                try:
                    query.awaitTermination()
                finally:  # also if this is interrupted
                    if query.isActive:
                        query.stop()
        except PySparkException as error:
            if self._failure is None:
                raise CheckpointError(summarise_error(error)) from error
            if not isinstance(self._failure, _StoppedError):
                _raise_as_fleet_error(self._failure)
        self._finish()

    def _ingest(self, files: BatchFiles, query: str, number: int) -> None:
        counts = self._batches.ingest(files, query, number)
        self._committed.append(counts)
        self._control.on_batch(counts)

    def _finish(self) -> None:
        self._control.on_step("ended")
        _move_committed(self._segments, self._fleet)  # an ended stream needs none of the files
        self._control.on_step("filed")


def _raise_as_fleet_error(failure: Exception) -> NoReturn:
    if isinstance(failure, LeaseError):
        raise failure
    msg = f"the ingest failed: {summarise_error(failure)}"
    raise FleetError(msg) from failure


def _files(spark: SparkSession, segments: Storage, batch_files: int) -> DataFrame:
    """Stream the files of landing and aside, oldest first."""
    root = tables.escape_glob(segments.uri())
    source = spark.readStream.format("binaryFile").schema(_FILE)
    options = {
        "recursiveFileLookup": "true",
        "pathGlobFilter": "*.seg",
        "maxFileAge": LANDING_RETENTION,
        "maxFilesPerTrigger": str(batch_files),
    }
    return source.options(**options).load(f"{root}/{{{LANDING},{ASIDE}}}")
