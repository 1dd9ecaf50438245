"""Receive uploads: parse headers, limit concurrency, require a minimum throughput, and resume."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

from aiohttp import web

from sync.receiver.http_errors import HttpError
from sync.receiver.incoming_files import (
    IncomingFile,
    OffsetError,
    PartialUploads,
    UploadInProgressError,
)
from sync.receiver.limits import ReceiverLimits
from sync.receiver.listener import abort
from sync.receiver.metrics import Metrics
from sync.receiver.threads import ThreadRunner

SHA256_HEADER: Final = "X-Fieldpost-SHA256"
DIGEST_HEADER: Final = "X-Fieldpost-Digest"
OFFSET_HEADER: Final = "X-Fieldpost-Offset"
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)


class UploadHeaders(NamedTuple):
    """The SHA-256 of the whole file, and `length` and offset (`start`) of the part that is sent."""

    body_sha256: bytes
    length: int
    start: int = 0


def parse_upload_headers(request: web.Request, max_bytes: int) -> UploadHeaders:
    """Read and check the headers of a PUT; the whole upload may have at most `max_bytes` bytes.

    `Content-Range` of a resumed upload must name the rest of the body (RFC 9110, 14.4). Raises
    HttpError.
    """
    length = request.content_length
    if length is None:
        raise HttpError(411, "length", "Content-Length is required")
    start = _parse_start(request.headers.get("Content-Range"), length)
    if start + length > max_bytes:
        raise HttpError(413, "size", f"the body is larger than {max_bytes} bytes")
    body_sha256 = parse_body_sha256(request)
    if body_sha256 is None:
        raise HttpError(400, "sha256", f"{SHA256_HEADER} is missing")
    return UploadHeaders(body_sha256, length, start)


def parse_body_sha256(request: web.Request) -> bytes | None:
    """Return the SHA-256 that a header gives for the whole body, if any. Raises HttpError."""
    text = request.headers.get(SHA256_HEADER)
    if text is None:
        return None
    if _SHA256.fullmatch(text) is None:
        raise HttpError(400, "sha256", f"{SHA256_HEADER} is not a SHA-256 in hexadecimal")
    return bytes.fromhex(text)


def _parse_start(text: str | None, length: int) -> int:
    if text is None:
        return 0
    found = _RANGE.fullmatch(text)
    start, end, total = map(int, found.groups()) if found else (0, 0, 0)
    if found is None or end + 1 != total or end + 1 - start != length or length == 0:
        text = "Content-Range must name the rest of the body, up to its last byte"
        raise HttpError(400, "range", text)
    return start


class MinThroughput:
    """Checks that at least `rate` bytes per second arrive in each window of `window_s` seconds.

    A window ends with the first data after `window_s`, so a stalled upload needs its own timeout.
    """

    def __init__(
        self, rate: float, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._window_s = window_s
        self._clock = clock
        self._window_start = clock()
        self._received = 0

    def add(self, size: int) -> bool:
        """Count `size` bytes; return whether the throughput is sufficient."""
        self._received += size
        elapsed = self._clock() - self._window_start
        if elapsed < self._window_s:
            return True
        sufficient = self._received >= self._rate * elapsed
        self._window_start += elapsed
        self._received = 0
        return sufficient


class _Sender(NamedTuple):
    """The connection that sends a resumable upload, and an event set when it released the file."""

    transport: asyncio.Transport | None
    released: asyncio.Event


class Uploads:
    """The uploads in progress. Files are accessed in threads only."""

    def __init__(
        self,
        partials: PartialUploads,
        metrics: Metrics,
        limits: ReceiverLimits,
        in_thread: ThreadRunner,
    ) -> None:
        self._metrics = metrics
        self._partials = partials
        self._limits = limits
        self._in_thread = in_thread
        self._slots: Counter[str] = Counter()
        self._senders: dict[tuple[str, bytes], _Sender] = {}
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def count(self) -> int:
        """The number of uploads in progress, and of other requests that occupy a slot."""
        return self._slots.total()

    @property
    def stopping(self) -> bool:
        """Return whether new uploads are refused because the receiver stops."""
        return self._stopping.is_set()

    async def drain(self) -> None:
        """Refuse new uploads; wait for those in progress, at most `drain_timeout_s` seconds."""
        self._stopping.set()
        if self._slots:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.drain_timeout_s):
                    await self._drained.wait()

    @contextlib.contextmanager
    def slot(self, gateway: str) -> Iterator[None]:
        """Occupy one of the slots for concurrent uploads. Raises HttpError if none is free."""
        if self._stopping.is_set():
            raise self.unavailable("stopping", "the receiver is stopping")
        if self._slots[gateway] >= self._limits.uploads_per_gateway:
            text = "this gateway has too many uploads in progress"
            raise HttpError(429, "busy", text, self._limits.retry_after_s)
        if self._slots.total() >= self._limits.uploads:
            raise self.unavailable("busy", "the receiver has too many uploads in progress")
        self._slots[gateway] += 1
        try:
            yield
        finally:
            self._slots[gateway] -= 1
            if not self._slots[gateway]:
                del self._slots[gateway]
            if self._stopping.is_set() and not self._slots:
                self._drained.set()

    def unavailable(self, reason: str, text: str) -> HttpError:
        """Return the error (503) for a request that the client can repeat soon."""
        return HttpError(503, reason, text, self._limits.retry_after_s)

    async def received_bytes(self, gateway: str, body_sha256: bytes) -> int:
        """Return the number of stored bytes of an upload, after aborting its old connection."""
        await self._end_previous_sender(gateway, body_sha256)
        return await self._in_thread(self._partials.size, gateway, body_sha256)

    @contextlib.asynccontextmanager
    async def receive(
        self, request: web.Request, gateway: str, headers: UploadHeaders
    ) -> AsyncIterator[bytes]:
        """Receive a body and yield it.

        An interrupted upload is kept so that it can be resumed. Raises HttpError.
        """
        with self.slot(gateway):
            incoming = await self._open(gateway, headers)
            with self._sender(request, (gateway, headers.body_sha256), incoming):
                try:
                    rest = await self._receive(request, incoming)
                    yield await self._in_thread(incoming.take, rest)
                finally:
                    await asyncio.shield(self._in_thread(incoming.close))

    @contextlib.contextmanager
    def _sender(
        self, request: web.Request, key: tuple[str, bytes], incoming: IncomingFile
    ) -> Iterator[None]:
        """Register the connection, so that a new one of its sender can take over the upload."""
        if not incoming.kept:
            yield
            return
        sender = self._senders[key] = _Sender(request.transport, asyncio.Event())
        try:
            yield
        finally:
            sender.released.set()
            if self._senders.get(key) is sender:
                del self._senders[key]

    async def _open(self, gateway: str, headers: UploadHeaders) -> IncomingFile:
        """Open an upload's file, or another file if another request sends the same body."""
        if headers.start:
            await self._end_previous_sender(gateway, headers.body_sha256)
        try:
            return await self._in_thread(
                self._partials.open, gateway, headers.body_sha256, headers.start
            )
        except OffsetError as error:
            text = f"{error.size} bytes of this body are stored; continue there"
            more = {OFFSET_HEADER: str(error.size)}
            raise HttpError(416, "offset", text, headers=more) from None
        except UploadInProgressError:
            if headers.start:
                raise self.unavailable("held", "another request uploads this body") from None
        return await self._in_thread(self._partials.open_unnamed, gateway)

    async def _end_previous_sender(self, gateway: str, body_sha256: bytes) -> None:
        """Abort the connection that sends this body, because its sender uses a new one.

        Usually the old connection's link is gone, and it would occupy the file until its timeout.
        """
        sender = self._senders.get((gateway, body_sha256))
        if sender is not None:
            if sender.transport is not None:
                abort(sender.transport)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.takeover_timeout_s):
                    await sender.released.wait()

    async def read_small(self, request: web.Request) -> bytes:
        """Read a small body into memory. Raises HttpError."""
        with _body_errors():
            async with asyncio.timeout(self._limits.stall_timeout_s):
                return await request.read()

    async def _receive(self, request: web.Request, incoming: IncomingFile) -> bytearray:
        with _body_errors():
            async with asyncio.timeout(self._limits.body_timeout_s):
                return await self._copy(request, incoming)

    async def _copy(self, request: web.Request, incoming: IncomingFile) -> bytearray:
        """Write a large body to its file, and return the rest, which may be the whole body.

        If the upload is interrupted, write the part that arrived.
        """
        buffer = bytearray()
        throughput = MinThroughput(
            self._limits.min_bytes_per_s, self._limits.min_throughput_window_s
        )
        try:
            while data := await self._read(request):
                buffer += data
                if not throughput.add(len(data)):
                    raise TimeoutError
                if len(buffer) >= self._limits.buffer_bytes:
                    full, buffer = buffer, bytearray()
                    await self._in_thread(incoming.write, full)
        except BaseException:
            if buffer:
                await asyncio.shield(self._in_thread(incoming.write, buffer))
            raise
        return buffer

    async def _read(self, request: web.Request) -> bytes:
        async with asyncio.timeout(self._limits.stall_timeout_s):
            data = await request.content.readany()
        self._metrics.received_bytes += len(data)
        return data


@contextlib.contextmanager
def _body_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise HttpError(408, "slow", "the body arrived too slowly") from None
    except (web.RequestPayloadError, ConnectionError):
        raise HttpError(400, "cut", "the body ended before its Content-Length") from None
