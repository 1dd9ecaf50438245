"""Checkpoints of manifests: files that each combine all earlier manifests, so that few must be
read.

`manifests/gathered/NUMBER.gz` below the tables' folder is gzipped JSON, one document a line. The
first line has the number of manifests and the batches they belong to; each other line is a
manifest. The checkpoint with the highest number is valid, and includes all earlier ones.
`manifests/gathered/0.json` is empty and permanent: versions without checkpoints take it for a
manifest of a newer version, and refuse the tables instead of reading them incompletely.

This module also finds the manifests that are in no checkpoint, and removes files that are no longer
needed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import msgspec

from sync.common.errors import FleetError
from sync.tables.storage import Storage

VERSION: Final = 1
"""Version of a checkpoint's layout; other versions are refused."""

MANIFESTS: Final = "manifests"
"""The folder of manifests below the tables' folder; it has a folder for each query."""

GATHERED: Final = "gathered"
"""The folder of checkpoints beside those of the queries."""

MANIFEST: Final = ".json"
FILED: Final = ".filed"
"""Suffixes of a manifest, and of the marker that its segments have left the landing."""

REMOVED_AT_ONCE: Final = 100
"""Files that are removed before the lease is renewed: seconds, if each is a request."""

NOTHING: Final = 0
"""The number of the state before the first checkpoint."""

_MARK: Final = f"{MANIFESTS}/{GATHERED}/{NOTHING}.json"
_MARKED: Final = {"version": 2, "why": "manifests are gathered: an older version cannot read them"}
_SUFFIX: Final = ".gz"
_LEVEL: Final = 6
_DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, ValueError, TypeError, KeyError)


Segments = tuple[tuple[str, ...], frozenset[str]]
"""Files of the table of segments, and replaced files that are named elsewhere; see `segments_left`.
"""


class BatchKeys:
    """A set of batches of queries, as ranges of numbers, which have hardly any gaps."""

    def __init__(self, runs: Mapping[str, Iterable[tuple[int, int]]]) -> None:
        self.runs = {query: [range(*run) for run in of] for query, of in runs.items()}

    @classmethod
    def of(cls, keys: Iterable[tuple[str, int]]) -> BatchKeys:
        """Return the set of these batches."""
        runs: dict[str, list[tuple[int, int]]] = {}
        for query, number in sorted(keys):
            of = runs.setdefault(query, [])
            begin = of.pop()[0] if of and of[-1][1] == number else number
            of.append((begin, number + 1))
        return cls(runs)

    def __contains__(self, key: tuple[str, int]) -> bool:
        """Return whether this batch of this query is in the set."""
        return any(key[1] in run for run in self.runs.get(key[0], ()))

    def last(self, query: str) -> int:
        """Return the highest number of a query; -1 if there is none."""
        return max((run[-1] for run in self.runs.get(query, ())), default=-1)


class CheckpointFile(NamedTuple):
    """A checkpoint in the storage: its number, and when it was written (seconds since 1970)."""

    number: int
    modified: float


