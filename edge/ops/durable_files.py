"""Files and folders that appear whole or not at all: temporary, fsync, rename, fsync of the folder.

Knows nothing of what is in them. All of it blocks.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from edge.errors import SetupError

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
PRIVATE_FOLDER: Final = 0o700

LOCK_WAIT: Final = 5.0
"""Seconds to wait for another command that works in the same folder; it takes milliseconds."""

_POLL: Final = 0.02


class Content(NamedTuple):
    """What is in a file, and who may read it."""

    data: bytes
    mode: int


def write_new(path: Path, content: Content) -> None:
    """Write a file that must not be there yet, and its bytes to the disk.

    The folder's own entry is not: a folder that is being made is renamed as a whole. Raises
    `OSError`.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, content.mode), "wb") as file:
        os.fchmod(file.fileno(), content.mode)  # whatever the umask: who runs this is not who reads
        file.write(content.data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: Content) -> None:
    """Replace the file at `path`: a reader sees the old one or the new one, whole.

    Durable on return. Raises `OSError`, and then leaves the old file and no temporary.
    """
    temporary = _beside(path)
    try:
        write_new(temporary, content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def staged(place: Path, contents: Mapping[str, Content]) -> Iterator[Callable[[], None]]:
    """Write the folder that shall be at `place` beside it; gives what puts it there.

    Where that is not called, nothing stays. The folder above is made if it is missing; one command
    at a time works in it. Raises `OSError`, and `SetupError` if another command does not end.
    """
    place.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    with _alone(place.parent):
        _sweep(place)
        making = _beside(place)
        making.mkdir(mode=PRIVATE_FOLDER)
        try:
            for name, content in contents.items():
                write_new(making / name, content)
            sync_folder(making)
            yield lambda: _put(making, place)
        finally:
            if making.exists():
                _delete(making)


@contextmanager
def workshop(place: Path) -> Iterator[Path]:
    """Give a private folder beside `place`, to make it there and rename it when it is whole.

    What is left of the folder at the end goes. One command at a time works so above `place`. Raises
    `OSError`, and `SetupError` if another command does not end.
    """
    with _alone(place.parent):
        _sweep(place)
        making = _beside(place)
        making.mkdir(mode=PRIVATE_FOLDER)
        try:
            yield making
        finally:
            if making.exists():
                _delete(making)


def put_new(made: Path, place: Path) -> None:
    """Rename what was made whole to `place`, where nothing is but an empty folder, durably."""
    made.rename(place)
    sync_folder(place.parent)


def remove_folder(place: Path) -> None:
    """Remove a folder that `staged` made, if it is there; raises `OSError`."""
    if not _is_there(place):
        return
    with _alone(place.parent):
        gone = _beside(place)
        place.rename(gone)
        _delete(gone)
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Make the entries of `folder` durable; raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(making: Path, place: Path) -> None:
    """Rename `making` to `place`, and what is there out of the way: a folder replaces no other."""
    old = _beside(place) if _is_there(place) else None
    if old is not None:
        place.rename(old)
    try:
        making.rename(place)
    except OSError:
        if old is not None:
            old.rename(place)
        raise
    sync_folder(place.parent)
    sync_folder(place.parent.parent)
    if old is not None:
        _delete(old)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _sweep(place: Path) -> None:
    """Remove what a power cut left of an earlier attempt."""
    left = f".{place.name}."
    for path in place.parent.iterdir():
        if path.name.startswith(left) and len(path.name) == len(left) + 8:
            _delete(path)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _delete(path: Path) -> None:
    """Delete a folder with all that is in it; of a link or a file in its place, that alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_WAIT
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise SetupError(f"another command has been busy in {folder} for {LOCK_WAIT:g} s")
            time.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
