"""Exponential backoff with full jitter, so that many clients do not retry at the same moment.

The functions are pure: randomness is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_DOUBLINGS: Final = 30
"""Keeps the arithmetic in range: 2**30 s is longer than every maximum in use."""


def delay(failures: int, chance: float, least: float, most: float) -> float:
    """Return the seconds to wait after a failure.

    Args:
        failures: the number of failures in a row, this one included (1 or more).
        chance: a random number, uniform in [0, 1).
        least: the shortest wait in seconds. The upper bound doubles from twice this value.
        most: the longest wait in seconds.
    """
    bound = least * 2.0 ** min(max(failures, 0), _MAX_DOUBLINGS)
    return max(least, chance * min(most, bound))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Bounds of the waits between attempts to reach a server."""

    least: float = 1.0
    """Shortest wait in seconds: a server that refuses is not asked more often."""

    most: float = 900.0
    """Longest wait in seconds: the delay until a client notices that an outage is over."""

    denied: float = 60.0
    """First upper bound in seconds after a refused login, which only a person can repair."""

    def __post_init__(self) -> None:
        """Refuse bounds that are out of order."""
        if not 0 < self.least <= self.denied <= self.most:
            raise ValueError("0 < least <= denied <= most")

    def delay(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` failures in a row (see `delay`)."""
        return delay(failures, chance, self.least, self.most)

    def delay_denied(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` refused logins in a row."""
        return max(self.least, delay(failures, chance, self.denied / 2, self.most))

    def delay_retry_after(self, after: float, failures: int, chance: float) -> float:
        """Return the seconds to wait when the server asked for a pause of `after` seconds.

        A random part is added, so that a fleet does not return at once; `most` bounds the sum.
        """
        return min(self.most, max(0.0, after) + self.delay(failures, chance))
