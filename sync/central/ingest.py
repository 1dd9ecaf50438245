"""Takes what landed into the tables, exactly once, by a stream that ends when all was read.

Three layers make it exactly once: the landing creates exclusively; the stream's checkpoint says
what was read; and the ledger of segments with one manifest for each batch says what is in the
tables, whatever the checkpoint says. A reader sees nothing of a batch before its manifest. Starts
no Spark, and renders nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sync.central import tables
from sync.central.decoding import explode, inspect
from sync.central.errors import FleetError
from sync.central.filing import DATA, Read, clear_attempts, empty, file_away, waiting
from sync.central.folders import FleetFolder
from sync.central.ledger import CLAIM, Claim, Fate, Verdict, judge, neighbours
from sync.central.manifest import Counts, Manifest
from sync.central.session import BATCH_FILES, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sync.central.manifest import Commits

LANDING_RETENTION: Final = "30d"
"""How much older than the newest a file in the landing may be for the stream to see it. It bounds
what the checkpoint remembers; what is older is noticed, and read by a new query."""

START_TIMEOUT_S: Final = 60.0
"""Seconds until a query that was started has told its id: it knows it before its first batch."""

STEPS: Final = ("began", "judged", "events", "segments", "committed", "ended", "filed")
"""The steps of an ingest in order; all up to `committed` are taken once for each batch."""

_FILE: Final = "path string, modificationTime timestamp, length long, content binary"

_SCHEME: Final = "file:"

EMPTY_SHA256: Final = hashlib.sha256().hexdigest()

_INSPECTED: Final = StructType([field for field in tables.SEGMENTS if field.name != "fate"])


class CheckpointError(FleetError):
    """The stream ended by itself, no batch having failed: what its checkpoint says is spoiled."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What an ingest did: `batches` committed, `reread` files that the stream had passed over."""

    batches: int
    counts: Counts
    reread: int = 0


def run_ingest(
    spark: SparkSession,
    folder: FleetFolder,
    commits: Commits,
    on_step: Callable[[str], None] = lambda step: None,
    *,
    batch_files: int = BATCH_FILES,
) -> Summary:
    """Read what waits in the landing into the tables, `batch_files` at a time, and file it away.

    `on_step` is told each of `STEPS` once it is taken; what it raises ends the ingest there, as a
    crash would. Raises FleetError when another ingest is at work, when a batch fails, or when files
    are still unread at the end.
    """
    with commits.lease():
        folder = FleetFolder(folder.root.resolve())
        before = waiting(folder)
        first = _Run(spark, folder, commits, on_step, batch_files)
        with contextlib.suppress(CheckpointError):
            first.read(_checkpoint(folder, new=False))
        passed_over = before & waiting(folder)
        if not passed_over:
            return first.summary()
        again = _Run(spark, folder, commits, on_step, batch_files)
        again.read(_checkpoint(folder, new=True))
        _require_read(before & waiting(folder))
        return first.summary(again, len(passed_over))


def _checkpoint(folder: FleetFolder, *, new: bool) -> Path:
    """Name the newest of the stream's checkpoints, or one that is newer still."""
    root = folder.tables / "checkpoints"
    root.mkdir(mode=0o700, exist_ok=True)
    number = max((int(each.name) for each in root.iterdir() if each.name.isdecimal()), default=1)
    return root / f"{number + new:06d}"


def _require_read(left: set[str]) -> None:
    if left:
        msg = f"{len(left)} files in the landing were not read, among them {min(left)}"
        raise FleetError(msg)


