"""Takes what landed into the tables, exactly once, by a stream that ends when all was read.

Three layers make it exactly once: the landing creates exclusively; the stream's checkpoint says
what was read; and the ledger of segments with one manifest for each batch says what is in the
tables, whatever the checkpoint says. A reader sees nothing of a batch before its manifest. Starts
no Spark, and renders nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.ingest.archive import (
    IngestedFile,
    archive_files,
    remove_other_attempts,
    waiting_files,
)
from sync.ingest.batch import BatchIngest
from sync.tables import tables
from sync.tables.locations import ASIDE, CHECKPOINTS, LANDING, FleetStorage
from sync.tables.manifest import Commits, Counts, Manifest
from sync.tables.spark_session import BATCH_FILES, file_batches, summarise_error
from sync.tables.storage import LocalStorage, Storage
from sync.tables.vacuum import GRACE_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


LANDING_RETENTION: Final = "30d"
"""How much older than the newest a file in the landing may be for the stream to see it. It bounds
what the checkpoint remembers; what is older is noticed, and read by a new query."""

GATHERED_AFTER: Final = 64
"""Manifests that are files of their own before they are gathered into one: whoever reads them all
reads hardly more, and the one, a few megabytes for a year, is written some times a day."""

SWEPT_AT_ONCE: Final = 1_000
"""Files of gathered manifests that an ingest removes before it goes on with what waits."""

START_TIMEOUT_S: Final = 60.0
"""Seconds until a query that was started has told its id: it knows it before its first batch."""

STEPS: Final = ("began", "judged", "events", "segments", "committed", "ended", "filed")
"""The steps of an ingest in order; all up to `committed` are taken once for each batch."""

_FILE: Final = "path string, modificationTime timestamp, length long, content binary"


class CheckpointError(FleetError):
    """The stream ended by itself, no batch having failed: what its checkpoint says is spoiled."""


class _Stopped(Exception):
    """The ingest was asked to stop; the batch that was next is not begun."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What an ingest did: `batches` committed, `reread` files that the stream had passed over."""

    batches: int
    counts: Counts
    reread: int = 0

    def __add__(self, other: IngestResult) -> IngestResult:
        return IngestResult(
            self.batches + other.batches, self.counts + other.counts, self.reread + other.reread
        )


@dataclass(frozen=True, slots=True)
class IngestControl:
    """Who is told of an ingest, and how it is asked to stop.

    `on_step` is told each of `STEPS` once it is taken; `on_batch` each manifest that was committed,
    after that. What they raise ends the ingest there, as a crash would. Once `stopping` is set no
    further batch begins.
    """

    on_step: Callable[[str], None] = lambda step: None
    on_batch: Callable[[Manifest], None] = lambda manifest: None
    stopping: threading.Event = field(default_factory=threading.Event)


def run_ingest(
    spark: SparkSession,
    where: FleetFolder | FleetStorage,
    commits: Commits,
    on_step: Callable[[str], None] | None = None,
    *,
    batch_files: int = BATCH_FILES,
    watch: IngestControl | None = None,
) -> IngestResult:
    """Read what waits in the landing into the tables, `batch_files` at a time, and file it away.

    `on_step` is `watch.on_step`, where nothing else of it is wanted. Raises LeaseError when another
    ingest is at work, FleetError when a batch fails, or when files are still unread at the end.
    """
    places = where if isinstance(where, FleetStorage) else FleetStorage.of(where)
    watch = watch or (IngestControl(on_step) if on_step else IngestControl())
    with commits.lease():
        before = set(waiting_files(places.segments))
        first = _Run(spark, places, commits, watch, batch_files)
        with contextlib.suppress(CheckpointError):
            first.read(_checkpoint(places.tables, new=False))
        passed_over = before & set(waiting_files(places.segments))
        if not passed_over or watch.stopping.is_set():
            return first.summary()
        again = _Run(spark, places, commits, watch, batch_files)
        again.read(_checkpoint(places.tables, new=True))
        if not watch.stopping.is_set():
            _require_read(before & set(waiting_files(places.segments)))
        return first.summary() + again.summary(len(passed_over))


def _checkpoint(storage: Storage, *, new: bool) -> str:
    """Name the newest of the stream's checkpoints, or one that is newer still."""
    names = storage.folders(CHECKPOINTS)
    number = max((int(name) for name in names if name.isdecimal()), default=1)
    return storage.uri(f"{CHECKPOINTS}/{number + new:06d}")


def _require_read(left: set[str]) -> None:
    if left:
        msg = f"{len(left)} files in the landing were not read, among them {min(left)}"
        raise FleetError(msg)


class _Run:
    """One query from its start to its end: batch after batch, then the filing."""

    def __init__(
        self,
        spark: SparkSession,
        places: FleetStorage,
        commits: Commits,
        watch: IngestControl,
        batch_files: int,
    ) -> None:
        self._spark = spark
        self._batch_files = batch_files
        self._places = places
        self._commits = commits
        self._watch = watch
        self._batches = BatchIngest(spark, places, commits, watch.on_step)
        self._query: Future[str] = Future()
        self._failure: Exception | None = None
        self._committed: list[Counts] = []

    def summary(self, reread: int = 0) -> IngestResult:
        """Sum up this run."""
        return IngestResult(len(self._committed), sum(self._committed, Counts()), reread)

    def read(self, checkpoint: str) -> None:
        """Read all that waits. Raises FleetError for what ended the stream before its end."""
        files = _files(self._spark, self._places.segments, self._batch_files)
        stream = files.writeStream.foreachBatch(self._batch)
        stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        here = isinstance(self._places.segments, LocalStorage)
        try:
            with file_batches(self._spark, here=here):
                query = stream.start()
                self._query.set_result(str(query.id))
                self._await(query)
        except PySparkException as error:
            self._tell(error)
        self._watch.on_step("ended")
        self._file()

    def _tell(self, error: PySparkException) -> None:
        """Raise why the stream ended before its end, unless it was asked to."""
        if self._failure is None:
            raise CheckpointError(summarise_error(error)) from error
        if not isinstance(self._failure, _Stopped):
            msg = f"the ingest stopped: {summarise_error(self._failure)}"
            raise FleetError(msg) from self._failure

    def _await(self, query: StreamingQuery) -> None:
        """Wait for the end, which what landed bounds; leave no query behind when interrupted."""
        try:
            query.awaitTermination()
        finally:
            if query.isActive:
                query.stop()

    def _batch(self, files: DataFrame, number: int) -> None:
        try:
            query = self._query.result(timeout=START_TIMEOUT_S)
            if self._watch.stopping.is_set():
                raise _Stopped
            if not self._commits.committed(query, number):
                manifest = self._batches.take(files, query, number)
                self._committed.append(manifest.counts)
                self._watch.on_batch(manifest)
        except Exception as error:
            self._failure = error
            raise

    def _file(self) -> None:
        """Move what is in manifests out of the landing: the ended stream needs none of it."""
        for manifest in self._commits.unarchived():
            rows = tables.read_segment_files(self._spark, self._places.tables, manifest.segments)
            read = rows.select("path", "fate", "sha256").collect()
            self._places.tables.keep_lease()
            archive_files(self._places.segments, [IngestedFile(*row) for row in read])
            remove_other_attempts(self._places.tables, manifest)
            self._commits.mark_archived(manifest)
        self._watch.on_step("filed")
        if self._commits.checkpoint(GATHERED_AFTER):
            self._commits.remove_checkpointed(time.time() - GRACE_S, SWEPT_AT_ONCE)


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
