"""Decide whether the uploader sends a current segment or one of the backlog next.

After an outage, the centre needs the current state and the missed segments. While both wait, newly
sealed segments get a share of the bytes, and the backlog, oldest first, gets the rest.
"""

from __future__ import annotations

from typing import Final

from sync.segment.records import LANES
from sync.uplink.interfaces import SendOrder

_CURRENT_AFTER_OUTAGE: Final = len(LANES)
"""Segments that count as current after an outage: the newest of each lane."""


class UploadScheduler:
    """Divides the link: current segments get `share` of the bytes (above 0 and below 1)."""

    def __init__(self, share: float = 0.5) -> None:
        if not 0 < share < 1:
            raise ValueError("share: above 0 and below 1")
        self._share = share
        self._current = _CURRENT_AFTER_OUTAGE
        self._surplus = 0.0  # bytes that current segments got beyond their share

    def sealed(self) -> None:
        """Note that a segment was sealed, which counts as current."""
        self._current += 1

    def disconnected(self) -> None:
        """Note that the centre is unreachable: the waiting segments become the backlog."""
        self._current = _CURRENT_AFTER_OUTAGE
        self._surplus = 0.0

    def emptied(self) -> None:
        """Note that no segment waits."""
        self._current = 0
        self._surplus = 0.0

    def next(self) -> SendOrder:
        """Return which of the waiting segments to send."""
        return SendOrder.NEWEST if self._current and self._surplus <= 0 else SendOrder.OLDEST

    def sent(self, order: SendOrder, size: int) -> None:
        """Note that a segment of `size` bytes was sent as `next` returned.

        Only bytes sent while both kinds wait count, so that an unused share is not saved up. The
        surplus stays within the size of one segment.
        """
        if order is SendOrder.NEWEST:
            self._surplus += size * (1 - self._share)
            self._current -= 1
        elif self._current:
            self._surplus -= size * self._share
