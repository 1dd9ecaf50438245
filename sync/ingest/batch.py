"""One batch of files into the tables: read, judge by the ledger, write, commit.

Its manifest, last, is what makes all of it count. Reads no stream and moves no file.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sync.common.errors import FleetError
from sync.ingest.archive import waiting_files
from sync.ingest.decoding import INSPECTED
from sync.ingest.decoding import decode_files as take
from sync.ingest.ledger import CLAIM_COLUMNS, Claim, Fate, Verdict, judge, related_claims
from sync.tables import tables
from sync.tables.locations import DATA, LANDING, FleetStorage
from sync.tables.manifest import Commits, Counts, Manifest
from sync.tables.part_files import PartFile

EMPTY_SHA256: Final = hashlib.sha256().hexdigest()


class BatchIngest:
    """Takes batches of files into the tables at `places`; all are of one run of an ingest.

    `on_step` is told each step once it is taken.
    """

    def __init__(
        self,
        spark: SparkSession,
        places: FleetStorage,
        commits: Commits,
        on_step: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._places = places
        self._commits = commits
        self._on_step = on_step
        self._empty_told = False
        self._segments: list[str] | None = None

    def take(self, files: DataFrame, query: str, number: int) -> Manifest:
        """Put the batch `number` of `query` into the tables. Raises FleetError when it is there."""
        self._step("began")
        # On disk: parts in the heap's cache would leave no room for those on their way
        taken = files.mapInArrow(take, tables.TAKEN).persist(StorageLevel.DISK_ONLY)
        try:
            found = self._judged(taken)
            self._step("judged")
            token = secrets.token_hex(8)
            attempt = tables.Attempt(self._places.tables, f"{DATA}/{query}/{number}/{token}")
            by_day = self._put_events(attempt, files, taken, found)
            self._step("events")
        finally:
            taken.unpersist()
        segments = attempt.put_segments([each.row for each in found])
        self._step("segments")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        manifest = Manifest(query, number, token, now, segments, by_day, _counts(found))
        self._commits.commit(manifest)
        self._ledger().extend(segments)
        self._on_step("committed")
        return manifest

    def _step(self, step: str) -> None:
        """Tell of a step; each renews the lease, so that a large batch does not outlast it."""
        self._places.tables.keep_lease()
        self._on_step(step)

    def _empty(self) -> list[dict[str, Any]]:
        """Give rows for files that hold nothing, which the stream leaves out.

        The first batch of a run gets them all: the landing is listed once, however many follow.
        """
        found = {} if self._empty_told else self._waiting_empty()
        self._empty_told = True
        nothing = dict.fromkeys(INSPECTED.names)
        return [
            nothing
            | {
                "path": self._places.segments.uri(path),
                "arrived": datetime.fromtimestamp(at, UTC),
                "size": 0,
                "sha256": EMPTY_SHA256,
                "reason": "short",
                "detail": "the file is empty",
            }
            for path, at in sorted(found.items())
        ]

    def _waiting_empty(self) -> Mapping[str, float]:
        found = waiting_files(self._places.segments)
        return {path: file.modified for path, file in found.items() if not file.size}

    def _judged(self, taken: DataFrame) -> list[_Found]:
        """Give each file its fate, those that landed first before those that landed later."""
        told = taken.where(F.col("path").isNotNull()).select(*INSPECTED.names).toArrow()
        rows = sorted([*told.to_pylist(), *self._empty()], key=itemgetter("arrived", "path"))
        paths = {row["path"]: self._places.segments.relative(row["path"]) for row in rows}
        claims = {
            row["path"]: Claim(*(row[name] for name in CLAIM_COLUMNS))
            for row in rows
            if row["reason"] is None and PurePosixPath(paths[row["path"]]).parts[0] == LANDING
        }
        verdicts = judge(claims.values(), self._known(list(claims.values())))
        fates = dict(zip(claims, verdicts, strict=True))
        return [_found(row, paths[row["path"]], fates.get(row["path"])) for row in rows]

    def _known(self, claims: Sequence[Claim]) -> list[Claim]:
        """Look up in the ledger what these claims can meet."""
        files = self._ledger()
        if not files or not claims:
            return []
        segments = tables.read_segment_files(self._spark, self._places.tables, files)
        ledger = segments.where(F.col("fate") == tables.ACCEPTED)
        schema = StructType([tables.SEGMENTS[name] for name in CLAIM_COLUMNS])
        offered = self._spark.createDataFrame(claims, schema)
        return [Claim(*row) for row in related_claims(ledger, offered).collect()]

    def _ledger(self) -> list[str]:
        """Name the ledger's files: read once, as nobody else commits while the lease is held."""
        if self._segments is None:
            self._segments = list(self._commits.segments())
        return self._segments

    def _put_events(
        self,
        attempt: tables.Attempt,
        files: DataFrame,
        taken: DataFrame,
        found: Sequence[_Found],
    ) -> dict[str, tuple[str, ...]]:
        """Put the events of what is accepted into the tables; gives the files of each day.

        The parts hold the events of all that could be read. Where the ledger refused one of these
        the accepted ones are read once more.
        """
        accepted = {each.uri: each.row["sha256"] for each in found if each.fate == tables.ACCEPTED}
        if not accepted:
            return {}
        if any(each.fate not in (tables.ACCEPTED, "bad") for each in found):
            paths = self._spark.createDataFrame([(uri,) for uri in accepted], "path string")
            chosen = files.join(F.broadcast(paths), on="path", how="left_semi")
            taken = chosen.mapInArrow(take, tables.TAKEN)
        read: dict[str, str] = {}
        by_day, events = attempt.put_events(self._each(taken, read))
        if not accepted.items() <= read.items() or events != sum(each.events for each in found):
            raise FleetError("a segment was changed after it was judged: nothing of it counts")
        return by_day

    def _each(self, taken: DataFrame, read: dict[str, str]) -> Iterator[PartFile]:
        """Give the parts, those of one task at a time in memory; each renews the lease.

        `read` gets the SHA-256 of each file that they were made of: what a task gives, it gives of
        one reading, also where a cached one was lost and it was run again.
        """
        pieces: list[bytes] = []
        for row in taken.select("path", "sha256", *PartFile._fields).toLocalIterator():
            if row["path"] is not None:
                read[row["path"]] = row["sha256"]
                continue
            pieces.append(row["content"])
            if row["events"] is not None:
                self._places.tables.keep_lease()
                yield PartFile(row["day"], row["events"], b"".join(pieces))
                pieces = []


