"""Maintenance of the tables: compaction, retention, and removal of files that are not needed.

All are operations of Delta Lake, so a reader sees the tables before or after a commit. The table
`segments`, the ledger, stays complete, so that repeated segments are recognised forever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

from deltalake import CommitProperties, Transaction, WriterProperties

from sync.common.progress import Progress, no_progress
from sync.segment import SUFFIX
from sync.storage.locations import ARCHIVE, QUARANTINE, FleetStorage
from sync.storage.storage import File, Storage
from sync.tables.delta import (
    DAY,
    EVENTS,
    HOOKS,
    RETIRED,
    SEGMENTS,
    Day,
    FleetTables,
    Snapshot,
    delta_errors,
)

LEASE_WAIT_S: Final = 600.0
"""Seconds that maintenance waits for the lease: a continuous ingest frees it between two runs."""

TARGET: Final = 128 * 1024 * 1024
"""Bytes of a compacted file: Spark reads this much in one task (`maxPartitionBytes`)."""

COMMIT_EVERY: Final = timedelta(minutes=1)
"""Time after which a compaction commits the finished days: after an interruption, only the work of
this time is repeated."""

AHEAD: Final = timedelta(days=1)
"""Minimum time by which a future day is ahead: a clock in a wrong time zone is ahead by less."""

_WRITER: Final = WriterProperties(compression="ZSTD", compression_level=3)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Numbers of days whose event files changed, of files replaced, and of files written.

    Files of the table `segments` are included. `removed` files were replaced earlier (`compact`).
    """

    days: int = 0
    replaced: int = 0
    written: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days for which events, the archive and the quarantine are kept; None means forever."""

    events: int | None = None
    archive: int | None = None
    quarantine: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The data that was removed, or that would be removed without `dry_run`.

    `days` maps days to their numbers of events. `replaced` are the files that `vacuum` deletes.
    """

    days: dict[str, int]
    event_files: tuple[str, ...]
    archive: tuple[File, ...]
    quarantine: tuple[File, ...]
    replaced: tuple[str, ...]


@contextlib.contextmanager
def leased(tables: FleetTables, wait_s: float = LEASE_WAIT_S) -> Iterator[None]:
    """Hold the tables' lease within the block, and first complete an interrupted batch.

    Raises LeaseError if the lease is not free within `wait_s` seconds.
    """
    with tables.lease(wait_s):
        tables.recover()
        yield


def compact(
    tables: FleetTables,
    days: tuple[str, str],
    *,
    segments: bool = True,
    target: int = TARGET,
    wait_s: float = LEASE_WAIT_S,
    progress: Progress = no_progress,
) -> CompactionResult:
    """Merge small files of the chosen days and, if `segments`, of the whole table `segments`.

    `days` is an operator (`=` or `<=`) and a day (`YYYY-MM-DD`); `target` is the size of a merged
    file in bytes. Files that were replaced more than `KEPT_DAYS` days ago are deleted. No row
    changes.
    """
    progress("waiting for other commands", 0, 0)
    with leased(tables, wait_s):
        progress("merging files of events", 0, 0)
        done = [_optimize(tables, EVENTS, target, [(DAY, *days)])]
        if segments:
            progress("merging files of segments", 0, 0)
            done.append(_optimize(tables, SEGMENTS, target))
        progress("deleting replaced files", 0, 0)
        return CompactionResult(
            days=done[0]["partitionsOptimized"],
            replaced=sum(each["numFilesRemoved"] for each in done),
            written=sum(each["numFilesAdded"] for each in done),
            removed=len(vacuum(tables)),
        )


def _optimize(
    tables: FleetTables, name: str, target: int, days: list[tuple[str, str, str]] | None = None
) -> dict[str, Any]:
    table = tables.existing(name)
    with tables.journaled(name), delta_errors(tables.storage):
        return table.optimize.compact(
            partition_filters=days,
            target_size=target,
            min_commit_interval=COMMIT_EVERY,
            writer_properties=_WRITER,
            post_commithook_properties=HOOKS,
        )


def vacuum(tables: FleetTables, *, dry_run: bool = False) -> list[str]:
    """Delete files that no version of the last `KEPT_DAYS` days needs, and old commits.

    Returns the paths of the files below the tables' folder; a dry run deletes nothing. The caller
    must hold the lease.
    """
    removed = []
    for name in (EVENTS, SEGMENTS):
        table = tables.existing(name)
        with delta_errors(tables.storage):
            unused = table.vacuum(full=True)
        removed += [f"{name}/{path}" for path in unused]
        if dry_run:
            continue
        if unused:
            with tables.journaled(name), delta_errors(tables.storage):
                table.vacuum(dry_run=False, full=True, post_commithook_properties=HOOKS)
        tables.clean_log(name)
    return removed


