"""HTTP with the centre: one request at a time, over one kept connection.

Trusts the enrolment's certificate authority and no other, shows the enrolment's certificate if it
has one, and follows no redirect. The token and the key stand in no text. What the requests mean is
not known here (`https`). aiohttp is imported when the first one goes out.
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

from sync.common.enrolment import Enrolment, EnrolmentError
from sync.uplink.bandwidth import BandwidthLimiter, throttled_pieces
from sync.uplink.proxies import ProxyError, proxy_for
from sync.uplink.responses import Response, TemporaryFailure, one_line

if TYPE_CHECKING:
    import aiohttp

_MAX_ANSWER: Final = 16 * 1024  # bytes of an answer's body that are read: a certificate has 2,000
_KEPT: Final = 300.0  # seconds an idle connection is kept: one segment of each lane to the next


@dataclass(frozen=True, slots=True)
class HttpsLimits:
    """How long things may take, and what they may take of the link."""

    connect: float = 10.0
    """Seconds for name, connection and TLS: a link that needs more has gone."""

    total: float = 60.0
    """Seconds for a segment, on top of what its size needs."""

    rate: float = 1_024.0
    """Bytes a second, below which a link is none."""

    bandwidth: int = 0
    """Bytes a second that bodies take of the link at most; 0: all of it."""

    def __post_init__(self) -> None:
        """Refuse time-outs that are none."""
        if not (self.connect > 0 and self.total > 0 and self.rate > 0):
            raise ValueError("every limit is above 0")
        if self.bandwidth < 0:
            raise ValueError("bandwidth: 0 or above")

    def seconds(self, size: int) -> float:
        """Return how long a body of `size` bytes may take in all, its own pauses included."""
        pauses = size / self.bandwidth if self.bandwidth else 0.0
        return self.total + size / self.rate + pauses


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: `path` begins with a slash.

    With `again`, the body is sent again at once when the kept connection turns out to be gone.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: memoryview = field(default_factory=lambda: memoryview(b""))
    again: bool = True


class HttpClient:
    """Asks the centre of an enrolment. `clock` and `sleep` are those of the pauses in a body."""

    def __init__(
        self,
        enrolment: Enrolment,
        limits: HttpsLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Raises `EnrolmentError` if its certificates cannot be read."""
        self._limits = limits or HttpsLimits()
        self._pace = BandwidthLimiter(self._limits.bandwidth)
        self._clock = clock
        self._sleep = sleep
        self._one = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self.use(enrolment)

    def use(self, enrolment: Enrolment) -> None:
        """Use another enrolment, from the next request on. Raises `EnrolmentError`."""
        self._context = client_tls_context(enrolment)
        self._url = enrolment.url.rstrip("/")
        self._token = enrolment.token
        self._stale = True

    async def ask(self, request: Request) -> Response | TemporaryFailure:
        """Ask once. Whatever goes wrong on the way is `Later`."""
        if self._session is None:  # half a second on a small board, which the loop does not have
            await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        try:
            async with self._one, asyncio.timeout(self._limits.seconds(len(request.body))):
                return await self._exchange(request)
        except TimeoutError:
            return TemporaryFailure("no answer in time")
        except ProxyError as error:
            return TemporaryFailure(str(error))
        except (aiohttp.ClientError, OSError) as error:
            return TemporaryFailure(
                one_line(f"{type(error).__name__}: {error}")
            )  # never its repr: it has headers

    async def close(self) -> None:
        """Close the connection that is kept."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(self, request: Request) -> Response:
        data = self._data(request)
        proxy = proxy_for(self._url)
        if self._stale:
            await self.close()
            self._stale = False
        session = self._session
        if session is None:
            session = self._session = self._open()
        headers = {"Content-Length": str(len(request.body)), **request.headers}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        async with session.request(
            request.method,
            self._url + request.path,
            data=data,
            headers=headers,
            allow_redirects=False,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers() if proxy else None,
        ) as response:
            answer = await _read(response)
            if response.status >= 300 and isinstance(data, AsyncIterator):
                response.close()  # the rest of a body that was refused is not sent
            return answer

    def _data(self, request: Request) -> io.BytesIO | AsyncIterator[bytes] | None:
        """A body as aiohttp takes it: from a stream of pieces it sends nothing twice."""
        if not request.body:
            return None
        if request.again and not self._pace.rate:
            return io.BytesIO(request.body)
        return throttled_pieces(request.body, self._pace, self._clock, self._sleep)

    def _open(self) -> aiohttp.ClientSession:
        """Make the session: its one connection is made when it is needed, and kept."""
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, ssl=self._context, keepalive_timeout=_KEPT),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )


async def _read(response: aiohttp.ClientResponse) -> Response:
    """Read an answer, and of its body no more than the bound."""
    body = b""
    while len(body) < _MAX_ANSWER:
        piece = await response.content.read(_MAX_ANSWER - len(body))
        if not piece:
            break
        body += piece
    return Response(
        response.status,
        response.headers.get("Retry-After"),
        response.headers.get("Date"),
        body,
        response.headers.get("X-Fieldpost-Digest"),
        response.headers.get("X-Fieldpost-Offset"),
    )


def client_tls_context(enrolment: Enrolment) -> ssl.SSLContext:
    """Make the TLS context of an enrolment. Raises `EnrolmentError`."""
    try:
        context = ssl.create_default_context(cadata=enrolment.ca)
    except ssl.SSLError as error:
        raise EnrolmentError(f"`ca` is not a certificate in PEM: {error.reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if enrolment.certificate:
        try:
            _show(context, enrolment.certificate, enrolment.key)
        except ssl.SSLError as error:
            raise EnrolmentError(f"`certificate` and `key` are no pair: {error.reason}") from None
    return context


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key, which OpenSSL reads of a file: one that is in memory alone.

    An encrypted key is refused, where OpenSSL would ask for its password at the terminal.
    """
    descriptor = os.memfd_create("enrolment", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: "")
