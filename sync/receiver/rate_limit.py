"""How much one gateway may ask of the receiver in a while, so that none takes what is for all.

Counts, and knows no HTTP and no clock but the one it is given. Each receiver counts for itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

_SWEEP: int = 1_024
"""Gateways that are remembered before those whose allowance is whole again are forgotten."""


@dataclass(slots=True)
class _Allowance:
    """What is left of a gateway's allowance at the moment `at`."""

    left: float
    at: float


class RateLimiter:
    """At most `rate` units a second for each gateway, over `window_s` seconds: a token bucket.

    What costs more than a whole window passes when the bucket is full, and is owed.
    """

    def __init__(
        self, rate: float, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._most = rate * window_s
        self._clock = clock
        self._gateways: dict[str, _Allowance] = {}

    def take(self, gateway: str, cost: float) -> int:
        """Take `cost` units; 0 if that is allowed, else whole seconds until it will be."""
        known = self._now(gateway)
        missing = min(cost, self._most) - known.left
        if missing > 0:
            return max(1, math.ceil(missing / self._rate))
        known.left -= cost
        return 0

    def _now(self, gateway: str) -> _Allowance:
        now = self._clock()
        known = self._gateways.get(gateway)
        if known is None:
            self._sweep(now)
            known = self._gateways[gateway] = _Allowance(self._most, now)
        known.left = min(self._most, known.left + (now - known.at) * self._rate)
        known.at = now
        return known

    def _sweep(self, now: float) -> None:
        if len(self._gateways) >= _SWEEP:
            self._gateways = {
                gateway: each
                for gateway, each in self._gateways.items()
                if each.left + (now - each.at) * self._rate < self._most
            }
