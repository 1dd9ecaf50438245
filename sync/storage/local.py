"""Storage on a local disk: whatever a call has created, moved or removed survives a power cut."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeVar

from sync.common.durable_files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PUBLIC_FILE,
    PUBLIC_FOLDER,
    TEMPORARY,
    fsync_chain,
    fsync_folder,
    link_file,
    locked,
    make_folders,
    replace_file,
)
from sync.common.errors import LeaseError
from sync.storage.storage import HIDDEN, File

_T = TypeVar("_T")

LEASE: Final = "lease"
"""The file of the lease (see `Storage.lease`), below the root."""

MAX_SYNCED: Final = 4_096
"""Maximum number of folders remembered as durable: the lanes of 1,300 gateways. Each takes less
than 1 KiB."""

ABANDONED_S: Final = 3_600.0
"""Age in seconds from which a temporary file is not in use any more: writing one takes seconds."""

EMPTY_S: Final = 86_400.0
"""Seconds without a change after which an empty folder is removed: its lane has ended, or is so
slow that creating the folder again costs little."""

REMEMBERED_S: Final = 3_600.0
"""Seconds for which it is remembered that a folder is durable: much less than `EMPTY_S`."""


class LocalStorage:
    """A folder of a local disk; see `sync.storage.storage.Storage`.

    Files are created and moved by linking, and folders are fsynced. The lease is a kernel lock on a
    file, which ends with the process. Files are for their owner only or, if `public`, readable by
    all users.
    """

    def __init__(self, root: Path, *, public: bool = False) -> None:
        self.root = root
        self._file_mode = PUBLIC_FILE if public else PRIVATE_FILE
        self._folder_mode = PUBLIC_FOLDER if public else PRIVATE_FOLDER

    def uri(self, path: str = "") -> str:
        return str(self.root / path)

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        for at, folders, names in os.walk(self.root / folder, onerror=_unless_absent):
            folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
            below = Path(at).relative_to(self.root)
            for name in sorted(names):
                if name.endswith(suffix) and not name.startswith(HIDDEN):
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{at}/{name}")  # noqa: PTH116
                        modified = status.st_mtime_ns // 1_000_000 / 1000
                        yield File((below / name).as_posix(), status.st_size, modified)

    def exists(self, path: str) -> bool:
        return (self.root / path).is_file()

    def read(self, path: str, start: int = 0) -> bytes:
        with (self.root / path).open("rb") as file:
            if start < 0:
                start = max(0, os.fstat(file.fileno()).st_size + start)
            file.seek(start)
            return file.read()

    def read_each(self, files: Iterable[File]) -> Iterator[tuple[File, bytes]]:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                yield file, self.read(file.path)

    def create(self, path: str, data: bytes) -> bool:
        target = self.root / path
        is_new = True
        try:
            self._in_folder(target.parent, partial(link_file, target, data, self._file_mode))
        except FileExistsError:
            if self.read(path) != data:
                raise
            is_new = False
        self._sync(target.parent)
        return is_new

    def _in_folder(self, folder: Path, call: Callable[[], _T]) -> _T:
        """Create a folder and call, both once more if `clean` has just removed an empty folder."""
        try:
            self._make(folder)
            return call()
        except FileNotFoundError:  # a folder that is new, or above one that is, is not removed
            self._make(folder)
            return call()

    def replace(self, path: str, data: bytes, instead_of: Collection[bytes] | None = None) -> None:
        target = self.root / path
        known = None if instead_of is None else (*instead_of, data)
        if known is not None and target.exists() and self.read(path) not in known:
            raise FileExistsError(f"{target} has other content")
        self._make(target.parent)
        replace_file(target, data, self._file_mode)

    def move(self, moves: Mapping[str, str]) -> list[str]:
        paths = {self.root / source: self.root / target for source, target in moves.items()}
        tried = {
            source: self._in_folder(target.parent, partial(_linked, source, target))
            for source, target in paths.items()
        }
        linked = [source for source, done in tried.items() if done]
        for folder in {target.parent for target in paths.values()}:
            fsync_folder(folder)
        for source in linked:
            source.unlink(missing_ok=True)
        _sync_existing({source.parent for source in linked})
        stay = [path for path in moves if tried[self.root / path] is False]
        return [path for path in stay if self.exists(path)]

    def remove(self, paths: Iterable[str]) -> None:
        folders: set[Path] = set()
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
            folders.add((self.root / path).parent)
        _sync_existing(folders)

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / path)

    def make_durable(self, paths: Iterable[str]) -> None:
        folders: set[Path] = set()
        for path in paths:
            file = self.root / path
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            folders.add(file.parent)
        for folder in folders:
            self._sync(folder)

    def _sync(self, folder: Path) -> None:
        """Make the entries of a folder durable, and the folder itself."""
        fsync_folder(folder)
        if folder != self.root:
            _sync_above(self.root, folder, int(time.time() // REMEMBERED_S))

    def clean(self, folder: str) -> int:
        now, removed, top = time.time(), 0, str(self.root / folder)
        for at, folders, names in os.walk(top, topdown=False, onerror=_unless_absent):
            for name in names:
                if name.startswith(".") and name.endswith(TEMPORARY):
                    with contextlib.suppress(FileNotFoundError):
                        path = Path(at, name)
                        if path.stat().st_mtime < now - ABANDONED_S:
                            path.unlink()
                            removed += 1
            if not names and not folders and at != top:
                _remove_if_empty(at, now - EMPTY_S)
        return removed

    def lease(self, wait_s: float = 0.0) -> AbstractContextManager[None]:
        self._make(self.root)
        busy = LeaseError(f"another command is at work on {self.root}; wait until it ends")
        return locked(self.root / LEASE, busy, wait_s)

    def _make(self, folder: Path) -> None:
        """Create a folder and those above it, durably."""
        existing = next(each for each in (folder, *folder.parents) if each.exists())
        make_folders(existing, folder, self._folder_mode)


def _sync_existing(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            fsync_folder(folder)


@lru_cache(MAX_SYNCED)
def _sync_above(root: Path, folder: Path, period: int) -> None:
    """Make a folder below `root` durable, which another process may have created, once.

    So a further file in it takes two fsyncs. `make_folders` syncs what this process creates anew.
    The result holds for one `period` of `REMEMBERED_S`, because `clean` may remove the folder when
    it has been empty for a day, and another process may create it again.
    """
    fsync_chain(root, folder.parent)


def _remove_if_empty(folder: str, before: float) -> None:
    """Remove a folder that was last changed before this time, unless a file has just appeared."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(folder).st_mtime < before:  # noqa: PTH116
            try:
                os.rmdir(folder)  # noqa: PTH106
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise


def _unless_absent(error: OSError) -> None:
    """Raise the error of a directory walk, unless it is that a folder does not exist."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _linked(source: Path, target: Path) -> bool | None:
    """Link a file; return False if the target has different content, None if one is absent.

    Raises FileNotFoundError if the target's folder does not exist.
    """
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            return filecmp.cmp(source, target, shallow=False)
    except FileNotFoundError:
        if not target.parent.exists():
            raise
        return None
    return True
