"""What is in the tables: one manifest for each batch, committed whole or not at all.

A file of the tables that no manifest names does not exist for a reader, nor does one that a later
manifest replaces: `live` says which are left. `Commits` keeps the manifests in a `Storage`: those
that came lately each in a file, all before them in one (`sync.tables.checkpoint`). Neither reads
nor writes the tables' own files: those go through Spark.
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
"""Version of the manifest's own layout; one that is newer is refused, not guessed at."""

UPKEEP: Final = "upkeep"
"""What compaction and retention commit under, for a query's id. Their numbers have no gap."""

LOOKS: Final = 4
"""Looks at manifests that are gathered meanwhile, which happens once in many batches."""

_T = TypeVar("_T")
_ODD: Final = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many files a batch read and what became of them, and how many events it wrote."""

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
    """What one batch of one query added to the tables, or one step of their upkeep changed.

    `events` maps a day (UTC, `YYYY-MM-DD`) to files, `segments` lists files, each by its path
    relative to the tables' folder. `committed_at` is ISO 8601 in UTC. `replaces` lists files that
    are in the tables no longer. `retired` maps a day to the number of rows that went with them.
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
    """The files that are in the tables: of events by day, in the order of days; of segments."""

    events: Mapping[str, tuple[str, ...]]
    segments: tuple[str, ...]


def live_files(manifests: Iterable[Manifest]) -> LiveFiles:
    """Tell which files these manifests leave in the tables; keeps none of the manifests."""
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
    """Count the rows of each day (`YYYY-MM-DD`) that retention took out of the tables."""
    rows: dict[str, int] = {}
    for each in manifests:
        for day, number in each.retired.items():
            rows[day] = rows.get(day, 0) + number
    return rows


