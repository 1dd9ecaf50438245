"""The receiver: HTTP requests of gateways to segments in the landing.

Decides who may write what, within which bounds, and what each outcome is called in HTTP. Knows no
TLS and no sockets (`sync.receiver.server`), and no layout of files (`sync.receiver.landing`).
"""

from __future__ import annotations

import errno
import logging
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import log_event
from sync.receiver.authentication import Authenticator
from sync.receiver.client_certificates import MAX_REQUEST_BYTES, SigningRequestError, renew
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.high_watermarks import HighWatermark, high_watermarks
from sync.receiver.http_errors import HttpError
from sync.receiver.incoming_files import IncomingFile
from sync.receiver.landing import Landing, LandingResult, Outcome
from sync.receiver.limits import ReceiverLimits
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.rate_limit import RateLimiter
from sync.receiver.threads import ThreadRunner
from sync.receiver.upload_headers import (
    DIGEST_HEADER,
    OFFSET_HEADER,
    SHA256_HEADER,
    parse_body_sha256,
    parse_upload_headers,
)
from sync.receiver.uploads import Uploads
from sync.segment import Identity, SegmentError, parse_identity

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


_caller_known: Final = ContextVar("caller", default="")
"""The gateway whose request the task is about, once it is known: each request has a task."""

DAY_S: Final = 24 * 3600.0
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SEGMENT: Final = "/v1/segments/{gateway}/{epoch}/{lane}/{numbers}"
_CERTIFICATE: Final = "/v1/gateways/{gateway}/certificate"
_EPOCH: Final = "/v1/gateways/{gateway}/epochs/{epoch}"


