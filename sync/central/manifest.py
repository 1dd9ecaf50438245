"""What is in the tables: one manifest for each batch, committed whole or not at all.

A file of the tables that no manifest names does not exist for a reader. `Commits` is the interface
that another kind of storage implements; `LocalCommits` is the one for a disk. Neither reads nor
writes the tables' own files: those go through Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from sync.central.durable import PRIVATE_FILE, create_whole, fsync_chain, make_folders
from sync.central.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

VERSION: Final = 1
"""Version of the manifest's own layout; one that is newer is refused, not guessed at."""

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
    """What one batch of one query added to the tables.

    `events` maps a day (UTC, `YYYY-MM-DD`) to files, `segments` lists files, each by its path
    relative to the tables' folder. `committed_at` is ISO 8601 in UTC.
    """

    query: str
    batch: int
    attempt: str
    committed_at: str
    segments: tuple[str, ...]
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counts: Counts = Counts()


class Commits(Protocol):
    """Where manifests are committed: at most one for each (query, batch), by one driver at once."""

    def lease(self) -> AbstractContextManager[None]:
        """Be the one driver for the length of the block; FleetError when there is another."""
        ...

    def committed(self, query: str, batch: int) -> bool:
        """Tell whether this batch of this query is in the tables."""
        ...

    def commit(self, manifest: Manifest) -> None:
        """Put the batch into the tables, durably and at once, with the files that it names.

        Raises FleetError when it is in them already, and changes nothing then.
        """
        ...

    def manifests(self) -> Sequence[Manifest]:
        """List all that is committed, in the order of (query, batch)."""
        ...

    def unfiled(self) -> Sequence[Manifest]:
        """List the manifests whose segments were not all moved out of the landing yet."""
        ...

    def filed(self, manifest: Manifest) -> None:
        """Note that the segments of this manifest have left the landing."""
        ...


class LocalCommits:
    """Manifests on a local disk: `manifests/QUERY/BATCH.json` below the tables' folder.

    A manifest is written beside its name, fsynced and linked to it, so that it appears whole, and
    once; before that, the files that it names are made durable, which Spark does not do. The lease
    is a lock of the kernel's, which ends with the process that holds it.
    """

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._folder = tables / "manifests"

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the lock on `tables/lease`. Raises FleetError at once when another holds it."""
        descriptor = os.open(
            self._tables / "lease", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            msg = f"another ingest is at work on {self._tables}; wait for it to end"
            raise FleetError(msg) from None
        try:
            yield
        finally:
            os.close(descriptor)

    def committed(self, query: str, batch: int) -> bool:
        """Tell whether the manifest is there; see `Commits`."""
        return self._path(query, batch, _MANIFEST).exists()

    def commit(self, manifest: Manifest) -> None:
        """Create the manifest; see `Commits`. Raises OSError when a file is missing or spoiled."""
        self._make_durable([*manifest.segments, *itertools.chain(*manifest.events.values())])
        path = self._path(manifest.query, manifest.batch, _MANIFEST)
        make_folders(self._tables, path.parent)
        try:
            create_whole(path, _encode(manifest))
        except FileExistsError:
            msg = f"batch {manifest.batch} of query {manifest.query} is committed already"
            raise FleetError(msg) from None

    def manifests(self) -> Sequence[Manifest]:
        """Read every manifest; see `Commits`. Raises FleetError for one that cannot be read."""
        return [_decode(path) for path in self._paths()]

    def unfiled(self) -> Sequence[Manifest]:
        """Read the manifests that have no mark beside them; see `Commits`."""
        return [_decode(path) for path in self._paths() if not path.with_suffix(_FILED).exists()]

    def filed(self, manifest: Manifest) -> None:
        """Leave a mark beside the manifest; see `Commits`."""
        with contextlib.suppress(FileExistsError):
            create_whole(self._path(manifest.query, manifest.batch, _FILED), b"")

    def _make_durable(self, files: Sequence[str]) -> None:
        for file in files:
            _fsync(self._tables / file)
        for folder in {(self._tables / file).parent for file in files}:
            fsync_chain(self._tables, folder)

    def _path(self, query: str, batch: int, suffix: str) -> Path:
        return self._folder / query / f"{batch}{suffix}"

    def _paths(self) -> list[Path]:
        found = [path for path in self._folder.glob(f"*/*{_MANIFEST}") if path.stem.isdecimal()]
        return sorted(found, key=lambda path: (path.parent.name, int(path.stem)))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(manifest: Manifest) -> bytes:
    text = json.dumps({"version": VERSION} | asdict(manifest), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def _decode(path: Path) -> Manifest:
    try:
        document = json.loads(path.read_bytes())
        return _manifest(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no manifest that this version can read: {error!r}"
        raise FleetError(msg) from error


def _manifest(document: dict[str, Any]) -> Manifest:
    if document.pop("version") != VERSION:
        msg = "another version"
        raise ValueError(msg)
    document["segments"] = tuple(document["segments"])
    document["events"] = {day: tuple(paths) for day, paths in document["events"].items()}
    document["counts"] = Counts(**document["counts"])
    return Manifest(**document)
