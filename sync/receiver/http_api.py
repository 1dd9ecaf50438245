"""The HTTP API for gateways: upload segments, query progress, renew certificates."""

from __future__ import annotations

import errno
import logging
import time
from contextvars import ContextVar
from hashlib import sha256
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import log_event
from sync.receiver.authentication import Authenticator
from sync.receiver.client_certificates import MAX_REQUEST_BYTES, SigningRequestError, renew
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.http_errors import HttpError
from sync.receiver.landing import Landing, LandingResult, Outcome, VerifiedSegment, verify
from sync.receiver.limits import ReceiverLimits
from sync.receiver.log_throttle import LogThrottle
from sync.receiver.metrics import Metrics
from sync.receiver.rate_limit import RateLimiter
from sync.receiver.threads import ThreadRunner
from sync.receiver.uploads import (
    DIGEST_HEADER,
    OFFSET_HEADER,
    SHA256_HEADER,
    Uploads,
    parse_body_sha256,
    parse_upload_headers,
)
from sync.segment import Identity, SegmentError, parse_identity

_authenticated_gateway: Final = ContextVar("authenticated_gateway", default="")
"""The gateway whose request the current task handles; empty until that is authenticated."""

DAY_S: Final = 24 * 3600.0
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SEGMENT: Final = "/v1/segments/{gateway}/{epoch}/{lane}/{numbers}"
_CERTIFICATE: Final = "/v1/gateways/{gateway}/certificate"
_EPOCH: Final = "/v1/gateways/{gateway}/epochs/{epoch}"


