"""Takes bodies in: how many at once, how slow they may be, and what stays of one that was cut.

Knows what a body is announced as, and not what is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from aiohttp import web

from sync.receiver.http_errors import HttpError
from sync.receiver.incoming_files import IncomingFile, OffsetError
from sync.receiver.landing import Landing
from sync.receiver.limits import ReceiverLimits
from sync.receiver.metrics import Metrics
from sync.receiver.min_throughput import MinThroughput
from sync.receiver.partial_uploads import PartialUploads, UploadInProgressError
from sync.receiver.threads import ThreadRunner
from sync.receiver.upload_headers import OFFSET_HEADER, UploadHeaders


class _Holder(NamedTuple):
    """The request that has the beginning of a body, and whether it has let go of it."""

    transport: asyncio.Transport | None
    done: asyncio.Event


class Uploads:
    """The bodies that are on their way. Files are touched in threads alone."""

    def __init__(
        self,
        landing: Landing,
        partials: PartialUploads,
        metrics: Metrics,
        limits: ReceiverLimits,
        in_thread: ThreadRunner,
    ) -> None:
        self._metrics = metrics
        self._landing = landing
        self._partials = partials
        self._limits = limits
        self._in_thread = in_thread
        self._places: Counter[str] = Counter()
        self._holders: dict[tuple[str, bytes], _Holder] = {}
        self._stopping = asyncio.Event()
        self._none_left = asyncio.Event()

    @property
    def count(self) -> int:
        """How many are on their way."""
        return self._places.total()

    @property
    def stopping(self) -> bool:
        """Whether none is begun any more."""
        return self._stopping.is_set()

    async def drain(self) -> None:
        """Begin no body any more, and wait for those on the way, for `grace_s` at most."""
        self._stopping.set()
        if self._places:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.grace_s):
                    await self._none_left.wait()

    @contextlib.contextmanager
    def place(self, gateway: str) -> Iterator[None]:
        """Count one in, if there is room for one more. Raises Refusal."""
        if self._stopping.is_set():
            raise self.busy("stopping", "the receiver is about to stop")
        if self._places[gateway] >= self._limits.bodies_per_gateway:
            text = "this gateway has too many bodies on the way"
            raise HttpError(429, "busy", text, self._limits.retry_after_s)
        if self._places.total() >= self._limits.bodies:
            raise self.busy("busy", "too many bodies are on the way")
        self._places[gateway] += 1
        try:
            yield
        finally:
            self._places[gateway] -= 1
            if not self._places[gateway]:
                del self._places[gateway]
            if self._stopping.is_set() and not self._places:
                self._none_left.set()

    def busy(self, reason: str, text: str) -> HttpError:
        """The refusal of a request that may come again soon."""
        return HttpError(503, reason, text, self._limits.retry_after_s)

    def cost(self, gateway: str, body: UploadHeaders) -> int:
        """Bytes that a body costs: what comes, and what has to be read again to go on with it."""
        known = self._partials.remembers(gateway, body.body_sum, body.start)
        return body.length + (0 if known else body.start)

    async def there(self, gateway: str, body_sum: bytes) -> int:
        """Bytes that are there of a body, of which its sender does not send more now."""
        await self._end_older(gateway, body_sum)
        return await self._in_thread(self._partials.size, gateway, body_sum)

    @contextlib.asynccontextmanager
    async def receiving(
        self, request: web.Request, gateway: str, body: UploadHeaders
    ) -> AsyncIterator[IncomingFile]:
        """Take a body in, and give it whole; what the caller does not adopt and is cut, stays.

        Raises Refusal.
        """
        with self.place(gateway):
            incoming = await self._begin(gateway, body)
            with self._held(request, (gateway, body.body_sum), incoming):
                try:
                    await self._receive(request, incoming)
                    yield incoming
                finally:
                    await asyncio.shield(self._in_thread(incoming.close))

    @contextlib.contextmanager
    def _held(
        self, request: web.Request, key: tuple[str, bytes], incoming: IncomingFile
    ) -> Iterator[None]:
        """Note who has the beginning of a body, so that its sender can take it back."""
        if not incoming.kept:
            yield
            return
        holder = self._holders[key] = _Holder(request.transport, asyncio.Event())
        try:
            yield
        finally:
            holder.done.set()
            if self._holders.get(key) is holder:
                del self._holders[key]

    async def _begin(self, gateway: str, body: UploadHeaders) -> IncomingFile:
        """Open the file of a body; one that another request has is only received, and not kept."""
        if body.start:
            await self._end_older(gateway, body.body_sum)
        try:
            return await self._in_thread(self._partials.open, gateway, body.body_sum, body.start)
        except OffsetError as error:
            text = f"of this body {error.there} bytes are there"
            raise HttpError(416, "offset", text, more={OFFSET_HEADER: str(error.there)}) from None
        except UploadInProgressError:
            if body.start:
                raise self.busy("held", "another request sends this body") from None
        return await self._in_thread(self._landing.receive)

    async def _end_older(self, gateway: str, body_sum: bytes) -> None:
        """Cut the connection that sends this body: its sender has come on another one.

        The link below it is gone, most often, and it would be waited for until it stalls.
        """
        holder = self._holders.get((gateway, body_sum))
        if holder is not None:
            if holder.transport is not None:
                holder.transport.abort()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.takeover_s):
                    await holder.done.wait()

    async def small(self, request: web.Request) -> bytes:
        """Read a body that has a few bytes, into memory. Raises Refusal."""
        try:
            async with asyncio.timeout(self._limits.stall_s):
                return await request.read()
        except TimeoutError:
            raise HttpError(408, "slow", "the body came too slowly") from None
        except (web.RequestPayloadError, ConnectionError):
            raise HttpError(400, "cut", "the body ended early") from None

    async def _receive(self, request: web.Request, incoming: IncomingFile) -> None:
        """Write the body to its file; its length was announced, and HTTP keeps to it."""
        try:
            async with asyncio.timeout(self._limits.body_s):
                await self._copy(request, incoming)
        except TimeoutError:
            raise HttpError(408, "slow", "the body came too slowly") from None
        except (web.RequestPayloadError, ConnectionError):
            raise HttpError(400, "cut", "the body ended early") from None

    async def _copy(self, request: web.Request, incoming: IncomingFile) -> None:
        """Write what comes, and at the end what is gathered, however it ends."""
        gathered = bytearray()
        floor = MinThroughput(self._limits.body_bytes_per_s, self._limits.body_pace_s)
        try:
            while data := await self._next(request):
                gathered += data
                if not floor.came(len(data)):
                    raise TimeoutError
                if len(gathered) >= self._limits.buffer_bytes:
                    whole, gathered = gathered, bytearray()
                    await self._in_thread(incoming.write, whole)
        finally:
            if gathered:
                await asyncio.shield(self._in_thread(incoming.write, gathered))

    async def _next(self, request: web.Request) -> bytes:
        async with asyncio.timeout(self._limits.stall_s):
            data = await request.content.readany()
        self._metrics.body_bytes += len(data)
        return data
