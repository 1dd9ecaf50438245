"""Follows the ingest by its manifests: what each new batch brought is taken once.

Only batches tell something; compaction and retention move rows and tell nothing. When there is
nothing to go on from, or a file of a batch was replaced before it was read, all is learnt anew from
the last days in the tables. Changes no table, and needs no lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sync.alerts.state import DAY_MS, FleetState
from sync.alerts.tables_reader import read_events, read_segments
from sync.tables.manifest import UPKEEP, Commits, LiveFiles, Manifest, live_files
from sync.tables.storage import LocalStorage

HISTORY_DAYS: Final = 8
"""Days of the tables that are learnt from at first: today, and a week that says what is usual."""


class BatchReader:
    """Takes what is in the tables into a `Seen`."""

    def __init__(self, tables: LocalStorage, commits: Commits) -> None:
        self._tables = tables
        self._commits = commits

    def go_on(self, seen: FleetState | None, now: int) -> tuple[FleetState, bool]:
        """Take all batches that are new; gives what is known now, and whether that changed.

        Raises OSError and FleetError when tables or manifests cannot be read.
        """
        if seen is None:
            return self.learn(now), True
        try:
            return seen, self._take_new(seen)
        except FileNotFoundError:
            return self.learn(now), True

    def learn(self, now: int) -> FleetState:
        """Learn anew from the last `HISTORY_DAYS`."""
        found, followed = self._commits.fold(_all)
        seen = FleetState(followed=followed)
        since = now - now % DAY_MS - (HISTORY_DAYS - 1) * DAY_MS
        first = datetime.fromtimestamp(since / 1000, UTC).date().isoformat()
        read_segments(seen, map(self._path, found.segments), since)
        for day, files in found.events.items():
            if day >= first:
                read_events(seen, map(self._path, files))
        return seen

    def _take_new(self, seen: FleetState) -> bool:
        changed = False
        for manifest in self._commits.after(dict(seen.followed)):
            self._take(seen, manifest)
            seen.followed[manifest.query] = manifest.batch
            changed = True
        return changed

    def _take(self, seen: FleetState, manifest: Manifest) -> None:
        read_segments(seen, map(self._path, manifest.segments))
        for files in manifest.events.values():
            read_events(seen, map(self._path, files))

    def _path(self, name: str) -> Path:
        return Path(self._tables.uri(name))


def _all(manifests: Iterable[Manifest]) -> tuple[LiveFiles, dict[str, int]]:
    """Tell what is in the tables, and the last batch of each query; keeps no manifest."""
    followed: dict[str, int] = {}

    def noted() -> Iterator[Manifest]:
        for each in manifests:
            if each.query != UPKEEP:
                followed[each.query] = max(each.batch, followed.get(each.query, -1))
            yield each

    return live_files(noted()), followed