class _Found(NamedTuple):
    """A file of a batch, judged: Spark's name for it, its fate, and its row of `SEGMENTS`."""

    uri: str
    fate: Fate
    events: int
    row: Mapping[str, Any]


def _found(row: Mapping[str, Any], path: str, verdict: Verdict | None) -> _Found:
    """Join what the decoder said with what the ledger or, of a body aside, the receiver said."""
    fate: Fate = "fork"
    reason, detail = "fork", "the receiver has other bytes under its name"
    if row["reason"] is not None:
        fate, reason, detail = "bad", row["reason"], row["detail"]
    elif verdict is not None:
        fate, reason, detail = verdict.fate, verdict.fate, verdict.detail
    told = fate in ("bad", "fork")
    events = row["last_seq"] - row["first_seq"] + 1 if fate == tables.ACCEPTED else 0
    why = {"reason": reason, "detail": detail} if told else {"reason": None, "detail": None}
    return _Found(row["path"], fate, events, {**row, **why, "path": path, "fate": fate})


def _counts(found: Sequence[_Found]) -> Counts:
    fates = [each.fate for each in found]
    return Counts(
        segments=fates.count("accepted"),
        events=sum(each.events for each in found),
        duplicates=fates.count("duplicate"),
        quarantined=fates.count("bad") + fates.count("fork"),
    )
