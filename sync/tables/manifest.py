"""The content of the tables: one manifest for each batch, committed as a whole or not at all.

A file that no manifest names is not part of the tables, nor is one that a later manifest replaces;
`live_files` returns the others. `Commits` keeps the manifests in a `Storage`: the latest each in a
file, all earlier ones in a checkpoint (`sync.tables.checkpoint`).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeVar

from sync.common.errors import FleetError, LeaseError
from sync.tables.checkpoint import (
    FILED,
    GATHERED,
    MANIFEST,
    MANIFESTS,
    LooseManifests,
    ManifestCheckpoints,
    key_of,
    list_loose,
    path_of,
    remove_checkpointed_files,
    segments_left,
)
from sync.tables.storage import LocalStorage, Storage

VERSION: Final = 1
"""Version of a manifest's layout; newer versions are refused."""

UPKEEP: Final = "upkeep"
"""The query id under which compaction and retention commit. Their numbers have no gaps."""

LOOKS: Final = 4
"""Attempts to read manifests that are combined meanwhile, which happens once in many batches."""

_T = TypeVar("_T")
_INVALID: Final = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the files that a batch read, by fate, and of the events that it wrote."""

    segments: int = 0
    events: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.segments + other.segments,
            self.events + other.events,
            self.duplicates + other.duplicates,
            self.quarantined + other.quarantined,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a batch added to the tables, or that a maintenance step changed.

    `events` maps a day (UTC, `YYYY-MM-DD`) to files, `segments` lists files, each by its path
    relative to the tables' folder. `committed_at` is ISO 8601 in UTC. `replaces` lists files that
    are no longer part of the tables. `retired` maps a day to the number of rows that retention
    removed.
    """

    query: str
    batch: int
    attempt: str
    committed_at: str
    segments: tuple[str, ...]
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counts: Counts = Counts()
    kind: Literal["batch", "compacted", "retired"] = "batch"
    replaces: tuple[str, ...] = ()
    retired: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of the tables: of events by day, in the order of days, and of segments."""

    events: Mapping[str, tuple[str, ...]]
    segments: tuple[str, ...]


def live_files(manifests: Iterable[Manifest]) -> LiveFiles:
    """Return the files that these manifests leave in the tables."""
    gone: set[str] = set()
    segments: list[str] = []
    days: dict[str, list[str]] = {}
    for each in manifests:
        gone.update(each.replaces)
        segments += each.segments
        for day, paths in each.events.items():
            days.setdefault(day, []).extend(paths)
    left = {day: tuple(path for path in days[day] if path not in gone) for day in sorted(days)}
    return LiveFiles(
        {day: paths for day, paths in left.items() if paths},
        tuple(path for path in segments if path not in gone),
    )


def retired(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Count the rows of each day (`YYYY-MM-DD`) that retention removed from the tables."""
    rows: dict[str, int] = {}
    for each in manifests:
        for day, number in each.retired.items():
            rows[day] = rows.get(day, 0) + number
    return rows


