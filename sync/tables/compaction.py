"""Combine the many small files that batches write into few large ones; no row changes.

Each step writes new files to the folder of an attempt and commits one manifest that names these
files and those that they replace, so a reader sees either. Interrupted steps leave files that
nobody reads. Replaced files are removed later (`sync.tables.vacuum`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from sync.common.errors import FleetError
from sync.tables.locations import DATA
from sync.tables.manifest import UPKEEP, Commits, Manifest, live_files
from sync.tables.storage import Storage
from sync.tables.tables import Attempt, read_event_files, read_segment_files
from sync.tables.vacuum import require_files

TARGET: Final = 128 * 1024 * 1024
"""Bytes of a compacted file: Spark reads this much in one task (`maxPartitionBytes`)."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction: days of events that changed, files replaced, and files written.

    Files of `segments` are included.
    """

    days: int = 0
    replaced: int = 0
    written: int = 0


class Compaction:
    """A compaction of the tables in `tables` to files of about `target` bytes; needs the lease.

    `on_step` is called with `written` and `committed` in each step.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: Storage,
        commits: Commits,
        on_step: Callable[[str], None] = lambda step: None,
        target: int = TARGET,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._commits = commits
        self._on_step = on_step
        self._target = target
        self._number = 0

    def run(self, chosen: Callable[[str], bool], *, segments: bool = True) -> CompactionResult:
        """Compact the days (`YYYY-MM-DD`) that are `chosen`, and the table of segments.

        Raises FleetError if rows would change, OSError if the storage refuses.
        """
        # The number is taken first: if another driver commits meanwhile, this commit fails
        self._number = self._commits.next_upkeep()
        manifests = self._commits.manifests()
        sizes = require_files(self._tables, manifests)
        found = live_files(manifests)
        days = replaced = written = 0
        for day in filter(chosen, found.events):
            small = self._small(found.events[day], sizes)
            if small:
                days += 1
                replaced += len(small)
                written += self._events(day, small, sizes)
        small = self._small(self._filed(found.segments), sizes) if segments else []
        if small:
            replaced += len(small)
            written += self._segments(small)
        return CompactionResult(days, replaced, written)

    def _small(self, paths: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
        """Choose the files below half of the target, if there are several."""
        small = [path for path in paths if sizes[path] < self._target // 2]
        return small if len(small) > 1 else []

    def _filed(self, paths: Sequence[str]) -> list[str]:
        """Leave out files that an interrupted ingest still needs to archive segments."""
        unfiled = {path for each in self._commits.unarchived() for path in each.segments}
        return [path for path in paths if path not in unfiled]

    def _events(self, day: str, small: Sequence[str], sizes: Mapping[str, int]) -> int:
        files = math.ceil(sum(sizes[path] for path in small) / self._target)
        step = self._begin()
        rows = read_event_files(self._spark, self._tables, small)
        written = step.attempt.write_events(rows, files)
        if set(written) != {day}:
            msg = f"files of {day} contain events of {', '.join(written)}"
            raise FleetError(msg)
        _require_same(rows, read_event_files(self._spark, self._tables, written[day]))
        self._commit(step.manifest(small, events=written))
        return len(written[day])

    def _segments(self, small: Sequence[str]) -> int:
        step = self._begin()
        rows = read_segment_files(self._spark, self._tables, small)
        written = step.attempt.write_segments(rows)
        _require_same(rows, read_segment_files(self._spark, self._tables, written))
        self._commit(step.manifest(small, segments=written))
        return len(written)

    def _begin(self) -> _Step:
        return _Step(self._tables, self._number, secrets.token_hex(8))

    def _commit(self, manifest: Manifest) -> None:
        self._on_step("written")
        self._commits.commit(manifest)
        self._number += 1
        self._on_step("committed")


class _Step(NamedTuple):
    """A maintenance step: its number, and the name of its attempt."""

    tables: Storage
    number: int
    token: str

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.tables, f"{DATA}/{UPKEEP}/{self.number}/{self.token}")

    def manifest(
        self,
        replaces: Sequence[str],
        events: Mapping[str, tuple[str, ...]] | None = None,
        segments: tuple[str, ...] = (),
    ) -> Manifest:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Manifest(
            *(UPKEEP, self.number, self.token, now, segments, events or {}),
            kind="compacted",
            replaces=tuple(replaces),
        )


def _require_same(before: DataFrame, after: DataFrame) -> None:
    """Compare the numbers of rows, which the files' footers contain."""
    had, has = before.count(), after.count()
    if had != has:
        msg = f"compaction would change {had} rows to {has}; nothing was changed"
        raise FleetError(msg)
