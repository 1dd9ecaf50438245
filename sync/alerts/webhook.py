"""Sends alerts to a webhook, one POST of JSON for each, in their order and at least once.

A message is sent until the other end takes it; its id tells a message that came before. Waits
between tries with full jitter. Redirects are not followed: the token is for the named place alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import ERROR, WARNING
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from sync.alerts.incidents import Alert
from sync.common.backoff import Backoff
from sync.common.errors import FleetError
from sync.common.json_log import log_event
from sync.uplink.proxies import ProxyError, is_this_machine, proxy_for
from sync.uplink.responses import one_line, parse_retry_after

TIMEOUT_S: Final = 10.0
"""Seconds for one try from the beginning to the answer."""

MAX_ROUND_S: Final = 30.0
"""Seconds after which no further message is sent in a turn: the rules are looked at meanwhile."""

MAX_REJECTIONS: Final = 5
"""Answers by which a message is refused for what it is, until it is given up: one that nobody takes
must not hold up all others."""

_REFUSED: Final = (400, 413, 415, 422)


def check_url(url: str, token: str = "") -> str:
    """Give the URL if alerts may be sent there: over HTTPS, or within this machine.

    It may name a user if there is no `token`: both are told in the same header. Raises FleetError,
    which does not repeat it: it may hold a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if host and token and parts.username is not None:
        msg = "the webhook's URL names a user, and there is a token too: only one can be sent"
        raise FleetError(msg)
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and host and is_this_machine(host):
        return url
    msg = "the webhook is no https:// URL, nor http:// to this machine"
    raise FleetError(msg)


@dataclass
class Webhook:
    """The webhook at `url`, which knows us by `token` if it is not empty. Its `repr` has neither.

    `chance` is uniform in [0, 1), `clock` gives seconds that no clock sets.
    """

    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    timeout_s: float = TIMEOUT_S
    backoff: Backoff = field(default_factory=Backoff)
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    failures: int = 0
    refusals: int = 0
    due: float = 0.0

    async def deliver(
        self, posts: list[Alert], stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Send what waits, and take from `posts` what was sent or given up; gives how many.

        Ends at the first failure; until the wait after it is over, nothing is sent. Never raises
        for what is wrong with the other end or the way to it.
        """
        began = self.clock()
        if not posts or began < self.due:
            return 0
        done = 0
        timeout = aiohttp.ClientTimeout(total=self.timeout_s)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as session:
            while posts and self.clock() - began < MAX_ROUND_S and not stopping():
                if not await self._send(session, posts[0]):
                    break
                del posts[0]
                done += 1
        return done

    async def _send(self, session: aiohttp.ClientSession, message: Alert) -> bool:
        """Send one message; tells whether it is done with."""
        try:
            status, after = await self._post(session, message)
        except (aiohttp.ClientError, TimeoutError, OSError, ProxyError) as error:
            return self._failed(_why(error), None)
        if 200 <= status < 300:
            self.failures = self.refusals = 0
            return True
        if status in _REFUSED:
            self.refusals += 1
            if self.refusals >= MAX_REJECTIONS:
                log_event(ERROR, "webhook refused an alert", status=status, id=message.id)
                self.failures = self.refusals = 0
                return True
        return self._failed(f"status {status}", after)

    async def _post(
        self, session: aiohttp.ClientSession, message: Alert
    ) -> tuple[int, float | None]:
        proxy = proxy_for(self.url)
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with session.post(
            self.url,
            data=msgspec.json.encode(message),
            headers=headers,
            allow_redirects=False,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers() if proxy else None,
        ) as response:
            told = response.headers
            after = parse_retry_after(told.get("Retry-After"), told.get("Date"))
            return response.status, after

    def _failed(self, why: str, after: float | None) -> bool:
        self.failures += 1
        if after is None:
            wait = self.backoff.delay(self.failures, self.chance())
        else:
            wait = self.backoff.delay_retry_after(after, self.failures, self.chance())
        self.due = self.clock() + wait
        log_event(WARNING, "webhook does not take alerts", why=why, retry_s=round(wait, 1))
        return False


def _why(error: Exception) -> str:
    """Say what went wrong, but not the URL, which some errors repeat."""
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientResponseError):
        return one_line(f"{name}: {error.status} {error.message}")
    return name if isinstance(error, aiohttp.InvalidURL) else one_line(f"{name}: {error}")