class ManifestCheckpoints:
    """The checkpoints in a storage of tables; keys and segments of the last one read are cached."""

    def __init__(self, tables: Storage) -> None:
        self._tables = tables
        self._known = (NOTHING, BatchKeys({}))
        self._left: tuple[int, Segments] = (NOTHING, ((), frozenset()))

    def stored(self) -> list[CheckpointFile]:
        """List the checkpoints by number."""
        found = self._tables.files(f"{MANIFESTS}/{GATHERED}", _SUFFIX)
        named = [(PurePosixPath(file.path).stem, file.modified) for file in found]
        return sorted(CheckpointFile(int(stem), at) for stem, at in named if stem.isdecimal())

    def latest(self) -> int:
        """Return the number of the valid checkpoint; `NOTHING` if there is none."""
        stored = self.stored()
        return stored[-1].number if stored else NOTHING

    def keys(self, number: int) -> BatchKeys:
        """Return the batches whose manifests a checkpoint has.

        Raises FileNotFoundError if it no longer exists, FleetError if it cannot be read.
        """
        if self._known[0] != number:
            self._known = (number, self.read_keys(number))
        return self._known[1]

    def read_keys(self, number: int) -> BatchKeys:
        """Return the same as `keys`, without the cache."""
        if number == NOTHING:
            return BatchKeys({})
        try:
            return _keys(self._lines(number))
        except _DAMAGED as error:
            raise self._unreadable(number, error) from error

    def documents(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the manifests of a checkpoint, in the order in which they were added.

        Raises FileNotFoundError if it no longer exists; FleetError, at the end, if it is truncated
        or damaged.
        """
        if number == NOTHING:
            return
        try:
            lines = self._lines(number)
            header = _header(lines)
            self._known = (number, BatchKeys(header["keys"]))
            yield from map(msgspec.json.decode, _whole(lines, header["manifests"]))
        except _DAMAGED as error:
            raise self._unreadable(number, error) from error

    def segments(self, number: int) -> Segments:
        """Return `segments_left` of its manifests; raises as `documents` does."""
        if self._left[0] != number:
            try:
                self._left = (number, segments_left(self.documents(number)))
            except _DAMAGED as error:
                raise self._unreadable(number, error) from error
        return self._left[1]

    def add(self, number: int, documents: Sequence[Mapping[str, Any]]) -> None:
        """Create the checkpoint after `number`: the manifests of that one, and more.

        Raises FileExistsError if it exists, FleetError if that one cannot be read.
        """
        with contextlib.suppress(FileExistsError):
            self._tables.create(_MARK, json.dumps(_MARKED, sort_keys=True).encode() + b"\n")
        data = io.BytesIO()
        try:
            with gzip.GzipFile("", "wb", _LEVEL, data, mtime=0) as file:
                file.writelines(self._joined(number, documents))
        except _DAMAGED as error:
            raise self._unreadable(number, error) from error
        self._tables.create(_path(number + 1), data.getvalue())

    def _joined(self, number: int, documents: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
        lines = iter([_encode(_header_of([], 0))]) if number == NOTHING else self._lines(number)
        header = _header(lines)
        had = BatchKeys(header["keys"])
        keys = [
            *((query, at) for query, runs in had.runs.items() for run in runs for at in run),
            *((each["query"], each["batch"]) for each in documents),
        ]
        yield _encode(_header_of(keys, header["manifests"] + len(documents)))
        yield from _whole(lines, header["manifests"])
        yield from map(_encode, documents)

    def remove(self, number: int) -> None:
        """Remove a checkpoint; it need not exist."""
        self._tables.remove(_path(number))

    def _lines(self, number: int) -> Iterator[bytes]:
        return iter(gzip.open(io.BytesIO(self._tables.read(_path(number)))))

    def _unreadable(self, number: int, error: Exception) -> FleetError:
        name = self._tables.uri(_path(number))
        return FleetError(
            f"{name} is not a checkpoint of manifests that this version can read: {error!r}"
        )


class LooseManifests(NamedTuple):
    """The manifests in no checkpoint, by query and number, and all markers of archived batches."""

    manifests: list[PurePosixPath]
    markers: set[str]

    def unarchived(self, but: str) -> list[PurePosixPath]:
        """Return the manifests without a marker, except those of one query."""
        found = (path for path in self.manifests if path.parent.name != but)
        return [path for path in found if path.with_suffix(FILED).as_posix() not in self.markers]


def list_loose(tables: Storage, checkpointed: BatchKeys, gapless: str) -> LooseManifests:
    """List the manifests that are not in `checkpointed`.

    A listing is not a snapshot: it may include a maintenance step and miss the one before, on which
    it depends. The numbers of the query `gapless` have no gaps, so those before its last one exist.
    """
    paths = {PurePosixPath(file.path) for file in tables.files(MANIFESTS)}
    found = {path for path in paths if path.suffix == MANIFEST and key_of(path)[1] >= 0}
    last = max((key_of(path)[1] for path in found if path.parent.name == gapless), default=-1)
    found |= {PurePosixPath(path_of(gapless, number, MANIFEST)) for number in range(last)}
    loose = sorted((path for path in found if key_of(path) not in checkpointed), key=key_of)
    return LooseManifests(loose, {path.as_posix() for path in paths if path.suffix == FILED})


def remove_checkpointed_files(
    tables: Storage, checkpoints: ManifestCheckpoints, before: float, most: int | None
) -> int:
    """Remove files of manifests in checkpoints of `before` (seconds since 1970), at most `most`.

    Earlier checkpoints are removed too. Needs the lease. Returns how many files of manifests were
    removed.
    """
    stored = checkpoints.stored()
    old = [each.number for each in stored if each.modified < before]
    if not old:
        return 0
    # a checkpoint of a driver that lost its lease may have manifests that the valid one lacks
    both = (checkpoints.read_keys(old[-1]), checkpoints.keys(stored[-1].number))
    names = [file.path for file in tables.files(MANIFESTS)]
    gone = [name for name in names if all(key_of(PurePosixPath(name)) in keys for keys in both)]
    gone = gone[:most]
    for at, name in enumerate(gone):
        if at % REMOVED_AT_ONCE == 0:
            tables.keep_lease()
        tables.remove(name)
    for number in old[:-1]:
        checkpoints.remove(number)
    return len(gone)


def key_of(path: PurePosixPath) -> tuple[str, int]:
    """Return query and number from the path of a manifest or its marker; -1 for other paths."""
    number = int(path.stem) if path.stem.isdecimal() and path.parent.name != GATHERED else -1
    return path.parent.name, number


def path_of(query: str, number: int, suffix: str) -> str:
    """Return the path of a batch's manifest or marker."""
    return f"{MANIFESTS}/{query}/{number}{suffix}"


def segments_left(documents: Iterable[Mapping[str, Any]]) -> Segments:
    """Return the files of segments that are not replaced, and replaced files that no manifest
    names."""
    gone: set[str] = set()
    named: set[str] = set()
    segments: list[str] = []
    for each in documents:
        gone.update(each["replaces"])
        named.update(each["segments"], *each["events"].values())
        segments += each["segments"]
    return tuple(path for path in segments if path not in gone), frozenset(gone - named)


def _path(number: int) -> str:
    return f"{MANIFESTS}/{GATHERED}/{number:010d}{_SUFFIX}"


def _header(lines: Iterator[bytes]) -> dict[str, Any]:
    header: dict[str, Any] = msgspec.json.decode(next(lines, b""))
    if header["version"] != VERSION:
        msg = "another version"
        raise ValueError(msg)
    return header


def _header_of(keys: Iterable[tuple[str, int]], manifests: int) -> dict[str, Any]:
    runs = BatchKeys.of(keys).runs
    ranges = {query: [(run.start, run.stop) for run in of] for query, of in runs.items()}
    return {"version": VERSION, "manifests": manifests, "keys": ranges}


def _whole(lines: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the lines. Raises ValueError at the end if their number is wrong."""
    found = 0
    for line in lines:
        found += 1
        yield line
    if found != count:
        msg = f"it has {found} manifests and should have {count}"
        raise ValueError(msg)


def _encode(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _keys(lines: Iterator[bytes]) -> BatchKeys:
    return BatchKeys(_header(lines)["keys"])
