"""One batch of files into the tables: read, judge by the ledger, write, commit.

Its manifest, last, is what makes all of it count. Reads no stream and moves no file.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sync.central import tables
from sync.central.decoding import explode, inspect
from sync.central.filing import waiting
from sync.central.ledger import CLAIM, Claim, Fate, Verdict, judge, neighbours
from sync.central.manifest import Counts, Manifest
from sync.central.places import DATA, LANDING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from sync.central.manifest import Commits
    from sync.central.places import Places

EMPTY_SHA256: Final = hashlib.sha256().hexdigest()

_INSPECTED: Final = StructType([field for field in tables.SEGMENTS if field.name != "fate"])


class Batches:
    """Takes batches of files into the tables at `places`; all are of one run of an ingest.

    `on_step` is told each step once it is taken.
    """

    def __init__(
        self,
        spark: SparkSession,
        places: Places,
        commits: Commits,
        on_step: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._places = places
        self._commits = commits
        self._on_step = on_step
        self._empty_told = False
        self._manifests: list[Manifest] | None = None

    def take(self, files: DataFrame, query: str, number: int) -> Manifest:
        """Put the batch `number` of `query` into the tables. Raises FleetError when it is there."""
        self._step("began")
        inspected = files.mapInArrow(inspect, _INSPECTED).unionByName(self._empty()).persist()
        try:
            found = self._judged(inspected)
            self._step("judged")
            token = secrets.token_hex(8)
            attempt = tables.Attempt(self._places.tables, f"{DATA}/{query}/{number}/{token}")
            by_day = self._write_events(attempt, files, found)
            self._step("events")
            segments = attempt.write_segments(self._segments(inspected, found))
            self._step("segments")
        finally:
            inspected.unpersist()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        manifest = Manifest(query, number, token, now, segments, by_day, _counts(found))
        self._commits.commit(manifest)
        self._committed().append(manifest)
        self._on_step("committed")
        return manifest

    def _step(self, step: str) -> None:
        """Tell of a step; each renews the lease, so that a large batch does not outlast it."""
        self._places.tables.keep_lease()
        self._on_step(step)

    def _empty(self) -> DataFrame:
        """Give rows for files that hold nothing, which the stream leaves out.

        The first batch of a run gets them all: the landing is listed once, however many follow.
        """
        found = {} if self._empty_told else self._waiting_empty()
        self._empty_told = True
        rows = [
            (self._places.segments.uri(path), int(at * 1e6), EMPTY_SHA256)
            for path, at in sorted(found.items())
        ]
        names = "path string, arrived long, sha256 string"
        facts = {
            "arrived": F.timestamp_micros("arrived"),
            "size": F.lit(0),
            "reason": F.lit("short"),
            "detail": F.lit("the file is empty"),
        }
        empty = self._spark.createDataFrame(rows, names).withColumns(facts)
        return empty.select(
            *(
                (F.col(field.name) if field.name in empty.columns else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in _INSPECTED
            )
        )

    def _waiting_empty(self) -> Mapping[str, float]:
        found = waiting(self._places.segments)
        return {path: file.modified for path, file in found.items() if not file.size}

    def _judged(self, inspected: DataFrame) -> list[_Found]:
        """Give each file its fate, those that landed first before those that landed later."""
        arrived = F.unix_micros("arrived").alias("arrived")
        rows = inspected.select("path", arrived, "reason", "detail", *CLAIM).collect()
        paths = {row["path"]: self._places.segments.relative(row["path"]) for row in rows}
        rows.sort(key=lambda row: (row["arrived"], row["path"]))
        claims = {
            row["path"]: Claim(*(row[name] for name in CLAIM))
            for row in rows
            if row["reason"] is None and PurePosixPath(paths[row["path"]]).parts[0] == LANDING
        }
        verdicts = judge(claims.values(), self._known(list(claims.values())))
        fates = dict(zip(claims, verdicts, strict=True))
        return [_found(row, paths[row["path"]], fates.get(row["path"])) for row in rows]

    def _known(self, claims: Sequence[Claim]) -> list[Claim]:
        """Look up in the ledger what these claims can meet."""
        manifests = self._committed()
        if not manifests or not claims:
            return []
        segments = tables.read_segments(self._spark, self._places.tables, manifests)
        ledger = segments.where(F.col("fate") == tables.ACCEPTED)
        schema = StructType([tables.SEGMENTS[name] for name in CLAIM])
        offered = self._spark.createDataFrame(claims, schema)
        return [Claim(*row) for row in neighbours(ledger, offered).collect()]

    def _committed(self) -> list[Manifest]:
        """List all that is committed: read once, as nobody else commits while the lease is held."""
        if self._manifests is None:
            self._manifests = list(self._commits.manifests())
        return self._manifests

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


class _Found(NamedTuple):
    """A file of a batch, judged: Spark's name for it, its path below the fleet folder, its fate."""

    uri: str
    path: str
    fate: Fate
    reason: str | None
    detail: str | None
    events: int


def _found(row: Row, path: str, verdict: Verdict | None) -> _Found:
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
        row["path"], path, fate, reason if told else None, detail if told else None, events
    )


def _counts(found: Sequence[_Found]) -> Counts:
    fates = [each.fate for each in found]
    return Counts(
        segments=fates.count("accepted"),
        events=sum(each.events for each in found),
        duplicates=fates.count("duplicate"),
        quarantined=fates.count("bad") + fates.count("fork"),
    )
