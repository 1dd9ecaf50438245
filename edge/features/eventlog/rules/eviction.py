"""Choose the lane that loses segments when the backlog is full.

A lane with too many events loses its own segments; other lanes keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

MIN_MEASURED: Final = 3600.0
"""Minimum seconds of measurement for an estimate of the time until the backlog is full."""

EVICTION_DIVISOR: Final = 64
"""Each eviction frees a fraction of the quota: 1 divided by this number.

Each eviction is logged as an event. If too few bytes were freed, that event alone could fill the
backlog again, and sealing and evicting would never end.
"""


class BacklogQuota(NamedTuple):
    """The maximum bytes of all waiting segments, and the guaranteed share of each lane (sum: 1)."""

    bytes: int
    shares: Mapping[str, float]


def is_over_quota(used: Mapping[str, int], bound: BacklogQuota) -> bool:
    """Return whether the waiting bytes, given by lane, exceed the quota."""
    return sum(used.values()) > bound.bytes


def eviction_target(bound: BacklogQuota) -> BacklogQuota:
    """Return the quota to which a full backlog is reduced, a little below `bound`."""
    return bound._replace(bytes=bound.bytes - bound.bytes // EVICTION_DIVISOR)


def lane_to_evict(used: Mapping[str, int], bound: BacklogQuota) -> str:
    """Return the lane that exceeds its share by the most bytes.

    Because the shares sum to 1, at least one lane exceeds its share whenever the backlog exceeds
    the quota. So segments within a lane's share are never evicted.
    """
    return max(used, key=lambda lane: used[lane] - bound.shares[lane] * bound.bytes)


def hours_until_full(room: int, sealed: int, seconds: float) -> float | None:
    """Return the hours until `room` bytes are full at the rate of `sealed` bytes in `seconds`.

    Returns `None` if the rate is unknown, because nothing was sealed, the measurement took less
    than `MIN_MEASURED` seconds, or the clock was set back.
    """
    if sealed <= 0 or seconds < MIN_MEASURED:
        return None
    return max(0, room) / (sealed / seconds) / 3600
