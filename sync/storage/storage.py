"""The interface of the storage, which local disks and object stores implement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from sync.segment.limits import MAX_TIME, MIN_TIME

HIDDEN: Final = (".", "_")
"""First characters of the names of files and folders that listings leave out."""

PATIENCE: Final = timedelta(minutes=2)
"""Time for which requests to an object store are repeated. Stores ask to slow down for seconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class File(NamedTuple):
    """A file: its path below the root, `size` in bytes, `modified` in seconds since 1970.

    `modified` is in whole milliseconds, the precision of object stores.
    """

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """A folder of a local disk, or a prefix of a bucket. Paths are relative to it, with slashes.

    Names that begin with `.` or `_` are left out of listings. Every call raises OSError if it
    fails. A storage can be pickled, for Spark's workers.
    """

    def uri(self, path: str = "") -> str:
        """Return the URI of a path, unquoted, for delta-rs and for messages."""
        ...

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """List the files at any depth below `folder` whose names end in `suffix`.

        The files of one folder are in the order of their names. A folder that does not exist has
        none. Files that are removed meanwhile are skipped.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file at `path`."""
        ...

    def read(self, path: str, start: int = 0) -> bytes:
        """Read a file from byte `start`; a negative `start` counts from the end.

        Raises FileNotFoundError if the file does not exist.
        """
        ...

    def read_each(self, files: Iterable[File]) -> Iterator[tuple[File, bytes]]:
        """Read whole files, in order; skip those that do not exist."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create a file, whole and durable, and the folders above it.

        Return whether the file is new: a file with the same content may exist, and is durable then.
        Raises FileExistsError if a file with other content exists, FileNotFoundError if a file
        existed and was moved away meanwhile.
        """
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Make files durable that another process may just have created or moved.

        Raises FileNotFoundError if one does not exist.
        """
        ...

    def clean(self, folder: str) -> int:
        """Remove temporary files below `folder` that calls interrupted an hour ago or earlier left.

        Return their number. On a local disk, folders that have been empty for a day are removed,
        too; `create` and `move` may run meanwhile.
        """
        ...

    def replace(self, path: str, data: bytes, instead_of: Collection[bytes] | None = None) -> None:
        """Write a file, whole and durable, and create the folders above it; replace an old one.

        With `instead_of`, raises FileExistsError if the file exists and has neither one of these
        contents nor `data`; on a local disk, the caller must hold the lease then.
        """
        ...

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Move files to their targets; return the files whose target has different content.

        Those stay. A file whose target has the same content counts as moved; absent files are
        skipped. A reader that looks first at the source, then at the target, always finds the file.
        The call can be interrupted anywhere and repeated.
        """
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; they need not exist."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its content; it need not exist."""
        ...

    def lease(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Hold the lease within the block, so that two processes do not do the same work.

        Raises LeaseError if another process holds it for longer than `wait_s` seconds.
        Only storage on local disks has a lease; elsewhere, this does nothing.
        """
        ...


def check_writable(storage: Storage, *folders: str) -> None:
    """Write and remove a file in each folder; raises OSError.

    Commands call it before work whose result they write there.
    """
    for folder in folders:
        probe = f"{folder}/.probe".lstrip("/")
        storage.replace(probe, b"\n")
        storage.remove([probe])


def time_of(modified: float) -> datetime:
    """Return a file's time of modification, at most `MAX_TIME` and at least `MIN_TIME`."""
    return _EPOCH + timedelta(milliseconds=min(max(round(modified * 1000), MIN_TIME), MAX_TIME))