class Commits:
    """The manifests in a storage: `manifests/QUERY/BATCH.json`, at most one for each (query,
    batch).

    A manifest appears as a whole, and once; the files that it names are made durable before that.
    Once it is in a checkpoint, the checkpoint is authoritative, and its own file is removed later.
    So a reader that finds a file missing, or a newer checkpoint at the end than at the beginning,
    reads again.
    """

    def __init__(self, tables: Storage) -> None:
        self._tables = tables
        self._checkpoints = ManifestCheckpoints(tables)

    def lease(self) -> AbstractContextManager[None]:
        """Hold the lease within the block; raises LeaseError if another driver holds it."""
        return self._tables.lease()

    def committed(self, query: str, batch: int) -> bool:
        """Return whether this batch of this query is in the tables."""
        if self._tables.exists(path_of(query, batch, MANIFEST)):
            return True
        return self._with_stable_checkpoint(
            lambda number: (query, batch) in self._checkpoints.keys(number)
        )

    def commit(self, manifest: Manifest) -> None:
        """Add the batch to the tables, durably and atomically, with the files that it names.

        Raises FleetError if it was added already or the lease is lost, OSError if a file is missing
        or damaged; nothing is changed then.
        """
        self._tables.make_durable([*manifest.segments, *itertools.chain(*manifest.events.values())])
        self._tables.keep_lease()
        self._require_new(manifest)
        try:
            path = path_of(manifest.query, manifest.batch, MANIFEST)
            self._tables.create(path, encode(manifest))
        except FileExistsError:
            raise _committed_already(manifest) from None
        # if this driver was suspended, another may have committed and combined this batch
        self._require_new(manifest)

    def manifests(self) -> Sequence[Manifest]:
        """Return all manifests, in the order of (query, batch).

        Raises FleetError if one cannot be read.
        """
        return self.fold(lambda found: sorted(found, key=lambda each: (each.query, each.batch)))

    def fold(self, take: Callable[[Iterator[Manifest]], _T]) -> _T:
        """Return what `take` makes of an iterator of all manifests, in any order.

        It is called again if manifests were combined meanwhile. Raises as `manifests` does.
        """
        return self._with_stable_checkpoint(lambda number: take(self._all(number)))

    def segments(self) -> Sequence[str]:
        """Return the files of the table `segments`; raises as `manifests` does.

        A checkpoint is read only if it is new.
        """
        return self._with_stable_checkpoint(self._segments)

    def after(self, followed: Mapping[str, int]) -> Iterator[Manifest]:
        """Yield the batches after those in `followed`, by query, in order within each query.

        Maintenance steps are left out. Raises as `manifests` does; OSError if a batch is lost.
        """
        # in this order, because what is no longer listed is in a checkpoint
        queries = {*self._tables.folders(MANIFESTS)}
        queries |= {*self._with_stable_checkpoint(self._checkpoints.keys).runs}
        for query in sorted(queries - {UPKEEP, GATHERED}):
            number = followed.get(query, -1) + 1
            waiting: dict[int, Manifest] = {}
            while self.committed(query, number):
                waiting = waiting if number in waiting else self._from(query, number)
                yield waiting.pop(number)
                number += 1

    def unarchived(self) -> Sequence[Manifest]:
        """List the batches whose segments were not all moved out of the landing yet."""
        return self._with_stable_checkpoint(
            lambda at: [*map(self._read, self._loose(at).unarchived(UPKEEP))]
        )

    def mark_archived(self, manifest: Manifest) -> None:
        """Record that the segments of this manifest have left the landing."""
        try:
            self._tables.create(path_of(manifest.query, manifest.batch, FILED), b"")
        except FileExistsError:
            return

    def next_upkeep(self) -> int:
        """Return the number of the next maintenance step. Needs the lease."""
        return self._with_stable_checkpoint(self._last_upkeep) + 1

    def checkpoint(self, least: int = 1) -> int:
        """Combine all manifests into one file if at least `least` are in none; return how many
        were.

        Does nothing while a batch is not archived. Needs the lease. Raises FleetError if it is lost
        or a manifest cannot be read, OSError if the storage refuses.
        """
        number = self._checkpoints.latest()
        loose = self._loose(number)
        if len(loose.manifests) < max(least, 1) or loose.unarchived(UPKEEP):
            return 0
        added = [asdict(self._read(path)) for path in loose.manifests]
        self._tables.keep_lease()
        try:
            self._checkpoints.add(number, added)
        except FileExistsError:
            msg = "another ingest has combined the manifests, so it has taken the lease"
            raise LeaseError(msg) from None
        return len(added)

    def remove_checkpointed(self, before: float, most: int | None = None) -> int:
        """Remove files of manifests in checkpoints of `before` (seconds since 1970); return their
        number.

        Removes at most `most`, if given. Needs the lease; may be interrupted anywhere.
        """
        return remove_checkpointed_files(self._tables, self._checkpoints, before, most)

    def _with_stable_checkpoint(self, look: Callable[[int], _T]) -> _T:
        """Return what `look` returns for the valid checkpoint, if that is the same afterwards.

        Manifests that it lacks are then in files of their own, because these are removed only after
        a newer checkpoint has them.
        """
        missing: FileNotFoundError | None = None
        for _ in range(LOOKS):
            number = self._checkpoints.latest()
            try:
                found = look(number)
            except FileNotFoundError as error:
                missing = error
                continue
            if self._checkpoints.latest() == number:
                return found
        if missing is not None:
            raise missing
        msg = f"manifests in {self._tables.uri(MANIFESTS)} keep changing; try again"
        raise FleetError(msg)

    def _loose(self, number: int) -> LooseManifests:
        return list_loose(self._tables, self._checkpoints.keys(number), UPKEEP)

    def _all(self, number: int) -> Iterator[Manifest]:
        yield from map(self._made, self._checkpoints.documents(number))
        yield from map(self._read, self._loose(number).manifests)

    def _segments(self, number: int) -> list[str]:
        before, gone_before = self._checkpoints.segments(number)
        loose = (asdict(self._read(path)) for path in self._loose(number).manifests)
        new, gone = segments_left(loose)
        gone |= gone_before
        return [path for path in (*before, *new) if path not in gone]

    def _from(self, query: str, first: int) -> dict[int, Manifest]:
        """Return a committed batch; if it is in a checkpoint, also the later ones of its query."""

        def look(number: int) -> dict[int, Manifest]:
            if (query, first) not in self._checkpoints.keys(number):
                return {first: self._read(PurePosixPath(path_of(query, first, MANIFEST)))}
            found = self._checkpoints.documents(number)
            chosen = (each for each in found if each["query"] == query and each["batch"] >= first)
            return {each["batch"]: self._made(each) for each in chosen}

        return self._with_stable_checkpoint(look)

    def _last_upkeep(self, number: int) -> int:
        loose = [path for path in self._loose(number).manifests if path.parent.name == UPKEEP]
        gathered = self._checkpoints.keys(number).last(UPKEEP)
        return max([gathered, *(key_of(path)[1] for path in loose)])

    def _require_new(self, manifest: Manifest) -> None:
        """Raise FleetError if a checkpoint has another attempt at the manifest's batch."""
        query, batch = manifest.query, manifest.batch
        gathered = self._with_stable_checkpoint(
            lambda at: (query, batch) in self._checkpoints.keys(at)
        )
        if gathered and self._from(query, batch)[batch].attempt != manifest.attempt:
            raise _committed_already(manifest)

    def _read(self, path: PurePosixPath) -> Manifest:
        name = path.as_posix()
        try:
            document = json.loads(self._tables.read(name))
            if document.pop("version") != VERSION:
                msg = "another version"
                raise ValueError(msg)
            return _manifest(document)
        except _INVALID as error:
            msg = (
                f"{self._tables.uri(name)} is not a manifest that this version can read: {error!r}"
            )
            raise FleetError(msg) from error

    def _made(self, document: dict[str, Any]) -> Manifest:
        try:
            return _manifest(document)
        except _INVALID as error:
            msg = f"a manifest in a checkpoint in {self._tables.uri()} cannot be read: {error!r}"
            raise FleetError(msg) from error


class LocalCommits(Commits):
    """The manifests of the tables in a local folder."""

    def __init__(self, tables: Path) -> None:
        super().__init__(LocalStorage(tables))


def _committed_already(manifest: Manifest) -> FleetError:
    return FleetError(f"batch {manifest.batch} of query {manifest.query} is committed already")


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as the content of its file."""
    text = json.dumps({"version": VERSION} | asdict(manifest), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def _manifest(document: dict[str, Any]) -> Manifest:
    """Create a manifest from a map, which is changed. Raises the errors in `_ODD`."""
    document["query"] = sys.intern(document["query"])
    document["events"] = {
        sys.intern(day): tuple(paths) for day, paths in document.get("events", {}).items()
    }
    document["counts"] = Counts(**document["counts"])
    document["segments"] = tuple(document["segments"])
    document["replaces"] = tuple(document.get("replaces", ()))
    return Manifest(**document)
