"""Whose turn it is on the link: the present's or the past's.

After an outage the centre wants to see what is now, and to get what it missed. While both wait,
what is sealed now gets its share of the bytes, and the backlog, the oldest first, gets the rest.
Pure: holds a few numbers and no segment.
"""

from __future__ import annotations

from typing import Final

from sync.segment.records import LANES
from sync.uplink.interfaces import SendOrder

_PRESENT: Final = len(LANES)
"""Segments that are the present when the centre is met again: the newest of each lane."""


class UploadScheduler:
    """Shares the link by `share`, the present's part of it, above 0 and below 1."""

    def __init__(self, share: float = 0.5) -> None:
        if not 0 < share < 1:
            raise ValueError("share: above 0 and below 1")
        self._share = share
        self._fresh = _PRESENT
        self._ahead = 0.0

    def sealed(self) -> None:
        """Note that a segment was sealed: one more that is the present."""
        self._fresh += 1

    def lost(self) -> None:
        """Note that the centre is out of reach: what waits when it is met again is the past."""
        self._fresh = _PRESENT
        self._ahead = 0.0

    def empty(self) -> None:
        """Note that nothing waits: neither side is owed anything."""
        self._fresh = 0
        self._ahead = 0.0

    def next(self) -> SendOrder:
        """Say which of the waiting segments is to be offered."""
        return SendOrder.NEWEST if self._fresh and self._ahead <= 0 else SendOrder.OLDEST

    def sent(self, order: SendOrder, size: int) -> None:
        """Note that a segment of `size` bytes went out, in answer to `next`.

        Only what went out while both sides waited counts: what one could not use, it is not owed.
        `_ahead` is by how many bytes the present has had more than its share; it stays within the
        size of a segment.
        """
        if order is SendOrder.NEWEST:
            self._ahead += size * (1 - self._share)
            self._fresh -= 1
        elif self._fresh:
            self._ahead -= size * self._share
