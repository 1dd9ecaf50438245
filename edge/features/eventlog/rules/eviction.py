"""Whose segments go when the backlog is full: so that a flood in one lane costs that lane alone.

Pure: what waits, and which segments are the oldest, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

EVICTION_DIVISOR: Final = 64
"""Once it is full, this part of the backlog is made free: what went is told by an event, and were
that alone enough to fill it again, sealing and giving up would never end."""


class BacklogQuota(NamedTuple):
    """How many bytes may wait in all, and which share of them (of 1) each lane has for certain."""

    bytes: int
    shares: Mapping[str, float]


def is_over_quota(used: Mapping[str, int], bound: BacklogQuota) -> bool:
    """Tell whether more waits than may; `used` has the bytes of each lane."""
    return sum(used.values()) > bound.bytes


def eviction_target(bound: BacklogQuota) -> BacklogQuota:
    """Return what a backlog that is over its bound is brought to."""
    return bound._replace(bytes=bound.bytes - bound.bytes // EVICTION_DIVISOR)


def lane_to_evict(used: Mapping[str, int], bound: BacklogQuota) -> str:
    """Return the lane that is over its share by most bytes.

    As the shares make up 1, there is one that is over its share whenever all of them are over the
    bound: so what a lane has within its share stays.
    """
    return max(used, key=lambda lane: used[lane] - bound.shares[lane] * bound.bytes)


def hours_until_full(room: int, sealed: int, seconds: float) -> float | None:
    """Return in how many hours `room` bytes are full, at the rate of `sealed` bytes in `seconds`.

    `None` where that says nothing: nothing was sealed, or a clock was set back.
    """
    if sealed <= 0 or seconds <= 0:
        return None
    return max(0, room) / (sealed / seconds) / 3600