class _Run:
    """One query from its start to its end: batch after batch, then the filing."""

    def __init__(
        self,
        spark: SparkSession,
        folder: FleetFolder,
        commits: Commits,
        on_step: Callable[[str], None],
        batch_files: int,
    ) -> None:
        self._spark = spark
        self._batch_files = batch_files
        self._folder = folder
        self._commits = commits
        self._on_step = on_step
        self._query: Future[str] = Future()
        self._failure: Exception | None = None
        self._committed: list[Counts] = []
        self._empties: set[str] = set()

    def summary(self, again: _Run | None = None, reread: int = 0) -> Summary:
        """Sum up this run, and the one that read what it had passed over."""
        done = self._committed + (again._committed if again else [])
        return Summary(len(done), sum(done, Counts()), reread)

    def read(self, checkpoint: Path) -> None:
        """Read all that waits. Raises FleetError for what ended the stream before its end."""
        files = _files(self._spark, self._folder, self._batch_files)
        stream = files.writeStream.foreachBatch(self._batch)
        stream = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        try:
            query = stream.start()
            self._query.set_result(str(query.id))
            self._await(query)
        except PySparkException as error:
            if self._failure is None:
                raise CheckpointError(reason_of(error)) from error
            msg = f"the ingest stopped: {reason_of(self._failure)}"
            raise FleetError(msg) from self._failure
        self._on_step("ended")
        self._file()

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
            if not self._commits.committed(query, number):
                self._take(files, query, number)
        except Exception as error:
            self._failure = error
            raise

    def _take(self, files: DataFrame, query: str, number: int) -> None:
        """Put one batch into the tables: its manifest, last, is what makes all of it count."""
        self._on_step("began")
        inspected = files.mapInArrow(inspect, _INSPECTED).unionByName(self._empty()).persist()
        try:
            found = self._judged(inspected)
            self._on_step("judged")
            folder = PurePosixPath(DATA, query, str(number), secrets.token_hex(8))
            attempt = tables.Attempt(self._folder.tables, folder)
            by_day = self._write_events(attempt, files, found)
            self._on_step("events")
            segments = attempt.write_segments(self._segments(inspected, found))
            self._on_step("segments")
        finally:
            inspected.unpersist()
        counts = _counts(found)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._commits.commit(Manifest(query, number, folder.name, now, segments, by_day, counts))
        self._committed.append(counts)
        self._on_step("committed")

    def _empty(self) -> DataFrame:
        """Give rows for files that hold nothing, which the stream leaves out; each in one batch."""
        new = empty(self._folder)
        rows = [
            (f"{_SCHEME}{self._folder.root / path}", int(at * 1e6), EMPTY_SHA256)
            for path, at in sorted(new.items())
            if path not in self._empties
        ]
        self._empties.update(new)
        names = "path string, arrived long, sha256 string"
        facts = {
            "arrived": F.timestamp_micros("arrived"),
            "size": F.lit(0),
            "reason": F.lit("short"),
            "detail": F.lit("the file is empty"),
        }
        found = self._spark.createDataFrame(rows, names).withColumns(facts)
        return found.select(
            *(
                (F.col(field.name) if field.name in found.columns else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in _INSPECTED
            )
        )

    def _judged(self, inspected: DataFrame) -> list[_Found]:
        """Give each file its fate, those that landed first before those that landed later."""
        arrived = F.unix_micros("arrived").alias("arrived")
        rows = inspected.select("path", arrived, "reason", "detail", *CLAIM).collect()
        root = PurePosixPath(self._folder.root)
        paths = {
            row["path"]: PurePosixPath(row["path"].removeprefix(_SCHEME)).relative_to(root)
            for row in rows
        }
        rows.sort(key=lambda row: (row["arrived"], row["path"]))
        claims = {
            row["path"]: Claim(*(row[name] for name in CLAIM))
            for row in rows
            if row["reason"] is None and paths[row["path"]].parts[0] == self._folder.landing.name
        }
        verdicts = judge(claims.values(), self._known(list(claims.values())))
        fates = dict(zip(claims, verdicts, strict=True))
        return [_found(row, paths[row["path"]], fates.get(row["path"])) for row in rows]

    def _known(self, claims: Sequence[Claim]) -> list[Claim]:
        """Look up in the ledger what these claims can meet."""
        manifests = self._commits.manifests()
        if not manifests or not claims:
            return []
        segments = tables.read_segments(self._spark, self._folder.tables, manifests)
        ledger = segments.where(F.col("fate") == tables.ACCEPTED)
        schema = StructType([tables.SEGMENTS[name] for name in CLAIM])
        offered = self._spark.createDataFrame(claims, schema)
        return [Claim(*row) for row in neighbours(ledger, offered).collect()]

    def _write_events(
        self, attempt: tables.Attempt, files: DataFrame, found: Sequence[_Found]
    ) -> dict[str, tuple[str, ...]]:
        accepted = [(each.uri,) for each in found if each.fate == tables.ACCEPTED]
        if not accepted:
            return {}
        chosen = F.broadcast(self._spark.createDataFrame(accepted, "path string"))
        taken = files.join(chosen, on="path", how="left_semi")
        return attempt.write_events(taken.mapInArrow(explode, tables.EVENTS))

    def _segments(self, inspected: DataFrame, found: Sequence[_Found]) -> DataFrame:
        judged = [(each.uri, each.path, each.fate, each.reason, each.detail) for each in found]
        names = "uri string, path string, fate string, reason string, detail string"
        fates = F.broadcast(self._spark.createDataFrame(judged, names))
        facts = inspected.withColumnRenamed("path", "uri").drop("reason", "detail")
        return facts.join(fates, on="uri", how="inner")

    def _file(self) -> None:
        """Move what is in manifests out of the landing: the ended stream needs none of it."""
        for manifest in self._commits.unfiled():
            rows = tables.read_segments(self._spark, self._folder.tables, [manifest])
            read = rows.select("path", "fate", "sha256").collect()
            file_away(self._folder, [Read(*row) for row in read])
            clear_attempts(self._folder, manifest)
            self._commits.filed(manifest)
        self._on_step("filed")


def _files(spark: SparkSession, folder: FleetFolder, batch_files: int) -> DataFrame:
    """Stream the files of landing and aside, oldest first."""
    root = tables.escape_glob(str(folder.root))
    source = spark.readStream.format("binaryFile").schema(_FILE)
    options = {
        "recursiveFileLookup": "true",
        "pathGlobFilter": "*.seg",
        "maxFileAge": LANDING_RETENTION,
        "maxFilesPerTrigger": str(batch_files),
    }
    return source.options(**options).load(f"{root}/{{{folder.landing.name},{folder.aside.name}}}")


class _Found(NamedTuple):
    """A file of a batch, judged: Spark's name for it, its path below the fleet folder, its fate."""

    uri: str
    path: str
    fate: Fate
    reason: str | None
    detail: str | None
    events: int


def _found(row: Row, path: PurePosixPath, verdict: Verdict | None) -> _Found:
    """Join what the decoder said with what the ledger or, of a body aside, the receiver said."""
    fate: Fate = "fork"
    reason, detail = "fork", "the receiver has other bytes under its name"
    if row["reason"] is not None:
        fate, reason, detail = "bad", row["reason"], row["detail"]
    elif verdict is not None:
        fate, reason, detail = verdict.fate, verdict.fate, verdict.detail
    told = fate in ("bad", "fork")
    events = row["last_seq"] - row["first_seq"] + 1 if fate == tables.ACCEPTED else 0
    return _Found(
        row["path"],
        path.as_posix(),
        fate,
        reason if told else None,
        detail if told else None,
        events,
    )


def _counts(found: Sequence[_Found]) -> Counts:
    fates = [each.fate for each in found]
    return Counts(
        segments=fates.count("accepted"),
        events=sum(each.events for each in found),
        duplicates=fates.count("duplicate"),
        quarantined=fates.count("bad") + fates.count("fork"),
    )
