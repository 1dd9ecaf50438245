"""Limit the rate of each client's requests or bytes with token buckets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_MAX_BUCKETS: Final = 1_024
"""Number of buckets at which full ones are discarded; this loses nothing: new ones are full."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    updated: float


class RateLimiter:
    """Allows each client `rate` units per second, averaged over `window_s` seconds.

    A request that costs more than a whole window passes when the bucket is full, and leaves the
    bucket in debt.
    """

    def __init__(
        self, rate: float, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._capacity = rate * window_s
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, client: str, cost: float) -> int:
        """Take `cost` units; return 0, or the whole seconds to wait if they are not available."""
        bucket = self._refilled(client)
        missing = min(cost, self._capacity) - bucket.tokens
        if missing > 0:
            return max(1, math.ceil(missing / self._rate))
        bucket.tokens -= cost
        return 0

    def _refilled(self, client: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(client)
        if bucket is None:
            self._discard_full(now)
            bucket = self._buckets[client] = _Bucket(self._capacity, now)
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.updated) * self._rate)
        bucket.updated = now
        return bucket

    def _discard_full(self, now: float) -> None:
        if len(self._buckets) >= _MAX_BUCKETS:
            self._buckets = {
                client: each
                for client, each in self._buckets.items()
                if each.tokens + (now - each.updated) * self._rate < self._capacity
            }
