"""Write files and folders that appear whole or not at all and survive a power cut.

The order is always: write a temporary file or folder, fsync it, rename or link it, fsync the parent
folder. All functions block; call them outside the event loop.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PRIVATE_FILE: Final = 0o600
PUBLIC_FILE: Final = 0o644
PRIVATE_FOLDER: Final = 0o700
PUBLIC_FOLDER: Final = 0o777

TEMPORARY: Final = ".part"
"""End of the name of a temporary file, which begins with a dot and is beside its final name."""

LOCK_WAIT: Final = 5.0
"""Seconds to wait for another command that changes the same folder. A change takes milliseconds."""

_POLL: Final = 0.02
"""Seconds between two attempts to get a lock, short enough not to be noticed."""


class FolderBusyError(TimeoutError):
    """Another command held the folder's lock for longer than `LOCK_WAIT`."""


class FileContent(NamedTuple):
    """The bytes of a file and its mode."""

    data: bytes
    mode: int


def fsync_folder(folder: Path) -> None:
    """Make the entries of `folder` durable; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_chain(root: Path, folder: Path) -> None:
    """Make the entries of `folder` and of each folder above it, up to `root`, durable.

    This includes entries made by a process that died between rename and fsync.
    """
    at = folder
    while True:
        fsync_folder(at)
        if at == root:
            return
        at = at.parent


def make_folders(root: Path, folder: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Create `folder` and its parents below the existing `root`, with `mode` less the umask.

    The folders that it creates are durable on return. Folders that another process created may not
    be durable; call `fsync_chain` for these. Raises ValueError when `folder` is not below `root`.
    """
    at = root
    for part in folder.relative_to(root).parts:
        at /= part
        try:
            at.mkdir(mode)
        except FileExistsError:
            continue
        fsync_folder(at.parent)


def write_new(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a new file and fsync it, but not its folder.

    The file gets exactly `mode`, whatever the umask, because another user may have to read the
    file. Raises OSError, or FileExistsError if the file exists.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write the file at `path` atomically, replacing an existing file.

    The file is durable on return. On an error, raises OSError and leaves the old file unchanged.
    """
    with _temporary_file(path, data, mode) as temporary:
        temporary.replace(path)
    fsync_folder(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Create the file at `path`, private, atomically and durably.

    Raises FileExistsError when the file exists, and leaves it unchanged.
    """
    link_file(path, data, PRIVATE_FILE)
    fsync_folder(path.parent)


def link_file(path: Path, data: bytes, mode: int) -> None:
    """Create the file at `path` as `create_file` does, with `mode`; do not fsync its folder."""
    with _temporary_file(path, data, mode) as temporary:
        os.link(temporary, path)


@contextmanager
def _temporary_file(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    temporary = path.parent / f".{secrets.token_hex(8)}{TEMPORARY}"
    try:
        try:
            write_new(temporary, data, mode)
        except OSError as error:
            error.filename = str(path)  # a failed write or fsync names no file
            raise
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Create a private folder beside `target`, to be filled and moved with `move_into_place`.

    At the end of the `with` block, the folder is deleted unless it was renamed. A lock on the
    parent folder admits one command at a time. Raises OSError, or FolderBusyError if the lock is
    held.
    """
    with _locked_folder(target.parent):
        _delete_leftovers(target)
        temporary = _sibling(target)
        temporary.mkdir(mode=PRIVATE_FOLDER)
        try:
            yield temporary
        finally:
            if temporary.exists():
                _delete(temporary)


def move_into_place(source: Path, target: Path) -> None:
    """Rename a file or folder durably to `target`, which must be missing or an empty folder."""
    source.rename(target)
    fsync_folder(target.parent)


@contextmanager
def staged_folder(
    target: Path, contents: Mapping[str, FileContent]
) -> Iterator[Callable[[], None]]:
    """Write a folder of files beside `target`; yield a function that moves it there.

    The function replaces an existing file or folder at `target`. If it is not called, the new
    folder is deleted. The parent folder is created if missing. Raises OSError, or FolderBusyError
    if another command holds its lock.
    """
    target.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    with temporary_folder(target) as temporary:
        for name, content in contents.items():
            write_new(temporary / name, *content)
        fsync_folder(temporary)
        yield lambda: _replace_folder(temporary, target)


def remove_folder(target: Path) -> None:
    """Delete the file or folder at `target`, if there is one; raises OSError."""
    if not os.path.lexists(target):
        return
    with _locked_folder(target.parent):
        removed = _sibling(target)
        target.rename(removed)
        _delete(removed)
        fsync_folder(target.parent)


def _replace_folder(temporary: Path, target: Path) -> None:
    old = _sibling(target) if os.path.lexists(target) else None
    if old is not None:  # a rename cannot replace a folder that is not empty
        target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        if old is not None:
            old.rename(target)
        raise
    fsync_folder(target.parent)
    fsync_folder(target.parent.parent)
    if old is not None:
        _delete(old)


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _delete_leftovers(target: Path) -> None:
    """Delete temporary siblings of `target` that remained after a power cut."""
    prefix = f".{target.name}."
    for path in target.parent.iterdir():
        if path.name.startswith(prefix) and len(path.name) == len(prefix) + 8:
            _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # it is large, and a running gateway deletes no folders

        shutil.rmtree(path)
    else:
        path.unlink()


def _locked_folder(folder: Path) -> AbstractContextManager[None]:
    text = f"another command has been busy in {folder} for {LOCK_WAIT:g} s; try again"
    return locked(folder, FolderBusyError(text), LOCK_WAIT, flags=os.O_RDONLY | os.O_DIRECTORY)


@contextmanager
def locked(
    path: Path, busy: Exception, wait_s: float = 0.0, *, flags: int = os.O_RDWR | os.O_CREAT
) -> Iterator[None]:
    """Hold a kernel lock on the file at `path`, which is created if missing.

    The kernel releases the lock when the process ends. Raises the exception `busy` if another
    process holds the lock for longer than `wait_s` seconds.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise busy
            time.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
