"""File systems as the centre's tables and their upkeep use them: few calls, each of which can fail.

`Storage` is the interface; `LocalStorage` is a folder on a disk, made durable by fsync.
`sync.tables.hadoop` has the one for what Spark reaches through Hadoop. Knows nothing of segments,
manifests or batches, and nothing of rows: what is created here is bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol

from sync.common.durable_files import (
    PRIVATE_FILE,
    create_file,
    fsync_chain,
    fsync_folder,
    make_folders,
)
from sync.common.errors import LeaseError

LEASE: Final = "lease"
"""Where the lease on a storage is kept, below its root."""

_SCHEME: Final = "file:"

_HIDDEN: Final = (".", "_")
"""How the names of files and folders begin that no listing tells of."""


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

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Move files, each to the path that it has here, unless other bytes are at that.

        Gives those that stay for it. The same bytes there are as good as a move, and a file that is
        absent is passed over. Whoever looks at the target after the source finds the file at every
        moment. May be cut off anywhere and called again.
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
        for at, folders, names in os.walk(self.root / folder, onerror=_unless_absent):
            folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
            below = Path(at).relative_to(self.root)
            for name in names:
                if name.endswith(suffix) and not name.startswith(_HIDDEN):
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{at}/{name}")  # noqa: PTH116
                        yield File((below / name).as_posix(), status.st_size, status.st_mtime)

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
        create_file(target, data)

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Link all, fsync the folders, then unlink all and fsync again; see `Storage`."""
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


def _unless_absent(error: OSError) -> None:
    """Raise what a walk meets, but for a folder that is not there, or no longer."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _linked(source: Path, target: Path) -> bool | None:
    """Link a file; False where other bytes are at the target, None where the file is absent."""
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


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
