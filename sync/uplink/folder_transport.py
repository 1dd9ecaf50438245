"""Write segments into a folder, such as a mounted share or a USB stick.

Each segment appears whole and durable under its name, `GATEWAY/EPOCH/LANE/FIRST-LAST.seg`, and is
never replaced. The folder must exist and contain the marker file: otherwise segments written to an
empty mount point would count as shipped.
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

from sync.common.durable_files import fsync_folder
from sync.common.text import os_error
from sync.segment import (
    MAX_FILE,
    SUFFIX,
    SegmentError,
    digest_of,
    identity_path,
    parse_identity,
    read_header,
)
from sync.uplink.interfaces import HighWatermark, WaitingSegment
from sync.uplink.responses import Acknowledgement, Conflict, Outcome, TemporaryFailure, one_line

T = TypeVar("T")

MARKER: Final = "fieldpost-segments"
"""The file that marks a folder as the destination of segments."""

_TIMEOUT_S: Final = 60.0
"""Seconds to write one segment. After that time, the share counts as unreachable."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without hard links, such as FAT on a stick and some shares."""

_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})
"""Errors of file systems that cannot fsync a folder: there, an fsync of a file is sufficient."""


class FolderTransport:
    """A transport that ships segments by writing them into the folder `root`."""

    def __init__(self, root: Path, timeout_s: float = _TIMEOUT_S) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._running: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        return f"FolderTransport({str(self._root)!r})"

    async def put(self, waiting: WaitingSegment) -> Outcome:
        return await self._run(lambda: self._put(waiting))

    async def high_watermarks(
        self, gateway: str, epoch: str
    ) -> Mapping[str, HighWatermark] | Outcome:
        return await self._run(lambda: self._high_watermarks(gateway, epoch))

    async def close(self) -> None:
        """Do nothing: no file stays open between two segments."""

    async def _run(self, call: Callable[[], T]) -> T | TemporaryFailure:
        """Run a call in a thread; refuse while an earlier call hangs on an unreachable share."""
        if self._running is not None and not self._running.done():
            return TemporaryFailure(f"{self._root} does not respond")
        running = asyncio.get_running_loop().run_in_executor(None, call)
        running.add_done_callback(_retrieve_exception)
        self._running = running
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(running)
        except TimeoutError:
            return TemporaryFailure(f"{self._root} does not respond")
        except OSError as error:
            return TemporaryFailure(one_line(os_error(error)))

    def _put(self, waiting: WaitingSegment) -> Outcome:
        check_marked(self._root)
        path = self._root / f"{identity_path(waiting.identity)}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() and _write(path, waiting.data):
            self._sync(path.parent)
            return Acknowledgement(waiting.digest, new=True)
        if _read(path) == waiting.data:
            self._sync(path.parent)
            return Acknowledgement(waiting.digest, new=False)
        aside = path.with_name(f"{path.stem}.{sha256(waiting.data).hexdigest()[:16]}{SUFFIX}")
        if not aside.exists():
            _write(aside, waiting.data)
        self._sync(path.parent)
        text = f"a different segment with this name exists; this one was saved as {aside.name}"
        return Conflict(text)

    def _high_watermarks(self, gateway: str, epoch: str) -> Mapping[str, HighWatermark]:
        check_marked(self._root)
        folder = self._root / gateway / epoch
        if not folder.is_dir():
            return {}
        lanes = [lane for lane in folder.iterdir() if lane.is_dir()]
        found = ((lane.name, _high_watermark(self._root, lane)) for lane in lanes)
        return {lane: mark for lane, mark in found if mark is not None}

    def _sync(self, folder: Path) -> None:
        for current in (folder, *folder.parents):
            _sync_folder(current)
            if current == self._root:
                return


def check_marked(root: Path) -> None:
    """Raise `OSError` unless the folder exists and contains the marker file."""
    if not (root / MARKER).is_file():
        text = f"the folder must exist and contain a file named {MARKER}"
        raise FileNotFoundError(errno.ENOENT, text, str(root))


def parse_folder(text: str, base: Path) -> Path:
    """Parse a path, relative to `base`, or a URL `file:///PATH`; raises `ValueError`."""
    if not text.startswith("file:"):
        return base / text
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("not a path or a URL file:///PATH")
    return Path(unquote(parts.path))


def _high_watermark(root: Path, lane: Path) -> HighWatermark | None:
    """Return the number and digest of a lane's last valid segment; skip truncated files."""
    segments = []
    for path in lane.glob(f"*{SUFFIX}"):
        try:
            name = path.relative_to(root).as_posix().removesuffix(SUFFIX)
            segments.append((parse_identity(name).last_seq, path))
        except SegmentError:  # a conflicting segment that was saved beside another
            continue
    for last, path in sorted(segments, reverse=True):
        data = _read(path)
        try:
            read_header(data)
        except SegmentError:
            continue
        return HighWatermark(last, digest_of(data))
    return None


def _read(path: Path) -> bytes:
    """Read a file, at most one byte more than the largest segment has."""
    with path.open("rb") as file:
        return file.read(MAX_FILE + 1)


def _write(path: Path, data: bytes) -> bool:
    """Write a file durably under its final name; return False if that name exists.

    Temporary files of interrupted attempts are removed.
    """
    for abandoned in path.parent.glob(f".{path.name}.*"):
        abandoned.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        temporary.rename(path)  # only this gateway writes its segments here
    return True


def _retrieve_exception(running: asyncio.Future[T]) -> None:
    """Mark the exception of a call as retrieved, even if nothing waits for it any more."""
    if not running.cancelled():
        running.exception()


def _sync_folder(folder: Path) -> None:
    try:
        fsync_folder(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
