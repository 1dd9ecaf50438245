"""Files that appear whole and stay: temporary, fsync, link or rename, fsync of the folder.

Knows nothing of segments or gateways. All calls block; call them off the event loop.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def fsync_folder(folder: Path) -> None:
    """Make the entries of `folder` durable.

    Raises OSError when it is missing or the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(root: Path, folder: Path) -> None:
    """Make `folder` below the existing `root`, with all between, for the owner alone.

    What is made here is durable on return; what another process made may not be yet, which
    `fsync_chain` sees to. Raises ValueError when `folder` is not below `root`.
    """
    at = root
    for part in folder.relative_to(root).parts:
        at /= part
        try:
            at.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:
            continue
        fsync_folder(at.parent)


def fsync_chain(root: Path, folder: Path) -> None:
    """Make the entries of `folder` and of each folder above it, up to `root`, durable.

    What somebody else linked or made, and may have died before its fsync, is durable after this.
    """
    at = folder
    while True:
        fsync_folder(at)
        if at == root:
            return
        at = at.parent


def write_whole(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replace the file at `path` by one that holds `data`: readers see the old or the new, whole.

    Durable on return. Raises OSError, and then leaves the old file and no temporary.
    """
    temporary = _written_beside(path, data, mode)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def create_whole(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Create the file at `path` with `data`, whole and durable.

    Raises FileExistsError when there is one already, and leaves that one as it is.
    """
    temporary = _written_beside(path, data, mode)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)


def _written_beside(path: Path, data: bytes, mode: int) -> Path:
    temporary = path.parent / f".{secrets.token_hex(8)}.part"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
