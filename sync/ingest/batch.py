"""Ingest one batch of files: decode, check against the ledger, write, commit.

A reader sees nothing of a batch before its manifest is written, which is the last step.
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
from sync.ingest.decoding import decode_files
from sync.ingest.ledger import CLAIM_COLUMNS, Claim, Fate, Verdict, judge, related_claims
from sync.tables import arrow_schemas, tables
from sync.tables.locations import DATA, LANDING, FleetStorage
from sync.tables.manifest import Commits, Counts, Manifest
from sync.tables.part_files import PartFile

EMPTY_SHA256: Final = hashlib.sha256().hexdigest()


class BatchIngest:
    """Ingests the batches of one run into the tables of `places`.

    `on_step` is called after each step.
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
        self._empty_files_reported = False
        self._segment_files: list[str] | None = None

    def ingest(self, files: DataFrame, query: str, number: int) -> Manifest:
        """Ingest the batch `number` of `query`. Raises FleetError if it is committed already."""
        self._step("began")
        # On disk, because cached part files would leave no heap for those on their way
        decoded = files.mapInArrow(decode_files, tables.DECODED).persist(StorageLevel.DISK_ONLY)
        try:
            judged = self._judge(decoded)
            self._step("judged")
            token = secrets.token_hex(8)
            attempt = tables.Attempt(self._places.tables, f"{DATA}/{query}/{number}/{token}")
            by_day = self._write_events(attempt, files, decoded, judged)
            self._step("events")
        finally:
            decoded.unpersist()
        segments = attempt.put_segments([each.row for each in judged])
        self._step("segments")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        manifest = Manifest(query, number, token, now, segments, by_day, _counts(judged))
        self._commits.commit(manifest)
        self._ledger_files().extend(segments)
        self._on_step("committed")
        return manifest

    def _step(self, step: str) -> None:
        """Report a step, and renew the lease, so that a large batch does not outlast it."""
        self._places.tables.keep_lease()
        self._on_step(step)

    def _empty_files(self) -> list[dict[str, Any]]:
        """Return rows for empty files, which the stream leaves out, once for each run.

        The first batch reports them all, so that the landing is listed only once.
        """
        found = {} if self._empty_files_reported else self._waiting_empty_files()
        self._empty_files_reported = True
        nothing = dict.fromkeys(arrow_schemas.FILES.names)
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

    def _waiting_empty_files(self) -> Mapping[str, float]:
        found = waiting_files(self._places.segments)
        return {path: file.modified for path, file in found.items() if not file.size}

    def _judge(self, decoded: DataFrame) -> list[_JudgedFile]:
        """Decide the fate of each file, in the order of arrival."""
        names = arrow_schemas.FILES.names
        files = decoded.where(F.col("path").isNotNull()).select(*names).toArrow()
        rows = sorted([*files.to_pylist(), *self._empty_files()], key=itemgetter("arrived", "path"))
        paths = {row["path"]: self._places.segments.relative(row["path"]) for row in rows}
        claims = {
            row["path"]: Claim(*(row[name] for name in CLAIM_COLUMNS))
            for row in rows
            if row["reason"] is None and PurePosixPath(paths[row["path"]]).parts[0] == LANDING
        }
        verdicts = judge(claims.values(), self._known_claims(list(claims.values())))
        by_path = dict(zip(claims, verdicts, strict=True))
        return [_judged(row, paths[row["path"]], by_path.get(row["path"])) for row in rows]

    def _known_claims(self, claims: Sequence[Claim]) -> list[Claim]:
        """Look up the accepted claims that these claims may contradict or repeat."""
        files = self._ledger_files()
        if not files or not claims:
            return []
        segments = tables.read_segment_files(self._spark, self._places.tables, files)
        ledger = segments.where(F.col("fate") == tables.ACCEPTED)
        schema = StructType([tables.SEGMENTS[name] for name in CLAIM_COLUMNS])
        offered = self._spark.createDataFrame(claims, schema)
        return [Claim(*row) for row in related_claims(ledger, offered).collect()]

    def _ledger_files(self) -> list[str]:
        """Return the ledger's files; they are listed once, because the lease excludes others."""
        if self._segment_files is None:
            self._segment_files = list(self._commits.segments())
        return self._segment_files

    def _write_events(
        self,
        attempt: tables.Attempt,
        files: DataFrame,
        decoded: DataFrame,
        judged: Sequence[_JudgedFile],
    ) -> dict[str, tuple[str, ...]]:
        """Write the events of accepted files; return the files of each day.

        The part files contain the events of all files that could be read. If the ledger refused one
        of these, the accepted files are decoded once more.
        """
        accepted = {each.uri: each.row["sha256"] for each in judged if each.fate == tables.ACCEPTED}
        if not accepted:
            return {}
        if any(each.fate not in (tables.ACCEPTED, "bad") for each in judged):
            paths = self._spark.createDataFrame([(uri,) for uri in accepted], "path string")
            chosen = files.join(F.broadcast(paths), on="path", how="left_semi")
            decoded = chosen.mapInArrow(decode_files, tables.DECODED)
        read: dict[str, str] = {}
        by_day, events = attempt.put_events(self._part_files(decoded, read))
        if not accepted.items() <= read.items() or events != sum(each.events for each in judged):
            raise FleetError("a segment changed while it was ingested; nothing was committed")
        return by_day

    def _part_files(self, decoded: DataFrame, read: dict[str, str]) -> Iterator[PartFile]:
        """Yield the part files, those of one task at a time in memory; each renews the lease.

        Fills `read` with the SHA-256 of each file that they were made from. All rows of a task are
        of one reading, even if a cached result was lost and the task ran again.
        """
        pieces: list[bytes] = []
        for row in decoded.select("path", "sha256", *PartFile._fields).toLocalIterator():
            if row["path"] is not None:
                read[row["path"]] = row["sha256"]
                continue
            pieces.append(row["content"])
            if row["events"] is not None:
                self._places.tables.keep_lease()
                yield PartFile(row["day"], row["events"], b"".join(pieces))
                pieces = []


class _JudgedFile(NamedTuple):
    """A file of a batch: Spark's name for it, its fate, its events, its row of `SEGMENTS`."""

    uri: str
    fate: Fate
    events: int
    row: Mapping[str, Any]


def _judged(row: Mapping[str, Any], path: str, verdict: Verdict | None) -> _JudgedFile:
    """Combine a decoded row with the verdict; files that were set aside have none."""
    fate: Fate = "fork"
    reason, detail = "fork", "the receiver has a different file with this name"
    if row["reason"] is not None:
        fate, reason, detail = "bad", row["reason"], row["detail"]
    elif verdict is not None:
        fate, reason, detail = verdict.fate, verdict.fate, verdict.detail
    refused = fate in ("bad", "fork")
    events = row["last_seq"] - row["first_seq"] + 1 if fate == tables.ACCEPTED else 0
    why = {"reason": reason, "detail": detail} if refused else {"reason": None, "detail": None}
    return _JudgedFile(row["path"], fate, events, {**row, **why, "path": path, "fate": fate})


def _counts(judged: Sequence[_JudgedFile]) -> Counts:
    fates = [each.fate for each in judged]
    return Counts(
        segments=fates.count("accepted"),
        events=sum(each.events for each in judged),
        duplicates=fates.count("duplicate"),
        quarantined=fates.count("bad") + fates.count("fork"),
    )
