"""Deliver alerts to a webhook: one POST of JSON each, in order, at least once.

An alert is sent until the receiver accepts it; its id identifies repetitions. Redirects are not
followed, because the token is for the configured host only.
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
"""Timeout of one request in seconds."""

MAX_ROUND_S: Final = 30.0
"""Seconds after which `Webhook.deliver` sends no further alert, so that the next round starts."""

MAX_REJECTIONS: Final = 5
"""Number of rejections after which an alert is discarded, so that it does not block all others."""

_REJECTIONS: Final = (400, 413, 415, 422)


def check_url(url: str, token: str = "") -> str:
    """Return the URL if it is allowed: HTTPS, or HTTP within this machine.

    With a `token`, the URL must not contain a user name, because both use the same header. Raises
    FleetError, whose text does not repeat the URL, because it may contain a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if host and token and parts.username is not None:
        msg = "the webhook's URL cannot contain a user name if a token is set; remove one of them"
        raise FleetError(msg)
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and host and is_this_machine(host):
        return url
    raise FleetError("the webhook's URL must be https://, or http:// on this machine")


@dataclass
class Webhook:
    """The webhook at `url` with a bearer `token`, if not empty; `repr` contains neither.

    `chance` returns random numbers, uniform in [0, 1); `clock` returns monotonic seconds.
    """

    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    timeout_s: float = TIMEOUT_S
    backoff: Backoff = field(default_factory=Backoff)
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    failures: int = 0
    rejections: int = 0
    retry_at: float = 0.0

    async def deliver(
        self, queue: list[Alert], stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Send queued alerts; remove those that were sent or discarded and return how many.

        Stops at the first failure. Further calls send nothing until it is time to try again.
        Failures of the network or the receiver are logged, not raised.
        """
        began = self.clock()
        if not queue or began < self.retry_at:
            return 0
        done = 0
        timeout = aiohttp.ClientTimeout(total=self.timeout_s)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as session:
            while queue and self.clock() - began < MAX_ROUND_S and not stopping():
                if not await self._send(session, queue[0]):
                    break
                del queue[0]
                done += 1
        return done

    async def _send(self, session: aiohttp.ClientSession, alert: Alert) -> bool:
        """Send one alert; return whether it was accepted or discarded."""
        try:
            status, retry_after = await self._post(session, alert)
        except (aiohttp.ClientError, TimeoutError, OSError, ProxyError) as error:
            return self._failed(_reason(error), None)
        if 200 <= status < 300:
            self.failures = self.rejections = 0
            return True
        if status in _REJECTIONS:
            self.rejections += 1
            if self.rejections >= MAX_REJECTIONS:
                text = f"the webhook rejects an alert with status {status}; the alert is discarded"
                log_event(ERROR, "webhook", text=text, id=alert.id)
                self.failures = self.rejections = 0
                return True
        return self._failed(f"status {status}", retry_after)

    async def _post(self, session: aiohttp.ClientSession, alert: Alert) -> tuple[int, float | None]:
        proxy = proxy_for(self.url)
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with session.post(
            self.url,
            data=msgspec.json.encode(alert),
            headers=headers,
            allow_redirects=False,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers() if proxy else None,
        ) as response:
            received = response.headers
            retry_after = parse_retry_after(received.get("Retry-After"), received.get("Date"))
            return response.status, retry_after

    def _failed(self, reason: str, retry_after: float | None) -> bool:
        self.failures += 1
        if retry_after is None:
            wait = self.backoff.delay(self.failures, self.chance())
        else:
            wait = self.backoff.delay_retry_after(retry_after, self.failures, self.chance())
        self.retry_at = self.clock() + wait
        text = f"cannot deliver alerts to the webhook: {reason}"
        log_event(WARNING, "webhook", text=text, retry_s=round(wait, 1))
        return False


def _reason(error: Exception) -> str:
    """Return the reason of a failure without the URL, which some exceptions contain."""
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientResponseError):
        return one_line(f"{name}: {error.status} {error.message}")
    return name if isinstance(error, aiohttp.InvalidURL) else one_line(f"{name}: {error}")
