"""The receiver: HTTP requests of gateways to segments in the landing.

Decides who may write what, within which bounds, and what each outcome is called in HTTP. Knows no
TLS and no sockets (`sync.central.server`), and no layout of files (`sync.central.landing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from aiohttp import web

from sync.central.errors import FleetError
from sync.central.heads import Head, heads
from sync.central.landing import Outcome
from sync.central.logs import tell
from sync.central.refusal import Refusal
from sync.format import Identity, SegmentError, parse_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from aiohttp.typedefs import Handler

    from sync.central.folders import FleetFolder
    from sync.central.gateways import Gateways
    from sync.central.landing import Incoming, Landed, Landing
    from sync.central.limits import ReceiverLimits

Ts = TypeVarTuple("Ts")
T = TypeVar("T")

SHA256_HEADER: Final = "X-Fieldpost-SHA256"
DIGEST_HEADER: Final = "X-Fieldpost-Digest"
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SEGMENT: Final = "/v1/segments/{gateway}/{epoch}/{lane}/{numbers}"
_EPOCH: Final = "/v1/gateways/{gateway}/epochs/{epoch}"


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Name the product, and neither its version nor what it is built on."""
    del request
    response.headers["Server"] = "fieldpost"


class Receiver:
    """Answers the requests of gateways. Files are touched in the threads of `pool` alone."""

    def __init__(
        self,
        folder: FleetFolder,
        gateways: Gateways,
        landing: Landing,
        limits: ReceiverLimits,
        pool: Executor,
    ) -> None:
        self._folder = folder
        self._gateways = gateways
        self._landing = landing
        self._limits = limits
        self._pool = pool
        self._bodies: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._none_left = asyncio.Event()

    def application(self) -> web.Application:
        """The routes, with every refusal turned into its answer."""
        app = web.Application(middlewares=[self._answer_refusals])
        app.on_response_prepare.append(_sign)
        app.router.add_put(_SEGMENT, self._put)
        app.router.add_head(_SEGMENT, self._head)
        app.router.add_get(_EPOCH, self._heads, allow_head=False)
        return app

    async def drain(self) -> None:
        """Begin no body any more, and wait for those on the way, for `grace_s` at most."""
        self._stopping.set()
        if self._bodies:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.grace_s):
                    await self._none_left.wait()

    @web.middleware
    async def _answer_refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            told = refusal
        except web.HTTPException as error:
            told = Refusal(error.status, "request", "no such request")
        except SegmentError as error:
            told = Refusal(400, error.reason, error.text)
        except FleetError as error:
            tell(logging.ERROR, "damaged", text=str(error))
            told = self._busy("enrolment", "the enrolment cannot be read")
        except OSError as error:
            tell(logging.ERROR, "storage", text=str(error), path=request.path)
            told = self._storage(error)
        tell(
            logging.INFO,
            "refused",
            status=told.status,
            reason=told.reason,
            text=told.text,
            path=request.path,
            peer=request.remote,
        )
        return told.response()

    async def _put(self, request: web.Request) -> web.Response:
        identity = await self._authorised(request)
        length, body_sum = self._announced(request)
        with self._slot(identity.gateway):
            incoming = await self._in_thread(self._landing.receive)
            try:
                await self._receive(request, incoming, length)
                landed = await self._in_thread(self._land, incoming, identity, body_sum)
            finally:
                await asyncio.shield(self._in_thread(incoming.close))
        if landed.outcome is Outcome.OTHER:
            kept = "kept aside" if landed.aside else "not kept: too many are"
            text = f"other bytes have that name; these are {kept}"
            raise Refusal(409, "conflict", text)
        status = 201 if landed.outcome is Outcome.NEW else 200
        return web.json_response({"digest": landed.digest.hex()}, status=status)

    async def _head(self, request: web.Request) -> web.Response:
        identity = await self._authorised(request)
        found = await self._in_thread(self._landing.find, identity)
        if found is None:
            return web.Response(status=404)
        headers = {DIGEST_HEADER: found.digest.hex(), "Content-Length": str(found.size)}
        return web.Response(headers=headers)

    async def _heads(self, request: web.Request) -> web.Response:
        """How far each lane of an epoch has come; counted as a body is, so that it is bounded."""
        gateway = await self._caller(request)
        with self._slot(gateway):
            epoch = request.match_info["epoch"]
            lanes = await self._in_thread(heads, self._folder, self._landing, gateway, epoch)
        return web.json_response({"lanes": {lane: _shown(head) for lane, head in lanes.items()}})

    async def _authorised(self, request: web.Request) -> Identity:
        """The segment that the path names, if the caller is its gateway."""
        gateway = await self._caller(request)
        parts = request.match_info
        return parse_identity("/".join((gateway, parts["epoch"], parts["lane"], parts["numbers"])))

    async def _caller(self, request: web.Request) -> str:
        """The gateway that calls, which is the one that the path names.

        An unknown gateway and a wrong token are told alike, so that names cannot be probed.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        gateway = None
        if scheme.lower() == "bearer":
            gateway = await self._in_thread(self._gateways.authenticate, token.strip())
        if gateway is None:
            raise Refusal(401, "token", "no enrolled gateway has this token")
        if gateway != request.match_info["gateway"]:
            raise Refusal(403, "gateway", "a gateway writes its own segments alone")
        return gateway

    def _announced(self, request: web.Request) -> tuple[int, bytes]:
        """The length and the SHA-256 that the head of the request announces."""
        length = request.content_length
        if length is None:
            raise Refusal(411, "length", "a body needs its Content-Length")
        if length > self._limits.body_bytes:
            raise Refusal(413, "size", f"a body has at most {self._limits.body_bytes} bytes")
        body_sum = request.headers.get(SHA256_HEADER, "")
        if _SHA256.fullmatch(body_sum) is None:
            raise Refusal(400, "sha256", f"{SHA256_HEADER} is not a SHA-256 in hexadecimal")
        return length, bytes.fromhex(body_sum)

    @contextlib.contextmanager
    def _slot(self, gateway: str) -> Iterator[None]:
        """Count a body in, if there is room for one more."""
        if self._stopping.is_set():
            raise self._busy("stopping", "the receiver is about to stop")
        if self._bodies[gateway] >= self._limits.bodies_per_gateway:
            text = "this gateway has too many bodies on the way"
            raise Refusal(429, "busy", text, self._limits.retry_after_s)
        if self._bodies.total() >= self._limits.bodies:
            raise self._busy("busy", "too many bodies are on the way")
        self._bodies[gateway] += 1
        try:
            yield
        finally:
            self._bodies[gateway] -= 1
            if not self._bodies[gateway]:
                del self._bodies[gateway]
            if self._stopping.is_set() and not self._bodies:
                self._none_left.set()

    async def _receive(self, request: web.Request, incoming: Incoming, length: int) -> None:
        """Write the body to its temporary; the length is announced, and HTTP keeps to it."""
        try:
            async with asyncio.timeout(self._limits.body_time(length)):
                await self._copy(request, incoming)
        except TimeoutError:
            raise Refusal(408, "slow", "the body came too slowly") from None
        except (web.RequestPayloadError, ConnectionError):
            raise Refusal(400, "cut", "the body ended early") from None

    async def _copy(self, request: web.Request, incoming: Incoming) -> None:
        gathered = bytearray()
        while True:
            async with asyncio.timeout(self._limits.stall_s):
                data = await request.content.readany()
            gathered += data
            if not data or len(gathered) >= self._limits.buffer_bytes:
                await self._in_thread(incoming.write, gathered)
                gathered = bytearray()
            if not data:
                return

    def _land(self, incoming: Incoming, identity: Identity, body_sum: bytes) -> Landed:
        """Check a whole body and land it under the name of its own header; runs in a thread."""
        if incoming.sha256() != body_sum:
            raise Refusal(400, "sha256", f"the body is not the one of {SHA256_HEADER}")
        verified = self._landing.verify(incoming)
        if verified.identity != identity:
            raise Refusal(400, "name", "the segment's header names another segment")
        return self._landing.land(verified, incoming)

    def _busy(self, reason: str, text: str) -> Refusal:
        return Refusal(503, reason, text, self._limits.retry_after_s)

    def _storage(self, error: OSError) -> Refusal:
        if error.errno in _FULL:
            text = "the centre's disk is full"
            return Refusal(507, "full", text, self._limits.retry_after_full_s)
        return self._busy("storage", "the centre cannot store anything just now")

    async def _in_thread(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a blocking call in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)


def _shown(head: Head) -> dict[str, int | str]:
    return {"last": head.last, "digest": head.digest.hex()}