class HttpApi:
    """Answers the requests of gateways. Files are touched in the threads of `pool` alone."""

    def __init__(
        self,
        folder: FleetFolder,
        callers: Authenticator,
        landing: Landing,
        bodies: Uploads,
        room: DiskQuota,
        metrics: Metrics,
        limits: ReceiverLimits,
        in_thread: ThreadRunner,
        seldom: LogThrottle,
    ) -> None:
        self._seldom = seldom
        self._folder = folder
        self._gateways = GatewayRegistry(folder)
        self._callers = callers
        self._landing = landing
        self._bodies = bodies
        self._limits = limits
        self._in_thread = in_thread
        self._room = room
        self._metrics = metrics
        self._requests = RateLimiter(limits.requests_per_s, limits.rate_window_s)
        self._bytes = RateLimiter(limits.bytes_per_s, limits.rate_window_s)
        self._signings = RateLimiter(limits.certificates_per_day / DAY_S, DAY_S)

    def application(self) -> web.Application:
        """The routes, with every refusal turned into its answer."""
        app = web.Application(middlewares=[self._answer_refusals])
        app.on_response_prepare.append(self._sign)
        app.router.add_put(_SEGMENT, self._put)
        app.router.add_head(_SEGMENT, self._head)
        app.router.add_get(_EPOCH, self._heads, allow_head=False)
        app.router.add_post(_CERTIFICATE, self._certify)
        return app

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Name the product, and neither its version nor what it is built on.

        A stranger is answered once: whatever it asked for, its connection ends with the answer.
        """
        response.headers["Server"] = "fieldpost"
        if self._callers.is_last(request, response.status):
            response.headers["Connection"] = "close"
            response.force_close()

    @web.middleware
    async def _answer_refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._callers.heard(request)
        _caller_known.set("")
        try:
            answer = await handler(request)
            self._metrics.answered(request.method, answer.status, "ok")
            return answer
        except HttpError as refusal:
            told = refusal
        except web.HTTPException as error:
            told = HttpError(error.status, "request", "no such request")
        except SegmentError as error:
            told = HttpError(400, error.reason, error.text)
        except FleetError as error:
            log_event(logging.ERROR, "damaged", text=str(error))
            told = self._bodies.busy("enrolment", "the enrolment cannot be read")
        except OSError as error:
            log_event(logging.ERROR, "storage", text=str(error), path=request.path)
            told = self._storage(error)
        self._metrics.answered(request.method, told.status, told.reason)
        self._tell(request, told)
        return told.response()

    def _tell(self, request: web.Request, told: HttpError) -> None:
        """Log a refusal. A contradiction is told louder: a person has to find out whose it is."""
        gateway = _caller_known.get()
        conflict = told.status == web.HTTPConflict.status_code
        self._seldom.tell(
            logging.WARNING if conflict else logging.INFO,
            (str(told.status), told.reason, gateway),
            "refused",
            status=told.status,
            reason=told.reason,
            text=told.text,
            path=request.path,
            peer=self._callers.peer(request),
            **_named(request, gateway),
        )

    async def _put(self, request: web.Request) -> web.Response:
        identity = await self._authorised(request)
        body = parse_upload_headers(request, self._limits.body_bytes)
        self._charge(self._bytes, identity.gateway, self._bodies.cost(identity.gateway, body))
        await self._in_thread(self._room.take, body.length)
        new = False
        try:
            async with self._bodies.receiving(request, identity.gateway, body) as incoming:
                landed = await self._in_thread(self._land, incoming, identity, body.body_sum)
                new = landed.outcome is Outcome.NEW
        finally:
            self._room.settle(body.length, landed=new)
        if landed.outcome is Outcome.OTHER:
            kept = "kept aside" if landed.aside else "not kept: too many are"
            text = f"other bytes have that name; these are {kept}"
            raise HttpError(409, "conflict", text)
        return web.json_response({"digest": landed.digest.hex()}, status=201 if new else 200)

    async def _head(self, request: web.Request) -> web.Response:
        identity = await self._authorised(request)
        found = await self._in_thread(self._landing.find, identity)
        if found is None:
            return await self._begun(identity.gateway, parse_body_sha256(request))
        headers = {DIGEST_HEADER: found.digest.hex(), "Content-Length": str(found.size)}
        return web.Response(headers=headers)

    async def _begun(self, gateway: str, body_sum: bytes | None) -> web.Response:
        """A segment is not there; of the body, if one is named, this many bytes are."""
        if body_sum is None:
            return web.Response(status=404)
        there = await self._bodies.there(gateway, body_sum)
        return web.Response(status=404, headers={OFFSET_HEADER: str(there)})

    async def _heads(self, request: web.Request) -> web.Response:
        """How far each lane of an epoch has come; counted as a body is, so that it is bounded."""
        gateway = await self._caller(request)
        with self._bodies.place(gateway):
            epoch = request.match_info["epoch"]
            lanes = await self._in_thread(
                high_watermarks, self._folder, self._landing, gateway, epoch
            )
        return web.json_response({"lanes": {lane: _shown(head) for lane, head in lanes.items()}})

    async def _certify(self, request: web.Request) -> web.Response:
        """Make a certificate for the key that a gateway asks it for."""
        gateway = await self._caller(request)
        length = request.content_length
        if length is None or length > MAX_REQUEST_BYTES:
            raise HttpError(
                413, "size", f"a request has a length, of at most {MAX_REQUEST_BYTES} bytes"
            )
        self._charge(self._signings, gateway, 1)
        with self._bodies.place(gateway):
            data = await self._bodies.small(request)
            try:
                made = await self._in_thread(renew, self._folder, self._gateways, gateway, data)
            except SigningRequestError as error:
                raise HttpError(400, "request", str(error)) from None
        log_event(
            logging.INFO, "certificate", text="a gateway has a new certificate", gateway=gateway
        )
        return web.Response(body=made, content_type="application/x-pem-file")

    async def _authorised(self, request: web.Request) -> Identity:
        """The segment that the path names, if the caller is its gateway."""
        gateway = await self._caller(request)
        parts = request.match_info
        return parse_identity("/".join((gateway, parts["epoch"], parts["lane"], parts["numbers"])))

    async def _caller(self, request: web.Request) -> str:
        """The gateway that calls, which is the one that the path names."""
        gateway = await self._callers.gateway(request)
        _caller_known.set(gateway)
        if gateway != request.match_info["gateway"]:
            raise HttpError(403, "gateway", "a gateway writes its own segments alone")
        self._metrics.arrived(gateway)
        self._charge(self._requests, gateway, 1)
        return gateway

    def _charge(self, rate: RateLimiter, gateway: str, cost: float) -> None:
        """Refuse a gateway that asks for too much in a while."""
        wait_s = rate.take(gateway, cost)
        if wait_s:
            raise HttpError(429, "rate", "this gateway asks for too much", wait_s)

    def _land(self, incoming: IncomingFile, identity: Identity, body_sum: bytes) -> LandingResult:
        """Check a whole body and land it under the name of its own header; runs in a thread."""
        self._landing.adopt(incoming)
        if incoming.sha256() != body_sum:
            raise HttpError(400, "sha256", f"the body is not the one of {SHA256_HEADER}")
        verified = self._landing.verify(incoming)
        if verified.identity != identity:
            raise HttpError(400, "name", "the segment's header names another segment")
        began = time.monotonic()
        landed = self._landing.land(verified, incoming)
        self._metrics.landed(landed.outcome.value, time.monotonic() - began)
        return landed

    def _storage(self, error: OSError) -> HttpError:
        if error.errno in _FULL:
            text = "the centre has no room"
            return HttpError(507, "full", text, self._limits.retry_after_full_s)
        return self._bodies.busy("storage", "the centre cannot store anything just now")


def _named(request: web.Request, gateway: str) -> dict[str, str]:
    """The gateway that asked, if one did, and the lane and the numbers that it asked for."""
    parts = request.match_info
    told = {name: parts[name] for name in ("epoch", "lane", "numbers") if name in parts}
    return {"gateway": gateway, **told} if gateway else {}


def _shown(head: HighWatermark) -> dict[str, int | str]:
    return {"last": head.last, "digest": head.digest.hex()}
