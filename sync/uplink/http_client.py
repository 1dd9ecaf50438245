"""The HTTPS client for the centre: one request at a time, over one persistent connection.

It trusts only the enrolment's certificate authority, presents the enrolment's certificate if there
is one, and follows no redirects. Error texts never contain the token or the key.
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
from sync.uplink.proxies import ProxyError, proxy_for
from sync.uplink.responses import Response, TemporaryFailure, one_line

if TYPE_CHECKING:  # aiohttp is imported with the first request, to save memory without an uplink
    import aiohttp

_MAX_RESPONSE: Final = 16 * 1024  # bytes of a response body that are read; a certificate has 2,000
_KEEPALIVE_S: Final = 300.0  # seconds an idle connection is kept: the interval between segments

_MAX_PIECE: Final = 16 * 1024  # bytes sent at once: one TLS record
_MIN_PIECE: Final = 512  # bytes sent at once; less would be mostly TLS overhead
_PIECES_PER_S: Final = 4  # so that other users of the link wait at most a quarter of a second


@dataclass(frozen=True, slots=True)
class HttpsLimits:
    """Timeouts and the bandwidth limit of uploads."""

    connect: float = 10.0
    """Seconds for name resolution, TCP and TLS."""

    total: float = 60.0
    """Timeout of a request in seconds, without the time that its body takes at `rate`."""

    rate: float = 1_024.0
    """Slowest throughput of a usable link, in bytes per second."""

    bandwidth: int = 0
    """Bandwidth limit of request bodies in bytes per second; 0 for none."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a limit outside its range."""
        if not (self.connect > 0 and self.total > 0 and self.rate > 0):
            raise ValueError("connect, total and rate must be above 0")
        if self.bandwidth < 0:
            raise ValueError("bandwidth must be 0 or above")

    def seconds(self, size: int) -> float:
        """Return the timeout of a request with a body of `size` bytes."""
        pauses = size / self.bandwidth if self.bandwidth else 0.0
        return self.total + size / self.rate + pauses


class BandwidthLimiter:
    """Allows `rate` bytes per second (0: unlimited). Idle time allows no later burst.

    The overhead of TLS and headers, some per cent, is not counted.
    """

    def __init__(self, rate: int = 0) -> None:
        self.rate = rate
        self._free_at = 0.0

    @property
    def piece(self) -> int:
        """Size of the pieces in which a body is sent, in bytes."""
        if not self.rate:
            return _MAX_PIECE
        return min(_MAX_PIECE, max(_MIN_PIECE, self.rate // _PIECES_PER_S))

    def take(self, now: float, size: int) -> float:
        """Reserve the link for `size` bytes at second `now`; return the seconds to wait first."""
        if not self.rate:
            return 0.0
        begin = max(now, self._free_at)
        self._free_at = begin + size / self.rate
        return begin - now


async def throttled_pieces(
    data: memoryview,
    limiter: BandwidthLimiter,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncIterator[bytes]:
    """Yield `data` in pieces at the limiter's rate."""
    step = limiter.piece
    for start in range(0, len(data), step):
        piece = bytes(data[start : start + step])
        wait = limiter.take(clock(), len(piece))
        if wait > 0:
            await sleep(wait)
        yield piece


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `path` begins with a slash.

    If `resend`, the body is sent again when the persistent connection turns out to be closed,
    unless the bandwidth is limited.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: memoryview = field(default_factory=lambda: memoryview(b""))
    resend: bool = True


class HttpClient:
    """Sends requests to an enrolment's centre. The bandwidth limit uses `clock` and `sleep`."""

    def __init__(
        self,
        enrolment: Enrolment,
        limits: HttpsLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a client. Raises `EnrolmentError` if its certificates cannot be read."""
        self._limits = limits or HttpsLimits()
        self._bandwidth = BandwidthLimiter(self._limits.bandwidth)
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self.use(enrolment)

    def use(self, enrolment: Enrolment) -> None:
        """Use another enrolment from the next request on. Raises `EnrolmentError`."""
        self._context = client_tls_context(enrolment)
        self._url = enrolment.url.rstrip("/")
        self._token = enrolment.token
        self._stale = True

    async def send(self, request: Request) -> Response | TemporaryFailure:
        """Send a request once; return the response, or the failure if there is none."""
        if self._session is None:  # importing takes half a second on a small board
            await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        try:
            async with self._lock, asyncio.timeout(self._limits.seconds(len(request.body))):
                return await self._exchange(request)
        except (ProxyError, aiohttp.ClientError, OSError) as error:
            _drop_tracebacks(error)
            return TemporaryFailure(_reason(error))

    async def close(self) -> None:
        """Close the persistent connection."""
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
            session = self._session = self._new_session()
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
            read = await _read(response)
            if response.status >= 300 and isinstance(data, AsyncIterator):
                response.close()  # do not send the rest of a refused body
            return read

    def _data(self, request: Request) -> io.BytesIO | AsyncIterator[bytes] | None:
        """Return the body: an iterator, which aiohttp never resends, or else a `BytesIO`."""
        if not request.body:
            return None
        if request.resend and not self._bandwidth.rate:
            return io.BytesIO(request.body)
        return throttled_pieces(request.body, self._bandwidth, self._clock, self._sleep)

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=1, ssl=self._context, keepalive_timeout=_KEEPALIVE_S
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the centre did not answer in time"
    if isinstance(error, ProxyError):
        return str(error)
    return one_line(f"{type(error).__name__}: {error}")  # not repr(error): it contains the headers


def _drop_tracebacks(error: BaseException | None) -> None:
    """Remove the tracebacks of an error and its causes.

    Their frames refer to the errors and to the TLS connection, whose 70 KiB would wait for the
    garbage collector.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _read(response: aiohttp.ClientResponse) -> Response:
    body = b""
    while len(body) < _MAX_RESPONSE:
        piece = await response.content.read(_MAX_RESPONSE - len(body))
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
    """Create the TLS context of an enrolment. Raises `EnrolmentError`."""
    try:
        context = ssl.create_default_context(cadata=enrolment.ca)
    except ssl.SSLError as error:
        raise EnrolmentError(f"`ca` is not a certificate in PEM: {error.reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if enrolment.certificate:
        try:
            _load_certificate(context, enrolment.certificate, enrolment.key)
        except ssl.SSLError as error:
            text = f"`certificate` and `key` do not match, or one is invalid: {error.reason}"
            raise EnrolmentError(text) from None
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key from a file in memory, because OpenSSL reads only files.

    An encrypted key is refused; OpenSSL would ask for its password on the terminal.
    """
    descriptor = os.memfd_create("enrolment", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: "")