def retain(
    places: FleetStorage,
    keep: RetentionPolicy,
    now: datetime,
    *,
    summarise: Callable[[Snapshot], object] = lambda snapshot: None,
    dry_run: bool = False,
    wait_s: float = LEASE_WAIT_S,
    progress: Progress = no_progress,
) -> RetentionResult:
    """Remove the data that is older than `keep` allows at `now`; with `dry_run`, only list it.

    `places` has the tables and the folders of segments. `summarise` is called before events are
    removed, so that the reports' summaries outlive them. It takes minutes if many days are not
    summarised yet, so it runs without the lease: the ingest goes on. A day that changes
    meanwhile is kept until the next time.
    """
    at = now.timestamp()
    tables = FleetTables(places.tables, places.segments)
    summarised: Mapping[str, Day] = {}
    if keep.events is not None and not dry_run:
        with leased(tables, wait_s):
            seen = tables.snapshot()
        summarised = old_days(seen, now, keep.events)
        if summarised:
            summarise(seen)
    with leased(tables, wait_s):
        snapshot = tables.snapshot()
        old = old_days(snapshot, now, keep.events) if keep.events is not None else {}
        if not dry_run:
            old = {day: found for day, found in old.items() if _is_same(found, summarised.get(day))}
        archive = _old(old_archive, places, at, keep.archive)
        quarantine = _old(old_quarantine, places, at, keep.quarantine)
        if not dry_run:
            if old:
                _delete_days(tables, snapshot, old)
            old_files = [file.path for file in (*archive, *quarantine)]
            for number in range(0, len(old_files), 1_000):
                progress("deleting files", number, len(old_files))
                places.segments.remove(old_files[number : number + 1_000])
        return RetentionResult(
            {day: found.rows for day, found in old.items()},
            tuple(path for found in old.values() for path in found.files),
            archive,
            quarantine,
            tuple(vacuum(tables, dry_run=dry_run)),
        )


def old_days(snapshot: Snapshot, now: datetime, keep: int) -> dict[str, Day]:
    """Choose the days of events that are older than `keep` days at `now`.

    A day is removed as a whole, and only if all its files were written more than `keep` days ago:
    late events, and events of a clock that is years behind, are kept as long as other events. Days
    in the future are judged by the age of their files only.
    """
    cutoff = now - timedelta(days=keep)
    first, last = cutoff.date().isoformat(), (now + AHEAD).date().isoformat()
    return {
        day: found
        for day, found in snapshot.days.items()
        if not first <= day <= last and found.written < cutoff
    }


def _is_same(day: Day, before: Day | None) -> bool:
    """Return whether a day has the same events as `before`; compaction does not change them."""
    return before is not None and (day.rows, day.retired) == (before.rows, before.retired)


def _delete_days(tables: FleetTables, snapshot: Snapshot, old: dict[str, Day]) -> None:
    """Remove days from `events` in one commit, which counts their rows as retired."""
    if snapshot.events is None:
        return
    counts = [
        Transaction(f"{RETIRED}/{day}", found.retired + found.rows) for day, found in old.items()
    ]
    with tables.journaled(EVENTS), delta_errors(tables.storage):
        snapshot.events.delete(
            f"{DAY} IN ({', '.join(repr(day) for day in old)})",
            commit_properties=CommitProperties(app_transactions=counts),
            post_commithook_properties=HOOKS,
        )


def old_archive(segments: Storage, now: float, keep: int) -> list[File]:
    """Choose the files of the archive that arrived more than `keep` days before `now`.

    The last segment of each lane of an epoch is left out, because the receiver derives the lane's
    high watermark from it. In a folder without segments, the last file is left out, too.
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
    """Return a key for sorting: the last number in a segment's name (else -1), and the path."""
    last = PurePosixPath(path).stem.rpartition("-")[2]
    return (int(last) if last.isdecimal() and last.isascii() else -1, path)


def _old(
    choose: Callable[..., list[File]], places: FleetStorage, at: float, keep: int | None
) -> tuple[File, ...]:
    return () if keep is None else tuple(choose(places.segments, at, keep))
