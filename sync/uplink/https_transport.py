"""Send segments over HTTPS: a PUT for each, resumed where the previous attempt was interrupted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Final

from sync.common.enrolment import Enrolment
from sync.segment import identity_path
from sync.uplink.epoch_check import parse_high_watermarks
from sync.uplink.http_client import HttpClient, HttpsLimits, Request
from sync.uplink.interfaces import HighWatermark, WaitingSegment
from sync.uplink.responses import (
    AccessDenial,
    Acknowledgement,
    Outcome,
    Rejection,
    Response,
    TemporaryFailure,
    failure_outcome,
    parse_json_object,
    put_outcome,
)

MIN_RESUMABLE_BYTES: Final = 64 * 1024
"""Smallest body in bytes that is resumed. To send a smaller one again costs less than a query."""

_MAX_RESUMES: Final = 3
"""Maximum attempts to resume a segment at the offset that the centre names before it is sent whole.
"""

_MAX_INTERRUPTED: Final = 8
"""Maximum number of interrupted segments that are remembered, to be resumed: old and new segments
are sent alternately, so several can be interrupted."""

_NOT_SUPPORTED: Final = (404, 405, 501)
"""Status codes of a centre whose version does not know a request."""


class HttpsTransport:
    """Sends segments to the centre of an enrolment."""

    def __init__(
        self,
        enrolment: Enrolment,
        limits: HttpsLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a transport. Raises `EnrolmentError` if its certificates cannot be read."""
        self._client = HttpClient(enrolment, limits, clock=clock, sleep=sleep)
        self._url = enrolment.url
        self._gateway = enrolment.gateway
        self._interrupted: deque[bytes] = deque(maxlen=_MAX_INTERRUPTED)
        self._first = True

    def __repr__(self) -> str:
        return f"HttpsTransport({self._url!r})"

    async def put(self, waiting: WaitingSegment) -> Outcome:
        body_sha256 = await asyncio.to_thread(sha256, waiting.data)
        headers = {"X-Fieldpost-SHA256": body_sha256.hexdigest()}
        start: int | Outcome = 0
        if self._may_be_partial(waiting):
            start = await self._query_offset(waiting, headers)
        outcome = await self._send(waiting, headers, start) if isinstance(start, int) else start
        self._remember(waiting, outcome)
        return outcome

    async def high_watermarks(
        self, gateway: str, epoch: str
    ) -> Mapping[str, HighWatermark] | Outcome:
        request = Request("GET", f"/v1/gateways/{gateway}/epochs/{epoch}")
        response = await self._query(request, "cannot report its progress")
        if not isinstance(response, Response):
            return response
        found = parse_high_watermarks(parse_json_object(response.body))
        if found is None:
            return TemporaryFailure("the centre's progress report is invalid")
        return found

    async def certify(self, request: bytes) -> bytes | Outcome:
        path = f"/v1/gateways/{self._gateway}/certificate"
        headers = {"Content-Type": "application/x-pem-file"}
        post = Request("POST", path, headers, memoryview(request))
        response = await self._query(post, "issues no certificates")
        return response.body if isinstance(response, Response) else response

    async def _query(self, request: Request, lack: str) -> Response | Outcome:
        """Return a successful response; `lack` says what a centre cannot do that has none."""
        response = await self._client.send(request)
        if isinstance(response, TemporaryFailure) or response.status == 200:
            return response
        if response.status in _NOT_SUPPORTED:
            return Rejection("unknown", f"{response.status}: this centre {lack}")
        return failure_outcome(response)

    def use(self, enrolment: Enrolment) -> None:
        self._client.use(enrolment)

    async def close(self) -> None:
        await self._client.close()

    def _may_be_partial(self, waiting: WaitingSegment) -> bool:
        """Return whether the centre may have part of a large body.

        True for the first large segment of a run: the previous run may have ended while sending it.
        """
        interrupted = self._first or waiting.digest in self._interrupted
        return interrupted and len(waiting.data) >= MIN_RESUMABLE_BYTES

    def _remember(self, waiting: WaitingSegment, outcome: Outcome) -> None:
        if waiting.digest in self._interrupted:
            self._interrupted.remove(waiting.digest)
        if isinstance(outcome, TemporaryFailure | AccessDenial):
            self._interrupted.append(waiting.digest)
        else:
            self._first = False

    async def _query_offset(
        self, waiting: WaitingSegment, headers: Mapping[str, str]
    ) -> int | Outcome:
        """Return how many bytes the centre has; the outcome if it has all or the query fails."""
        response = await self._client.send(Request("HEAD", _path(waiting), headers))
        if isinstance(response, TemporaryFailure):
            return response
        if response.status == 200:
            stored = response.digest == waiting.digest.hex()
            return Acknowledgement(waiting.digest, new=False) if stored else 0
        if response.status == 404:
            return _offset(response, len(waiting.data))
        outcome = failure_outcome(response)
        final = isinstance(outcome, AccessDenial) or outcome.after is not None
        return outcome if final else 0

    async def _send(
        self, waiting: WaitingSegment, headers: Mapping[str, str], start: int
    ) -> Outcome:
        """Send a body from `start`, or from another offset if the centre names one."""
        size = len(waiting.data)
        for _ in range(_MAX_RESUMES):
            response = await self._put(waiting, headers, start)
            if isinstance(response, TemporaryFailure):
                return response
            if response.status != 416 or not start:
                return put_outcome(response)
            start = _offset(response, size)
        response = await self._put(waiting, headers, 0)
        return response if isinstance(response, TemporaryFailure) else put_outcome(response)

    async def _put(
        self, waiting: WaitingSegment, headers: Mapping[str, str], start: int
    ) -> Response | TemporaryFailure:
        size = len(waiting.data)
        all_headers = {"Content-Type": "application/octet-stream", **headers}
        if start:
            all_headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        body = memoryview(waiting.data)[start:]
        resend = size < MIN_RESUMABLE_BYTES
        return await self._client.send(
            Request("PUT", _path(waiting), all_headers, body, resend=resend)
        )


def _path(waiting: WaitingSegment) -> str:
    return f"/v1/segments/{identity_path(waiting.identity)}"


def _offset(response: Response, size: int) -> int:
    """Return the offset that the centre names; 0 if it is invalid or beyond the body."""
    text = response.offset or ""
    offset = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    return offset if offset < size else 0
