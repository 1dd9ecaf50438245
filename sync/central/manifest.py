"""What is in the tables: one manifest for each batch, committed whole or not at all.

A file of the tables that no manifest names does not exist for a reader, nor does one that a later
manifest replaces: `live` says which are left. `Commits` keeps the manifests in a `Storage`. Neither
reads nor writes the tables' own files: those go through Spark.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

from sync.central.errors import FleetError
from sync.central.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sync.central.storage import Storage

VERSION: Final = 1
"""Version of the manifest's own layout; one that is newer is refused, not guessed at."""

UPKEEP: Final = "upkeep"
"""What compaction and retention commit under, for a query's id. Their numbers have no gap."""

MANIFESTS: Final = "manifests"
"""The folder of manifests below the tables' folder; in it is one for each query."""

_MANIFEST: Final = ".json"
_FILED: Final = ".filed"


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
class Live:
    """The files that are in the tables: of events by day, in the order of days; of segments."""

    events: Mapping[str, tuple[str, ...]]
    segments: tuple[str, ...]


def live(manifests: Iterable[Manifest]) -> Live:
    """Tell which files these manifests leave in the tables."""
    known = list(manifests)
    gone = {path for each in known for path in each.replaces}
    days: dict[str, list[str]] = {}
    for each in known:
        for day, paths in each.events.items():
            days.setdefault(day, []).extend(path for path in paths if path not in gone)
    return Live(
        {day: tuple(days[day]) for day in sorted(days) if days[day]},
        tuple(path for each in known for path in each.segments if path not in gone),
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

    A manifest appears whole, and once; before that, the files that it names are made durable.
    """

    def __init__(self, tables: Storage) -> None:
        self._tables = tables

    def lease(self) -> AbstractContextManager[None]:
        """Be the one driver for the length of the block; LeaseError when there is another."""
        return self._tables.lease()

    def committed(self, query: str, batch: int) -> bool:
        """Tell whether this batch of this query is in the tables."""
        return self._tables.exists(_path(query, batch, _MANIFEST))

    def commit(self, manifest: Manifest) -> None:
        """Put the batch into the tables, durably and at once, with the files that it names.

        Raises FleetError when it is in them already, or the lease is lost, and changes nothing
        then. Raises OSError when a file is missing or spoiled.
        """
        self._tables.make_durable([*manifest.segments, *itertools.chain(*manifest.events.values())])
        self._tables.keep_lease()
        try:
            path = _path(manifest.query, manifest.batch, _MANIFEST)
            self._tables.create(path, _encode(manifest))
        except FileExistsError:
            msg = f"batch {manifest.batch} of query {manifest.query} is committed already"
            raise FleetError(msg) from None

    def manifests(self) -> Sequence[Manifest]:
        """List all that is committed, in the order of (query, batch).

        Raises FleetError for one that cannot be read.
        """
        return [self._read(path) for path in self._listed()[0]]

    def read(self, query: str, batch: int) -> Manifest:
        """Read the manifest of one batch. Raises FleetError, or OSError when there is none."""
        return self._read(PurePosixPath(_path(query, batch, _MANIFEST)))

    def unfiled(self) -> Sequence[Manifest]:
        """List the batches whose segments were not all moved out of the landing yet."""
        manifests, filed = self._listed()
        waiting = [path for path in manifests if path.with_suffix(_FILED).as_posix() not in filed]
        return [self._read(path) for path in waiting if path.parent.name != UPKEEP]

    def filed(self, manifest: Manifest) -> None:
        """Note that the segments of this manifest have left the landing."""
        try:
            self._tables.create(_path(manifest.query, manifest.batch, _FILED), b"")
        except FileExistsError:
            return

    def next_upkeep(self) -> int:
        """Number the next step of upkeep. Call it under the lease."""
        taken = [int(path.stem) for path in self._listed()[0] if path.parent.name == UPKEEP]
        return max(taken, default=-1) + 1

    def _listed(self) -> tuple[list[PurePosixPath], set[str]]:
        """List manifests in order, and what is marked as filed.

        A listing is no snapshot: it may show a step of upkeep and not the one before, which it
        builds upon. As their numbers have no gap, those before the last are there.
        """
        names = {file.path for file in self._tables.files(MANIFESTS)}
        found = {PurePosixPath(name) for name in names if name.endswith(_MANIFEST)}
        found = {path for path in found if path.stem.isdecimal()}
        steps = [int(path.stem) for path in found if path.parent.name == UPKEEP]
        found |= {
            PurePosixPath(_path(UPKEEP, number, _MANIFEST))
            for number in range(max(steps, default=-1))
        }
        ordered = sorted(found, key=lambda path: (path.parent.name, int(path.stem)))
        return ordered, {name for name in names if name.endswith(_FILED)}

    def _read(self, path: PurePosixPath) -> Manifest:
        name = path.as_posix()
        try:
            return _manifest(json.loads(self._tables.read(name)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"{self._tables.uri(name)} is no manifest that this version can read: {error!r}"
            raise FleetError(msg) from error


class LocalCommits(Commits):
    """The manifests of the tables in a folder of a local disk."""

    def __init__(self, tables: Path) -> None:
        super().__init__(LocalStorage(tables))


def _path(query: str, batch: int, suffix: str) -> str:
    return f"{MANIFESTS}/{query}/{batch}{suffix}"


def _encode(manifest: Manifest) -> bytes:
    text = json.dumps({"version": VERSION} | asdict(manifest), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def _manifest(document: dict[str, Any]) -> Manifest:
    if document.pop("version") != VERSION:
        msg = "another version"
        raise ValueError(msg)
    document["events"] = {day: tuple(paths) for day, paths in document["events"].items()}
    document["counts"] = Counts(**document["counts"])
    document["segments"] = tuple(document["segments"])
    document["replaces"] = tuple(document.get("replaces", ()))
    return Manifest(**document)