class Commits:
    """Manifests in a storage: `manifests/QUERY/BATCH.json`, at most one for each (query, batch).

    A manifest appears whole, and once; before that, the files that it names are made durable. Once
    it is gathered the gathering is what counts, and its own file goes later. So who finds a file
    gone, or a newer gathering at the end than at the beginning, looks once more.
    """

    def __init__(self, tables: Storage) -> None:
        self._tables = tables
        self._checkpoints = ManifestCheckpoints(tables)

    def lease(self) -> AbstractContextManager[None]:
        """Be the one driver for the length of the block; LeaseError when there is another."""
        return self._tables.lease()

    def committed(self, query: str, batch: int) -> bool:
        """Tell whether this batch of this query is in the tables."""
        if self._tables.exists(path_of(query, batch, MANIFEST)):
            return True
        return self._steadily(lambda number: (query, batch) in self._checkpoints.keys(number))

    def commit(self, manifest: Manifest) -> None:
        """Put the batch into the tables, durably and at once, with the files that it names.

        Raises FleetError when it is in them already, or the lease is lost, and changes nothing
        then. Raises OSError when a file is missing or spoiled.
        """
        self._tables.make_durable([*manifest.segments, *itertools.chain(*manifest.events.values())])
        self._tables.keep_lease()
        self._require_new(manifest)
        try:
            path = path_of(manifest.query, manifest.batch, MANIFEST)
            self._tables.create(path, encode(manifest))
        except FileExistsError:
            raise _committed_already(manifest) from None
        # who slept here for a day may have met another's commit that was gathered since
        self._require_new(manifest)

    def manifests(self) -> Sequence[Manifest]:
        """List all that is committed, in the order of (query, batch).

        Raises FleetError for one that cannot be read.
        """
        return self.fold(lambda found: sorted(found, key=lambda each: (each.query, each.batch)))

    def fold(self, take: Callable[[Iterator[Manifest]], _T]) -> _T:
        """Give what `take` makes of all that is committed, one by one, in any order.

        It is called once more when manifests were gathered meanwhile. Raises as `manifests` does.
        """
        return self._steadily(lambda number: take(self._all(number)))

    def segments(self) -> Sequence[str]:
        """Name the files of the table `segments`, as `live` does; raises as `manifests` does.

        What was gathered is read when it was gathered anew, and not each time.
        """
        return self._steadily(self._segments)

    def after(self, followed: Mapping[str, int]) -> Iterator[Manifest]:
        """Give the batches beyond those that were `followed`, by query; each query's in order.

        Upkeep is left out. Raises as `manifests` does; OSError when one is lost.
        """
        # in this order: what is listed no more by then has been gathered
        queries = {*self._tables.folders(MANIFESTS)}
        queries |= {*self._steadily(self._checkpoints.keys).runs}
        for query in sorted(queries - {UPKEEP, GATHERED}):
            number = followed.get(query, -1) + 1
            waiting: dict[int, Manifest] = {}
            while self.committed(query, number):
                waiting = waiting if number in waiting else self._from(query, number)
                yield waiting.pop(number)
                number += 1

    def unarchived(self) -> Sequence[Manifest]:
        """List the batches whose segments were not all moved out of the landing yet."""
        return self._steadily(lambda at: [*map(self._read, self._loose(at).unarchived(UPKEEP))])

    def mark_archived(self, manifest: Manifest) -> None:
        """Note that the segments of this manifest have left the landing."""
        try:
            self._tables.create(path_of(manifest.query, manifest.batch, FILED), b"")
        except FileExistsError:
            return

    def next_upkeep(self) -> int:
        """Number the next step of upkeep. Call it under the lease."""
        return self._steadily(self._last_upkeep) + 1

    def checkpoint(self, least: int = 1) -> int:
        """Put all manifests into one file, if `least` of them are in none yet; gives how many are.

        Does nothing while a batch is unfiled. Call it under the lease. Raises FleetError when it is
        lost, or a manifest cannot be read; OSError when the storage refuses.
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
            msg = "another ingest has gathered the manifests, and so has the lease"
            raise LeaseError(msg) from None
        return len(added)

    def remove_checkpointed(self, before: float, most: int | None = None) -> int:
        """Remove files of what was gathered `before` (seconds since 1970); gives how many.

        No more than `most`, if given. Call it under the lease; may be cut off anywhere.
        """
        return remove_checkpointed_files(self._tables, self._checkpoints, before, most)

    def _steadily(self, look: Callable[[int], _T]) -> _T:
        """Look at manifests by the gathering that counts, until that was the same at the end.

        What it has not is in files of their own then, as nothing goes before a newer one has it.
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
        msg = f"manifests in {self._tables.uri(MANIFESTS)} were gathered at each look; try again"
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
        """Give a batch that is committed; if it is gathered, with those of its query after it."""

        def look(number: int) -> dict[int, Manifest]:
            if (query, first) not in self._checkpoints.keys(number):
                return {first: self._read(PurePosixPath(path_of(query, first, MANIFEST)))}
            found = self._checkpoints.documents(number)
            chosen = (each for each in found if each["query"] == query and each["batch"] >= first)
            return {each["batch"]: self._made(each) for each in chosen}

        return self._steadily(look)

    def _last_upkeep(self, number: int) -> int:
        loose = [path for path in self._loose(number).manifests if path.parent.name == UPKEEP]
        gathered = self._checkpoints.keys(number).last(UPKEEP)
        return max([gathered, *(key_of(path)[1] for path in loose)])

    def _require_new(self, manifest: Manifest) -> None:
        """Raise FleetError when a gathering has another attempt at the manifest's batch."""
        query, batch = manifest.query, manifest.batch
        gathered = self._steadily(lambda at: (query, batch) in self._checkpoints.keys(at))
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
        except _ODD as error:
            msg = f"{self._tables.uri(name)} is no manifest that this version can read: {error!r}"
            raise FleetError(msg) from error

    def _made(self, document: dict[str, Any]) -> Manifest:
        try:
            return _manifest(document)
        except _ODD as error:
            msg = f"a gathered manifest in {self._tables.uri()} cannot be read: {error!r}"
            raise FleetError(msg) from error


class LocalCommits(Commits):
    """The manifests of the tables in a folder of a local disk."""

    def __init__(self, tables: Path) -> None:
        super().__init__(LocalStorage(tables))


def _committed_already(manifest: Manifest) -> FleetError:
    return FleetError(f"batch {manifest.batch} of query {manifest.query} is committed already")


def encode(manifest: Manifest) -> bytes:
    """Write a manifest as it is in a file of its own."""
    text = json.dumps({"version": VERSION} | asdict(manifest), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def _manifest(document: dict[str, Any]) -> Manifest:
    """Make a manifest of a map, which it changes. Raises what `_ODD` names."""
    document["query"] = sys.intern(document["query"])
    document["events"] = {
        sys.intern(day): tuple(paths) for day, paths in document.get("events", {}).items()
    }
    document["counts"] = Counts(**document["counts"])
    document["segments"] = tuple(document["segments"])
    document["replaces"] = tuple(document.get("replaces", ()))
    return Manifest(**document)
