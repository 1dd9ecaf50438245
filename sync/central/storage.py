"""File systems as the centre's tables and their upkeep use them: few calls, each of which can fail.

`Storage` is the interface; `LocalStorage` is a folder on a disk, made durable by fsync.
`sync.central.hadoop` has the one for what Spark reaches through Hadoop. Knows nothing of segments,
manifests or batches, and nothing of rows: what is created here is bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sync.central.durable import PRIVATE_FILE, create_whole, fsync_chain, fsync_folder, make_folders
from sync.central.errors import LeaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

LEASE: Final = "lease"
"""Where the lease on a storage is kept, below its root."""

_SCHEME: Final = "file:"


class File(NamedTuple):
    """A file: its path below the storage's root, `size` in bytes, `modified` in seconds of 1970."""

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """A folder in some file system. Paths are relative to it and have slashes between their parts.

    Names that begin with `.` or `_` are hidden from listings, as Spark's file source passes over
    them. Every call raises OSError when the storage refuses.
    """

    def uri(self, path: str = "") -> str:
        """Name a path for Spark, unquoted."""
        ...

    def relative(self, uri: str) -> str:
        """Give the path of what Spark names, unquoted, by `uri`; ValueError when not below."""
        ...

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """List the files below `folder`, at any depth, whose names end in `suffix`; none if absent.

        What is removed meanwhile is passed over.
        """
        ...

    def folders(self, folder: str) -> list[str]:
        """Name the folders right in `folder`, in order; none if it is absent."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or a folder."""
        ...

    def read(self, path: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError when there is none."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Create a file, whole and durable, and the folders above it.

        Of several who try, one succeeds. Raises FileExistsError when there is one already.
        """
        ...

    def move(self, source: str, target: str) -> bool:
        """Move a file unless other bytes are at `target`: then False, and nothing is changed.

        The same bytes there are as good as a move. Whoever looks at `target` after `source` finds
        the file at every moment. May be cut off anywhere and called again.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; harmless when it is absent."""
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Make files durable that Spark wrote. Raises FileNotFoundError when one is missing."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Be the one writer for the length of the block; LeaseError when there is another."""
        ...

    def keep_lease(self) -> None:
        """Raise LeaseError unless the lease is still held: for what must not be done twice."""
        ...


class LocalStorage:
    """A folder of a local disk; see `Storage`.

    What is created or moved is linked under its name, and folders are fsynced. The lease is a lock
    of the kernel's on a file, which ends with the process that holds it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def uri(self, path: str = "") -> str:
        """Name a path; see `Storage`."""
        return str(self.root / path)

    def relative(self, uri: str) -> str:
        """Cut the root off; see `Storage`."""
        path = PurePosixPath(uri.removeprefix(_SCHEME))
        return path.relative_to(self.root.as_posix()).as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """Walk the folder; see `Storage`."""
        top = self.root / folder
        for path in top.rglob(f"*{suffix}"):
            if any(part.startswith((".", "_")) for part in path.relative_to(top).parts):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if not path.is_dir():
                    name = path.relative_to(self.root).as_posix()
                    yield File(name, status.st_size, status.st_mtime)

    def folders(self, folder: str) -> list[str]:
        """List the folders; see `Storage`."""
        top = self.root / folder
        return sorted(path.name for path in top.iterdir() if path.is_dir()) if top.exists() else []

    def exists(self, path: str) -> bool:
        """Look; see `Storage`."""
        return (self.root / path).exists()

    def read(self, path: str) -> bytes:
        """Read; see `Storage`."""
        return (self.root / path).read_bytes()

    def create(self, path: str, data: bytes) -> None:
        """Write beside the name, fsync, link, fsync the folder; see `Storage`."""
        target = self.root / path
        make_folders(self.root, target.parent)
        create_whole(target, data)

    def move(self, source: str, target: str) -> bool:
        """Link, then unlink; see `Storage`."""
        old, new = self.root / source, self.root / target
        make_folders(self.root, new.parent)
        try:
            os.link(old, new)
        except FileExistsError:
            if not filecmp.cmp(old, new, shallow=False):
                return False
        fsync_folder(new.parent)
        old.unlink(missing_ok=True)
        fsync_folder(old.parent)
        return True

    def remove(self, path: str) -> None:
        """Unlink, or remove the tree; see `Storage`."""
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def make_durable(self, paths: Iterable[str]) -> None:
        """Fsync the files and all folders up to the root; see `Storage`."""
        folders = set()
        for path in paths:
            _fsync(self.root / path)
            folders.add((self.root / path).parent)
        for folder in folders:
            fsync_chain(self.root, folder)

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the lock on `lease`. Raises LeaseError at once when another holds it."""
        descriptor = os.open(self.root / LEASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            msg = f"another ingest is at work on {self.root}; wait for it to end"
            raise LeaseError(msg) from None
        try:
            yield
        finally:
            os.close(descriptor)

    def keep_lease(self) -> None:
        """Do nothing: the kernel's lock is held until the block ends."""


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
