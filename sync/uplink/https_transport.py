"""Segments over HTTPS: one PUT each, and the questions that go with it.

A large body whose way was cut is continued where the centre has it, not begun again. How HTTP is
spoken is `client`'s business, what an answer means is `outcomes`' and `lineage`'s.
"""

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
"""Bytes from which on a body is continued after a cut: a smaller one costs less than the question,
on a link that is worth the name."""

_MOVES: Final = 3
"""Beginnings that the centre may name in one offer; then the body is sent whole."""

_CUTS: Final = 8
"""Segments of which is remembered that they were cut: the newest and the oldest one take turns, and
the newest may be another each time."""

_UNKNOWN: Final = (404, 405, 501)
"""How a centre answers a question that its software does not know."""


class HttpsTransport:
    """Offers segments to the centre of an enrolment."""

    def __init__(
        self,
        enrolment: Enrolment,
        limits: HttpsLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Raises `EnrolmentError` if no certificate can be read from the enrolment."""
        self._client = HttpClient(enrolment, limits, clock=clock, sleep=sleep)
        self._url = enrolment.url
        self._gateway = enrolment.gateway
        self._cut: deque[bytes] = deque(maxlen=_CUTS)
        self._first = True

    def __repr__(self) -> str:
        return f"HttpsTransport({self._url!r})"

    async def put(self, waiting: WaitingSegment) -> Outcome:
        """Offer a segment once. Whatever goes wrong on the way is `Later`."""
        body_sum = await asyncio.to_thread(sha256, waiting.data)
        headers = {"X-Fieldpost-SHA256": body_sum.hexdigest()}
        start: int | Outcome = 0
        if self._in_doubt(waiting):
            start = await self._ask(waiting, headers)
        outcome = await self._send(waiting, headers, start) if isinstance(start, int) else start
        self._remember(waiting, outcome)
        return outcome

    async def heads(self, gateway: str, epoch: str) -> Mapping[str, HighWatermark] | Outcome:
        """Ask how far the lanes of an epoch are there; `Refused` by a centre that cannot tell."""
        answer = await self._client.ask(Request("GET", f"/v1/gateways/{gateway}/epochs/{epoch}"))
        if isinstance(answer, TemporaryFailure):
            return answer
        if answer.status in _UNKNOWN:
            return Rejection("unknown", f"{answer.status}: the centre does not tell how far it is")
        if answer.status != 200:
            return failure_outcome(answer)
        heads = parse_high_watermarks(parse_json_object(answer.body))
        return TemporaryFailure("the centre does not say how far it is") if heads is None else heads

    async def certify(self, request: bytes) -> bytes | Outcome:
        """Have a certificate made for a request (both PEM)."""
        path = f"/v1/gateways/{self._gateway}/certificate"
        headers = {"Content-Type": "application/x-pem-file"}
        answer = await self._client.ask(Request("POST", path, headers, memoryview(request)))
        if isinstance(answer, TemporaryFailure):
            return answer
        if answer.status in _UNKNOWN:
            return Rejection("unknown", f"{answer.status}: the centre makes no certificates")
        return answer.body if answer.status == 200 else failure_outcome(answer)

    def use(self, enrolment: Enrolment) -> None:
        """Use another enrolment, from the next request on. Raises `EnrolmentError`."""
        self._client.use(enrolment)

    async def close(self) -> None:
        """Close the connection that is kept."""
        await self._client.close()

    def _in_doubt(self, waiting: WaitingSegment) -> bool:
        """Tell whether the centre may have the beginning of a body that is worth continuing.

        A run before may have been cut in the middle of the first one.
        """
        cut = self._first or waiting.digest in self._cut
        return cut and len(waiting.data) >= MIN_RESUMABLE_BYTES

    def _remember(self, waiting: WaitingSegment, outcome: Outcome) -> None:
        if waiting.digest in self._cut:
            self._cut.remove(waiting.digest)
        if isinstance(outcome, TemporaryFailure | AccessDenial):
            self._cut.append(waiting.digest)
        else:
            self._first = False

    async def _ask(self, waiting: WaitingSegment, headers: Mapping[str, str]) -> int | Outcome:
        """Return how many bytes of a body are there, or what became of it already."""
        answer = await self._client.ask(Request("HEAD", _path(waiting), headers))
        if isinstance(answer, TemporaryFailure):
            return answer
        if answer.status == 200:
            there = answer.digest == waiting.digest.hex()
            return Acknowledgement(waiting.digest, new=False) if there else 0
        if answer.status == 404:
            return _offset(answer, len(waiting.data))
        outcome = failure_outcome(answer)
        final = isinstance(outcome, AccessDenial) or outcome.after is not None
        return outcome if final else 0

    async def _send(
        self, waiting: WaitingSegment, headers: Mapping[str, str], start: int
    ) -> Outcome:
        """Send a body from `start` on, and from where the centre says if it has another part."""
        size = len(waiting.data)
        for _ in range(_MOVES):
            answer = await self._put(waiting, headers, start)
            if isinstance(answer, TemporaryFailure):
                return answer
            if answer.status != 416 or not start:
                return put_outcome(answer)
            start = _offset(answer, size)
        answer = await self._put(waiting, headers, 0)
        return answer if isinstance(answer, TemporaryFailure) else put_outcome(answer)

    async def _put(
        self, waiting: WaitingSegment, headers: Mapping[str, str], start: int
    ) -> Response | TemporaryFailure:
        size = len(waiting.data)
        every = {"Content-Type": "application/octet-stream", **headers}
        if start:
            every["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        body = memoryview(waiting.data)[start:]
        request = Request("PUT", _path(waiting), every, body, again=size < MIN_RESUMABLE_BYTES)
        return await self._client.ask(request)


def _path(waiting: WaitingSegment) -> str:
    return f"/v1/segments/{identity_path(waiting.identity)}"


def _offset(answer: Response, size: int) -> int:
    """Return the bytes of a body that the centre says it has: 0 if it has all, or says nonsense."""
    told = answer.offset or ""
    offset = int(told) if told.isascii() and told.isdigit() and len(told) <= 9 else 0
    return offset if offset < size else 0
