"""Maintenance of the tables: compaction, retention, and removing unused files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import SparkSession

from sync.common.errors import LeaseError
from sync.tables.compaction import Compaction, CompactionResult
from sync.tables.locations import FleetStorage
from sync.tables.manifest import Commits, Manifest
from sync.tables.retention import old_archive, old_days, old_quarantine, retire
from sync.tables.storage import File
from sync.tables.vacuum import (
    GRACE_S,
    UnusedFiles,
    find_unused,
    remove_unused,
    require_files,
)

LEASE_WAIT_S: Final = 600.0
"""Seconds that maintenance waits for the lease: a continuous ingest pauses between two runs."""

LEASE_POLL_S: Final = 0.5
"""Seconds between two attempts to take the lease: less than a continuous ingest's pause."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days for which events, the archive and the quarantine are kept; None means forever."""

    events: int | None = None
    archive: int | None = None
    quarantine: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The data that was removed, or would be: rows by day, if they were counted, and files."""

    days: dict[str, int]
    event_files: tuple[str, ...]
    archive: tuple[File, ...]
    quarantine: tuple[File, ...]
    rubbish: UnusedFiles


@contextlib.contextmanager
def leased(commits: Commits, wait_s: float = LEASE_WAIT_S) -> Iterator[None]:
    """Hold the lease as soon as it is free; raise LeaseError after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(commits.lease())
                break
            except LeaseError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(LEASE_POLL_S)
        yield


def compact(
    compaction: Compaction,
    places: FleetStorage,
    commits: Commits,
    chosen: Callable[[str], bool],
    *,
    segments: bool = True,
    wait_s: float = LEASE_WAIT_S,
) -> tuple[CompactionResult, UnusedFiles]:
    """Compact the days that are `chosen`, and remove files that were replaced long enough ago.

    Manifests are combined into a checkpoint, and files of earlier combined manifests are removed.
    """
    with leased(commits, wait_s):
        done = compaction.run(chosen, segments=segments)
        now = time.time()
        rubbish = find_unused(places.tables, commits.manifests(), now)
        remove_unused(places.tables, rubbish)
        commits.checkpoint()
        commits.remove_checkpointed(now - GRACE_S)
    return done, rubbish


def retain(
    spark: SparkSession,
    places: FleetStorage,
    commits: Commits,
    keep: RetentionPolicy,
    now: datetime,
    *,
    summarise: Callable[[Sequence[Manifest]], object] = lambda manifests: None,
    dry_run: bool = False,
    wait_s: float = LEASE_WAIT_S,
) -> RetentionResult:
    """Remove what is older than `keep` says at `now`; with `dry_run`, only report what that is.

    `summarise` is called before events are removed, so that the reports' summaries outlive them.
    Raises FileNotFoundError, before anything is changed, if a file of the tables is missing.
    """
    at = now.timestamp()
    with leased(commits, wait_s):
        number = commits.next_upkeep()
        manifests = commits.manifests()
        require_files(places.tables, manifests)
        old = old_days(manifests, now, keep.events) if keep.events is not None else None
        found = RetentionResult(
            {},
            old.files if old else (),
            _old(old_archive, places, at, keep.archive),
            _old(old_quarantine, places, at, keep.quarantine),
            find_unused(places.tables, manifests, at),
        )
        if old and old.days and dry_run:
            found.days.update(dict.fromkeys(old.days, 0))
        elif old and old.days:
            summarise(manifests)
            found.days.update(retire(spark, places.tables, commits, old, now, number))
        if not dry_run:
            for file in (*found.archive, *found.quarantine):
                places.segments.remove(file.path)
            remove_unused(places.tables, found.rubbish)
    return found


def _old(
    choose: Callable[..., list[File]], places: FleetStorage, at: float, keep: int | None
) -> tuple[File, ...]:
    return () if keep is None else tuple(choose(places.segments, at, keep))
