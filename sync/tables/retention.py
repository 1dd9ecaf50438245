"""Remove old days from the tables, and old segments from archive and quarantine.

Events are removed by a manifest that names the files and the number of rows of each day. The table
of segments, the ledger, stays complete, so that repeated segments are recognised forever. The last
segment of each lane stays in the archive, where the receiver looks up how far a lane is. Needs the
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

from sync.segment import SUFFIX
from sync.tables.locations import ARCHIVE, QUARANTINE
from sync.tables.manifest import UPKEEP, Commits, Manifest, live_files
from sync.tables.storage import File, Storage
from sync.tables.tables import DAY, read_event_files

AHEAD: Final = timedelta(days=1)
"""Time by which a gateway's day may precede the centre's, because of time zones."""


@dataclass(frozen=True, slots=True)
class OldDays:
    """Days (UTC, `YYYY-MM-DD`) that may be removed, each with its files."""

    days: Mapping[str, tuple[str, ...]]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of all days."""
        return tuple(path for paths in self.days.values() for path in paths)


def old_days(manifests: Sequence[Manifest], now: datetime, keep: int) -> OldDays:
    """Choose the days of events that are older than `keep` days at `now`.

    A day is removed as a whole, and only if all of it was written more than `keep` days ago: late
    events, and those of a clock that is years behind, are kept as long as others. Days in the
    future are judged only by when they were written.
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
    """Remove these days from the tables in one step; return the number of rows of each.

    `number` is the step's, taken before `old` was chosen. The files are removed later
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

    The last segment of each lane of an epoch is left out, and so is the last file of a folder if
    names are not those of segments.
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
    """Return the last number in a segment's name; -1 for other names."""
    last = PurePosixPath(path).stem.rpartition("-")[2]
    return (int(last) if last.isdecimal() and last.isascii() else -1, path)