class HttpApi:
    """Answers the requests of gateways. Files are accessed in threads only."""

    def __init__(
        self,
        folder: FleetFolder,
        authenticator: Authenticator,
        landing: Landing,
        uploads: Uploads,
        quota: DiskQuota,
        metrics: Metrics,
        limits: ReceiverLimits,
        in_thread: ThreadRunner,
        log: LogThrottle,
    ) -> None:
        self._log = log
        self._folder = folder
        self._authenticator = authenticator
        self._landing = landing
        self._uploads = uploads
        self._limits = limits
        self._in_thread = in_thread
        self._quota = quota
        self._metrics = metrics
        self._request_rate = RateLimiter(limits.requests_per_s, limits.rate_window_s)
        self._byte_rate = RateLimiter(limits.bytes_per_s, limits.rate_window_s)
        self._certificate_rate = RateLimiter(limits.certificates_per_day / DAY_S, DAY_S)

    def application(self) -> web.Application:
        """Return the aiohttp application with its routes."""
        app = web.Application(middlewares=[self._answer_errors])
        app.on_response_prepare.append(self._set_headers)
        app.router.add_put(_SEGMENT, self._put_segment)
        app.router.add_head(_SEGMENT, self._head_segment)
        app.router.add_get(_EPOCH, self._get_epoch, allow_head=False)
        app.router.add_post(_CERTIFICATE, self._post_certificate)
        return app

    async def _set_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Hide versions in `Server`, and close the connection of an unauthenticated peer."""
        response.headers["Server"] = "fieldpost"
        if self._authenticator.is_last_answer(request, response.status):
            response.headers["Connection"] = "close"
            response.force_close()

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a handler's exception with an HTTP error; count the request, and log the error."""
        self._authenticator.connections.request_received(request.transport)
        _authenticated_gateway.set("")
        try:
            answer = await handler(request)
            self._metrics.count_request(request.method, answer.status, "ok")
            return answer
        except HttpError as error:
            failure = error
        except web.HTTPException as error:
            text = f"this server has no {request.method} {request.path}"
            failure = HttpError(error.status, "request", text)
        except SegmentError as error:
            failure = HttpError(400, error.reason, error.text)
        except FleetError as error:
            log_event(logging.ERROR, "damaged", text=str(error))
            failure = self._uploads.unavailable("enrolment", "the enrolment cannot be read")
        except OSError as error:
            text = str(error)
            self._log.log(logging.ERROR, ("storage",), "storage", text=text, path=request.path)
            failure = self._storage_error(error)
        self._metrics.count_request(request.method, failure.status, failure.reason)
        self._log_error(request, failure)
        return failure.response()

    def _log_error(self, request: web.Request, error: HttpError) -> None:
        """Log an error answer. A conflict is a warning, because a person must investigate it."""
        gateway, parts = _authenticated_gateway.get(), request.match_info
        named = {name: parts[name] for name in ("epoch", "lane", "numbers") if name in parts}
        is_conflict = error.status == web.HTTPConflict.status_code
        self._log.log(
            logging.WARNING if is_conflict else logging.INFO,
            (str(error.status), error.reason, gateway),
            "refused",
            status=error.status,
            reason=error.reason,
            text=error.text,
            path=request.path,
            peer=self._authenticator.client_address(request),
            **({"gateway": gateway, **named} if gateway else {}),
        )

    async def _put_segment(self, request: web.Request) -> web.Response:
        identity = await self._authorized_identity(request)
        headers = parse_upload_headers(request, self._limits.body_bytes)
        self._limit_rate(self._byte_rate, identity.gateway, headers.length, "bytes")
        await self._in_thread(self._quota.reserve, headers.length)
        is_new = False
        try:
            async with self._uploads.receive(request, identity.gateway, headers) as body:
                segment = await self._in_thread(_verify, body, identity, headers.body_sha256)
                landed = await self._in_thread(self._land, segment)
                is_new = landed.outcome is Outcome.NEW
        finally:
            self._quota.settle(headers.length, landed=is_new)
        if landed.outcome is Outcome.OTHER:
            kept = (
                "was set aside" if landed.aside else "was not kept, because too many are set aside"
            )
            text = f"A different segment with this name exists; yours {kept}."
            raise HttpError(409, "conflict", text)
        return web.json_response({"digest": segment.digest.hex()}, status=201 if is_new else 200)

    async def _head_segment(self, request: web.Request) -> web.Response:
        """Answer with the digest of a stored segment, or with the offset of a partial upload."""
        identity = await self._authorized_identity(request)
        digest = await self._in_thread(self._landing.find, identity)
        if digest is not None:
            return web.Response(headers={DIGEST_HEADER: digest.hex()})
        body_sha256 = parse_body_sha256(request)
        if body_sha256 is None:
            return web.Response(status=404)
        offset = await self._uploads.received_bytes(identity.gateway, body_sha256)
        return web.Response(status=404, headers={OFFSET_HEADER: str(offset)})

    async def _get_epoch(self, request: web.Request) -> web.Response:
        """Answer with the high watermark of each lane. The request occupies a slot for uploads."""
        gateway = await self._authorized_gateway(request)
        with self._uploads.slot(gateway):
            epoch = request.match_info["epoch"]
            found = await self._in_thread(self._landing.high_watermarks, gateway, epoch)
        lanes = {
            lane: {"last": mark.last, "digest": mark.digest.hex()} for lane, mark in found.items()
        }
        return web.json_response({"lanes": lanes})

    async def _post_certificate(self, request: web.Request) -> web.Response:
        gateway = await self._authorized_gateway(request)
        length = request.content_length
        if length is None or length > MAX_REQUEST_BYTES:
            text = "Content-Length is required"
            if length is not None:
                text = f"the signing request is larger than {MAX_REQUEST_BYTES} bytes"
            raise HttpError(413, "size", text)
        self._limit_rate(self._certificate_rate, gateway, 1, "certificates")
        with self._uploads.slot(gateway):
            data = await self._uploads.read_small(request)
            try:
                pem = await self._in_thread(
                    renew, self._folder, self._authenticator.gateways, gateway, data
                )
            except SigningRequestError as error:
                raise HttpError(400, "request", str(error)) from None
        text = "issued a new certificate to a gateway"
        log_event(logging.INFO, "certificate", text=text, gateway=gateway)
        return web.Response(body=pem, content_type="application/x-pem-file")

    async def _authorized_identity(self, request: web.Request) -> Identity:
        gateway = await self._authorized_gateway(request)
        parts = request.match_info
        return parse_identity("/".join((gateway, parts["epoch"], parts["lane"], parts["numbers"])))

    async def _authorized_gateway(self, request: web.Request) -> str:
        """Return the authenticated gateway. Raises HttpError if the path names another gateway."""
        gateway = await self._authenticator.authenticate(request)
        _authenticated_gateway.set(gateway)
        if gateway != request.match_info["gateway"]:
            text = "the path names another gateway than the one that sent the request"
            raise HttpError(403, "gateway", text)
        self._metrics.record_arrival(gateway)
        self._limit_rate(self._request_rate, gateway, 1, "requests")
        return gateway

    def _limit_rate(self, limiter: RateLimiter, gateway: str, cost: float, unit: str) -> None:
        wait_s = limiter.take(gateway, cost)
        if wait_s:
            text = f"rate limit: this gateway sent too many {unit}; retry in {wait_s} s"
            raise HttpError(429, "rate", text, wait_s)

    def _land(self, segment: VerifiedSegment) -> LandingResult:
        began = time.monotonic()
        landed = self._landing.land(segment)
        self._metrics.count_segment(landed.outcome.value, time.monotonic() - began)
        return landed

    def _storage_error(self, error: OSError) -> HttpError:
        if error.errno in _FULL:
            text = "the centre has no free disk space for this segment"
            return HttpError(507, "full", text, self._limits.retry_after_full_s)
        return self._uploads.unavailable("storage", "the centre cannot store segments now")


def _verify(body: bytes, identity: Identity, body_sha256: bytes) -> VerifiedSegment:
    """Verify a complete body. Raises HttpError and SegmentError."""
    if sha256(body).digest() != body_sha256:
        text = f"the SHA-256 of the body is not that of {SHA256_HEADER}"
        raise HttpError(400, "sha256", text)
    segment = verify(body)
    if segment.identity != identity:
        text = "the path and the segment's header name different segments"
        raise HttpError(400, "name", text)
    return segment
