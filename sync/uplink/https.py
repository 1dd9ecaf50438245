"""Segments over HTTPS: one PUT each, over one kept connection.

Trusts the enrolment's certificate authority and no other, and follows no redirect and no proxy. The
token stands in a request's header and nowhere else. aiohttp is imported when the first segment goes
out.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Final

from sync.format import EnrolmentError, identity_path
from sync.uplink.outcomes import Answer, Later, judge, printable

if TYPE_CHECKING:
    import aiohttp

    from sync.format import Enrolment
    from sync.uplink.outcomes import Outcome
    from sync.uplink.ports import Waiting

_MAX_ANSWER: Final = 4_096  # bytes of an answer's body that are read: its JSON has some 100
_KEPT: Final = 300.0  # seconds an idle connection is kept: one segment of each lane to the next


@dataclass(frozen=True, slots=True)
class HttpsLimits:
    """How long things may take."""

    connect: float = 10.0
    """Seconds for name, connection and TLS: a link that needs more has gone."""

    total: float = 60.0
    """Seconds for a segment, on top of what its size needs."""

    rate: float = 1_024.0
    """Bytes a second, below which a link is none."""

    def __post_init__(self) -> None:
        """Refuse time-outs that are none."""
        if not (self.connect > 0 and self.total > 0 and self.rate > 0):
            raise ValueError("every limit is above 0")

    def seconds(self, size: int) -> float:
        """Return how long a body of `size` bytes may take in all."""
        return self.total + size / self.rate


class HttpsTransport:
    """Offers segments to the centre of an enrolment."""

    def __init__(self, enrolment: Enrolment, limits: HttpsLimits | None = None) -> None:
        """Raises `EnrolmentError` if no certificate can be read from the enrolment's `ca`."""
        self._url = enrolment.url.rstrip("/") + "/v1/segments/"
        self._limits = limits or HttpsLimits()
        self._token = enrolment.token
        self._context = _client_context(enrolment.ca)
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"HttpsTransport({self._url!r})"

    async def put(self, waiting: Waiting) -> Outcome:
        """Offer a segment once. Whatever goes wrong on the way is `Later`."""
        if self._session is None:  # half a second on a small board, which the loop does not have
            await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        try:
            async with asyncio.timeout(self._limits.seconds(len(waiting.data))):
                return judge(await self._exchange(waiting))
        except TimeoutError:
            return Later("no answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return Later(
                printable(f"{type(error).__name__}: {error}")
            )  # never its repr: it has headers

    async def close(self) -> None:
        """Close the connection that is kept."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(self, waiting: Waiting) -> Answer:
        session = self._session
        if session is None:
            session = self._session = self._open()
        body_sum = await asyncio.to_thread(sha256, waiting.data)
        async with session.put(
            self._url + identity_path(waiting.identity),
            data=io.BytesIO(waiting.data),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Length": str(len(waiting.data)),
                "Content-Type": "application/octet-stream",
                "X-Fieldpost-SHA256": body_sum.hexdigest(),
            },
            allow_redirects=False,
        ) as response:
            body = await response.content.read(_MAX_ANSWER)
            headers = response.headers
            return Answer(response.status, headers.get("Retry-After"), headers.get("Date"), body)

    def _open(self) -> aiohttp.ClientSession:
        """Make the session: its one connection is made when it is needed, and kept."""
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, ssl=self._context, keepalive_timeout=_KEPT),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )


def _client_context(ca: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca)
    except ssl.SSLError as error:
        raise EnrolmentError(f"`ca` is not a certificate in PEM: {error.reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
