"""Takes old days out of the tables, and old segments out of archive and quarantine.

Events go by a manifest that says which files went and how many rows of each day; the table of
segments, the ledger, stays whole: what comes again is known as a duplicate for good. The last
segment of each lane stays in the archive, where the receiver sees how far a lane is. Needs the
lease.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sync.common.fleet_folder import SUFFIX
from sync.tables.locations import ARCHIVE, QUARANTINE
from sync.tables.manifest import UPKEEP, Commits, Manifest, live_files
from sync.tables.storage import File, Storage
from sync.tables.tables import DAY, read_event_files

AHEAD: Final = timedelta(days=1)
"""How far ahead of the centre's a gateway's day may be and still be of the present: time zones."""


@dataclass(frozen=True, slots=True)
class OldDays:
    """Days (UTC, `YYYY-MM-DD`) that may go, each with its files."""

    days: Mapping[str, tuple[str, ...]]

    @property
    def files(self) -> tuple[str, ...]:
        """All the files."""
        return tuple(path for paths in self.days.values() for path in paths)


def old_days(manifests: Sequence[Manifest], now: datetime, keep: int) -> OldDays:
    """Choose the days of events that are older than `keep` days at `now`.

    A day goes as a whole, and only if all of it was written more than `keep` days ago: what came
    late, or from a gateway whose clock is years behind, is kept as long as the rest. What is dated
    in the future goes by when it was written alone.
    """
    cutoff = now - timedelta(days=keep)
    kept = (cutoff.date().isoformat(), (now + AHEAD).date().isoformat())
    written = {
        path: datetime.fromisoformat(each.committed_at)
        for each in manifests
        for paths in each.events.values()
        for path in paths
    }
    return OldDays(
        {
            day: paths
            for day, paths in live_files(manifests).events.items()
            if not kept[0] <= day <= kept[1] and all(written[path] < cutoff for path in paths)
        }
    )


def retire(
    spark: SparkSession, tables: Storage, commits: Commits, old: OldDays, now: datetime, number: int
) -> dict[str, int]:
    """Take these days out of the tables at once; gives the number of rows of each.

    `number` is the step's, taken before `old` was looked for. The files go later
    (`sync.tables.vacuum`).
    """
    if not old.days:
        return {}
    rows = read_event_files(spark, tables, old.files)
    counted = rows.groupBy(F.col(DAY.name).cast("string").alias("day")).count().collect()
    gone = {row["day"]: row["count"] for row in counted}
    commits.commit(
        Manifest(
            *(UPKEEP, number, secrets.token_hex(8)),
            now.astimezone(UTC).isoformat(timespec="milliseconds"),
            (),
            kind="retired",
            replaces=old.files,
            retired=gone,
        )
    )
    return gone


def old_archive(segments: Storage, now: float, keep: int) -> list[File]:
    """Choose the files of the archive that arrived more than `keep` days before `now`.

    The last segment of each lane of an epoch is not among them, nor, without a segment's name, the
    last file of a folder.
    """
    lanes: dict[str, list[File]] = {}
    for file in segments.files(ARCHIVE, SUFFIX):
        lanes.setdefault(str(PurePosixPath(file.path).parent), []).append(file)
    old = []
    for files in lanes.values():
        files.sort(key=lambda file: _last(file.path))
        old += [file for file in files[:-1] if now - file.modified > keep * 86_400]
    return old


def old_quarantine(segments: Storage, now: float, keep: int) -> list[File]:
    """Choose the files of the quarantine that arrived more than `keep` days before `now`."""
    files = segments.files(QUARANTINE, SUFFIX)
    return [file for file in files if now - file.modified > keep * 86_400]


def _last(path: str) -> tuple[int, str]:
    """Give the last number that a segment's name tells; -1 for another name."""
    last = PurePosixPath(path).stem.rpartition("-")[2]
    return (int(last) if last.isdecimal() and last.isascii() else -1, path)
