"""Rate limits on the requests and bytes of one connection, by leaky buckets.

A connection above its limit is not read and its requests wait, in order; nothing is dropped. The
first pause of an account or address within `limits.refusal_window` is logged as an event.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from edge.config.limits import Limits
from edge.server.server_context import ServerContext

MIN_PAUSE: Final = 0.05
"""Seconds of the shortest pause, so that a peer at its limit costs one timer for several
requests."""


class LeakyBuckets:
    """A leaky bucket for requests and one for bytes.

    All times are in seconds of a clock that does not go backwards.

    Attributes:
        at: the time of the last `leak`.
    """

    __slots__ = ("_limits", "at", "bytes", "requests")

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self.at = now
        self.requests = 0.0
        self.bytes = 0.0

    def is_exceeded(self) -> bool:
        """Return whether a bucket is over its limit, as of the last `leak`."""
        limits = self._limits
        return self.requests > limits.stanzas_at_once or self.bytes > limits.bytes_at_once

    def leak(self, now: float) -> None:
        """Lower the levels of the buckets for the time that has passed."""
        limits, passed = self._limits, now - self.at
        self.at = now
        requests = self.requests - passed * limits.stanzas_per_second
        size = self.bytes - passed * limits.bytes_per_second
        self.requests = requests if requests > 0.0 else 0.0  # `max` costs more, for each request
        self.bytes = size if size > 0.0 else 0.0

    def pause(self) -> float:
        """Return the seconds for which the peer must pause; 0 if no limit is exceeded."""
        if not self.is_exceeded():
            return 0.0
        limits = self._limits
        requests = (self.requests - limits.stanzas_at_once) / limits.stanzas_per_second
        excess = (self.bytes - limits.bytes_at_once) / limits.bytes_per_second
        return max(requests, excess, MIN_PAUSE)


class Limited(Protocol):
    """A connection whose rate is limited."""

    @property
    def peer(self) -> str:
        """Return the connection's account or address, for the event log."""

    def resume_reading(self) -> None:
        """Continue after a pause."""


class ReadRateLimiter:
    """The rate limit of one connection.

    As long as no bucket exceeds its limit, the clock is read once per read of the socket.
    """

    __slots__ = ("_buckets", "_context", "_timer")

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._buckets = LeakyBuckets(context.settings.limits, context.loop.time())
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last_input(self) -> float:
        """The event loop's time of the last input, or of the last check of the limit if later."""
        return self._buckets.at

    def count_bytes(self, count: int) -> None:
        """Count received bytes."""
        buckets = self._buckets
        buckets.leak(self._context.loop.time())
        buckets.bytes += count

    def count_request(self, number: int = 1) -> None:
        """Count a handled request, or one that stands for a number of them."""
        self._buckets.requests += number

    def is_paused(self, owner: Limited) -> bool:
        """Return whether the connection, `owner`, must pause; begin a pause if a limit is
        exceeded."""
        if self._timer is not None:
            return True
        if not self._buckets.is_exceeded():
            return False
        self._buckets.leak(self._context.loop.time())
        if not self._buckets.is_exceeded():
            return False
        self._log_pause(owner)
        self._context.paused_connections += 1
        self._start_timer(owner)
        return True

    def stop(self) -> None:
        """End the pause, because the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_pause()

    def _start_timer(self, owner: Limited) -> None:
        self._timer = self._context.loop.call_later(self._buckets.pause(), self._on_timer, owner)

    def _on_timer(self, owner: Limited) -> None:
        self._buckets.leak(self._context.loop.time())
        if self._buckets.is_exceeded():
            self._start_timer(owner)
        else:
            self._end_pause()
            owner.resume_reading()

    def _end_pause(self) -> None:
        self._timer = None
        self._context.paused_connections -= 1

    def _log_pause(self, owner: Limited) -> None:
        limits = self._context.settings.limits
        by_bytes = self._buckets.bytes > limits.bytes_at_once
        limit = limits.bytes_per_second if by_bytes else limits.stanzas_per_second
        now = self._context.loop.time()
        self._context.refusal_log.log_once_per_window(owner.peer, "rate", limit, now)
