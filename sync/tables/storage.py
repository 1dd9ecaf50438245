"""The file systems of the tables: an interface of few calls, and its implementation on local disks.

`sync.tables.hadoop` has the implementation for Hadoop's file systems.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from sync.common.durable_files import (
    PRIVATE_FOLDER,
    create_file,
    fsync_folder,
    locked,
    make_folders,
)
from sync.common.errors import LeaseError
from sync.segment.limits import MAX_TIME, MIN_TIME

LEASE: Final = "lease"
"""The file of the lease (see `Storage.lease`), below the root."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_SCHEME: Final = "file:"

_HIDDEN: Final = (".", "_")
"""First characters of the names of files and folders that listings leave out."""


class File(NamedTuple):
    """A file: its path below the root, `size` in bytes, `modified` in seconds since 1970.

    `modified` is in whole milliseconds, the precision of Hadoop's file systems.
    """

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """A folder in some file system. Paths are relative to it, with slashes.

    Names that begin with `.` or `_` are left out of listings, as Spark's file source does. Every
    call raises OSError if it fails.
    """

    def uri(self, path: str = "") -> str:
        """Return the URI of a path for Spark, unquoted."""
        ...

    def relative(self, uri: str) -> str:
        """Return the path of an unquoted URI from Spark; raises ValueError if it is outside."""
        ...

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """List the files at any depth below `folder` whose names end in `suffix`.

        A folder that does not exist has none. Files that are removed meanwhile are skipped.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder at `path`."""
        ...

    def read(self, path: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError if it does not exist."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Create a file, whole and durable, and the folders above it.

        The caller is the only writer of this name. Raises FileExistsError if the file exists.
        """
        ...

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Move files to their targets; return the files whose target has different content.

        Those stay. A file whose target has the same content counts as moved; absent files are
        skipped. A reader that looks first at the source, then at the target, always finds the file.
        The call can be interrupted anywhere and repeated.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content; it need not exist."""
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Make existing files durable. Raises FileNotFoundError if one is missing."""
        ...

    def lease(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Hold the lease within the block, so that two processes do not do the same work.

        Raises LeaseError if another process holds it for longer than `wait_s` seconds.
        Only storage on local disks has a lease; elsewhere, this does nothing.
        """
        ...


def time_of(modified: float) -> datetime:
    """Return a file's time of modification, at most `MAX_TIME` and at least `MIN_TIME`."""
    return _EPOCH + timedelta(milliseconds=min(max(round(modified * 1000), MIN_TIME), MAX_TIME))


def is_local(uri: str) -> bool:
    """Return whether a URI is a path of a local disk."""
    return urlsplit(uri).scheme in ("", "file")


class LocalStorage:
    """A folder of a local disk; see `Storage`.

    Files are created and moved by linking, and folders are fsynced. The lease is a kernel lock on a
    file, which ends with the process.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def uri(self, path: str = "") -> str:
        return str(self.root / path)

    def relative(self, uri: str) -> str:
        path = PurePosixPath(uri.removeprefix(_SCHEME))
        return path.relative_to(self.root.as_posix()).as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        for at, folders, names in os.walk(self.root / folder, onerror=_unless_absent):
            folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
            below = Path(at).relative_to(self.root)
            for name in names:
                if name.endswith(suffix) and not name.startswith(_HIDDEN):
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{at}/{name}")  # noqa: PTH116
                        modified = status.st_mtime_ns // 1_000_000 / 1000
                        yield File((below / name).as_posix(), status.st_size, modified)

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def create(self, path: str, data: bytes) -> None:
        target = self.root / path
        make_folders(self.root, target.parent)
        create_file(target, data)

    def move(self, moves: Mapping[str, str]) -> list[str]:
        paths = {self.root / source: self.root / target for source, target in moves.items()}
        targets = {target.parent for target in paths.values()}
        for folder in targets:
            make_folders(self.root, folder)
        tried = {source: _linked(source, target) for source, target in paths.items()}
        linked = [source for source, done in tried.items() if done]
        for folder in targets:
            fsync_folder(folder)
        for source in linked:
            source.unlink(missing_ok=True)
        for folder in {source.parent for source in linked}:
            with contextlib.suppress(FileNotFoundError):
                fsync_folder(folder)
        stay = [path for path in moves if tried[self.root / path] is False]
        return [path for path in stay if self.exists(path)]

    def remove(self, path: str) -> None:
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def make_durable(self, paths: Iterable[str]) -> None:
        folders: set[Path] = set()
        for path in paths:
            file = self.root / path
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            folders.update(each for each in file.parents if each.is_relative_to(self.root))
        for folder in sorted(folders, key=lambda each: -len(each.parts)):
            fsync_folder(folder)

    def lease(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        self.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        busy = LeaseError(f"another command is at work on {self.root}; wait until it ends")
        return locked(self.root / LEASE, busy, wait_s)


def _unless_absent(error: OSError) -> None:
    """Raise the error of a directory walk, unless it is that a folder does not exist."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _linked(source: Path, target: Path) -> bool | None:
    """Link a file; return False if the target has different content, None if `source` is absent."""
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            return filecmp.cmp(source, target, shallow=False)
    except FileNotFoundError:
        if source.exists():
            raise
        return None
    return True
