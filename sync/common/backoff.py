"""Exponential backoff with full jitter, so that many clients do not retry at the same moment.

The functions are pure: randomness is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_DOUBLINGS: Final = 30
"""Doublings after which the wait stops growing, to avoid overflow; 2**30 s exceeds any maximum."""


def delay(failures: int, chance: float, least: float, most: float) -> float:
    """Return the seconds to wait after a failure: random, between `least` and a growing upper
    bound.

    Args:
        failures: the number of consecutive failures, including the latest (1 or more).
        chance: a random number, uniform in [0, 1).
        least: the shortest wait in seconds. The upper bound is twice this value after the first
            failure, and doubles with each further one.
        most: the limit of the upper bound, in seconds.
    """
    bound = least * 2.0 ** min(max(failures, 0), _MAX_DOUBLINGS)
    return max(least, chance * min(most, bound))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Bounds of the waits between attempts to reach a server."""

    least: float = 1.0
    """Shortest wait in seconds, so that a server that refuses is not overloaded."""

    most: float = 900.0
    """Longest wait in seconds; after an outage, a client reconnects within this time."""

    denied: float = 60.0
    """Upper bound of the first wait after a refused login, in seconds. It is higher than after
    other failures, because only a person can correct the cause."""

    def __post_init__(self) -> None:
        """Raise ValueError unless 0 < `least` <= `denied` <= `most`."""
        if not 0 < self.least <= self.denied <= self.most:
            raise ValueError("the bounds must be 0 < least <= denied <= most")

    def delay(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` in a row that are not refused logins."""
        return delay(failures, chance, self.least, self.most)

    def delay_denied(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` refused logins in a row; see `delay`."""
        return max(self.least, delay(failures, chance, self.denied / 2, self.most))

    def delay_retry_after(self, after: float, failures: int, chance: float) -> float:
        """Return the seconds to wait when the server requested a delay of `after` seconds
        (Retry-After).

        A random part is added, so that not all gateways return at the same moment; `most` limits
        the sum.
        """
        return min(self.most, max(0.0, after) + self.delay(failures, chance))
