"""Decide whether the uploader sends a current segment or one of the backlog next.

After an outage, the centre needs the current state and the missed segments. While both wait, newly
sealed segments get a share of the bytes, and the backlog, oldest first, gets the rest.
"""

from __future__ import annotations

from typing import Final

from sync.segment.records import LANES
from sync.uplink.interfaces import SendOrder

_CURRENT_AFTER_OUTAGE: Final = len(LANES)
"""Number of segments after an outage that are not sent as backlog: the newest of each lane."""


class UploadScheduler:
    """Gives new segments the fraction `share` of the sent bytes, and the backlog the rest."""

    def __init__(self, share: float = 0.5) -> None:
        if not 0 < share < 1:
            raise ValueError("share must be above 0 and below 1")
        self._share = share
        self._current = _CURRENT_AFTER_OUTAGE
        self._surplus = 0.0  # bytes that current segments got beyond their share

    def sealed(self) -> None:
        """Note that a segment was sealed; the new segment counts as current."""
        self._current += 1

    def disconnected(self) -> None:
        """Note that the centre is unreachable: only each lane's newest segment stays current."""
        self._current = _CURRENT_AFTER_OUTAGE
        self._surplus = 0.0

    def emptied(self) -> None:
        """Note that no segment waits."""
        self._current = 0
        self._surplus = 0.0

    def next(self) -> SendOrder:
        """Return whether to send the oldest or the newest waiting segment."""
        return SendOrder.NEWEST if self._current and self._surplus <= 0 else SendOrder.OLDEST

    def sent(self, order: SendOrder, size: int) -> None:
        """Count a segment of `size` bytes; `order` is the answer of `next` that chose it.

        Bytes count only while both current segments and the backlog wait: no share is saved up.
        The bytes of either differ from its share of all by the size of one segment at most.
        """
        if order is SendOrder.NEWEST:
            self._surplus += size * (1 - self._share)
            self._current -= 1
        elif self._current:
            self._surplus -= size * self._share
