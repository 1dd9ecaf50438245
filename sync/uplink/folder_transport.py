"""Segments into a folder: a mounted share, a stick, or a test's.

Each appears whole and durable under its own name, `GATEWAY/EPOCH/LANE/FIRST-LAST.seg`, and is
never replaced. The folder has to be marked, and is never made: an empty mount point is not the
share that should be there, and what went into it would be taken for shipped. Reads no segment but
the last one of a lane; what becomes of the files is the centre's business.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from sync.common.text import os_error
from sync.segment import (
    MAX_FILE,
    SegmentError,
    digest_of,
    identity_path,
    parse_identity,
    read_header,
)
from sync.uplink.interfaces import HighWatermark, WaitingSegment
from sync.uplink.responses import (
    Acknowledgement,
    Conflict,
    Outcome,
    TemporaryFailure,
    one_line,
)

T = TypeVar("T")

MARKER: Final = "fieldpost-segments"
"""The file that marks a folder as the one that is meant."""

SUFFIX: Final = ".seg"

_SECONDS: Final = 60.0
"""Seconds for one segment: a share that needs more has gone."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""How file systems without hard links say so: the FAT of a stick, some shares."""

_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})
"""How file systems say that a folder cannot be made durable by itself: they do it with its file."""


class FolderTransport:
    """Writes segments into `root`."""

    def __init__(self, root: Path, seconds: float = _SECONDS) -> None:
        self._root = root
        self._seconds = seconds
        self._work: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        return f"FolderTransport({str(self._root)!r})"

    async def put(self, waiting: WaitingSegment) -> Outcome:
        """Write a segment. Whatever the folder cannot do just now is `Later`."""
        return await self._do(lambda: self._put(waiting))

    async def heads(self, gateway: str, epoch: str) -> Mapping[str, HighWatermark] | Outcome:
        """Say how far the lanes of an epoch are there."""
        return await self._do(lambda: self._heads(gateway, epoch))

    async def close(self) -> None:
        """Do nothing: no file is kept open between two segments."""

    async def _do(self, call: Callable[[], T]) -> T | TemporaryFailure:
        """Run a call in a thread, one at a time: one that hangs on a dead share holds no second."""
        if self._work is not None and not self._work.done():
            return TemporaryFailure(f"{self._root} does not answer")
        work = asyncio.get_running_loop().run_in_executor(None, call)
        work.add_done_callback(_end)
        self._work = work
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            return TemporaryFailure(f"{self._root} does not answer")
        except OSError as error:
            return TemporaryFailure(one_line(os_error(error)))

    def _put(self, waiting: WaitingSegment) -> Outcome:
        self._check()
        path = self._root / f"{identity_path(waiting.identity)}{SUFFIX}"
        self._make_folders(path.parent)
        if not path.exists() and _write(path, waiting.data):
            self._sync(path.parent)
            return Acknowledgement(waiting.digest, new=True)
        if _read(path) == waiting.data:
            self._sync(path.parent)
            return Acknowledgement(waiting.digest, new=False)
        beside = path.with_name(f"{path.stem}.{sha256(waiting.data).hexdigest()[:16]}{SUFFIX}")
        if not beside.exists():
            _write(beside, waiting.data)
        self._sync(path.parent)
        return Conflict(f"other bytes have that name; these are in {beside.name}")

    def _heads(self, gateway: str, epoch: str) -> Mapping[str, HighWatermark]:
        self._check()
        folder = self._root / gateway / epoch
        if not folder.is_dir():
            return {}
        found = ((lane.name, _head(self._root, lane)) for lane in folder.iterdir() if lane.is_dir())
        return {lane: head for lane, head in found if head is not None}

    def _check(self) -> None:
        check_marked(self._root)

    def _make_folders(self, folder: Path) -> None:
        at = self._root
        for part in folder.relative_to(self._root).parts:
            at /= part
            if not at.exists():
                at.mkdir(exist_ok=True)
                _sync_folder(at.parent)

    def _sync(self, folder: Path) -> None:
        """Make a folder's entries durable, and those that lead to it."""
        for at in (folder, *folder.parents):
            _sync_folder(at)
            if at == self._root:
                return


def check_marked(root: Path) -> None:
    """Raise `OSError` unless the folder is there, and is the one that is meant."""
    if not (root / MARKER).is_file():
        text = f"not there, or not marked by a file {MARKER}"
        raise FileNotFoundError(errno.ENOENT, text, str(root))


def parse_folder(text: str, base: Path) -> Path:
    """Read a path, relative to `base`, or a URL `file:///PATH`; raises `ValueError`."""
    if not text.startswith("file:"):
        return base / text
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("not a path, and not file:///PATH")
    return Path(unquote(parts.path))


def _head(root: Path, lane: Path) -> HighWatermark | None:
    """Return a lane's last segment that is one: a stick may have been pulled out too early."""
    ends = []
    for path in lane.glob(f"*{SUFFIX}"):
        try:
            name = path.relative_to(root).as_posix().removesuffix(SUFFIX)
            ends.append((parse_identity(name).last_seq, path))
        except SegmentError:  # the bytes that contradict another
            continue
    for last, path in sorted(ends, reverse=True):
        data = _read(path)
        try:
            read_header(data)
        except SegmentError:
            continue
        return HighWatermark(last, digest_of(data))
    return None


def _read(path: Path) -> bytes:
    """Read a file as far as a segment can go, and a byte more."""
    with path.open("rb") as file:
        return file.read(MAX_FILE + 1)


def _write(path: Path, data: bytes) -> bool:
    """Give a new, durable file its name at once; False if the name is taken meanwhile.

    What an attempt that was cut left behind is removed.
    """
    for left in path.parent.glob(f".{path.name}.*"):
        left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return _name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _name(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        temporary.rename(path)  # nobody else writes this gateway's segments here
    return True


def _end(work: asyncio.Future[T]) -> None:
    """Look at what became of a call that nobody waits for any more."""
    if not work.cancelled():
        work.exception()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)
