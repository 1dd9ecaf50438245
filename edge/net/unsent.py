"""What others sent to a session without stream management, while it is in our own buffers.

A stanza counts as arrived when it has left the connection's buffers (RFC 6120 knows no better); one
that has not when the session ends goes back where it came from. Positions are bytes written to the
connection since it began.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edge.store.database import Receipt


class Given(NamedTuple):
    """A stanza that was given to the connection, and the row that it came from, if it has one."""

    stanza: bytes
    receipt: Receipt | None


class Unsent:
    """The stanzas of one session that have not left yet, in order.

    Attributes:
        bytes: of those stanzas.
    """

    __slots__ = ("_flushed", "_given", "bytes")

    def __init__(self) -> None:
        self._given: list[Given] = []
        self._flushed: deque[tuple[int, list[Given]]] = deque()
        self.bytes = 0

    def add(self, stanza: bytes, receipt: Receipt | None) -> None:
        """Note what is given to the connection."""
        self._given.append(Given(stanza, receipt))
        self.bytes += len(stanza)

    def flushed(self, position: int) -> None:
        """Note that the connection has written all that it was given, up to `position`."""
        if self._given:
            self._flushed.append((position, self._given))
            self._given = []

    def left(self, position: int) -> list[Receipt]:
        """Forget what has left the buffers, up to `position`; returns the receipts of that."""
        receipts: list[Receipt] = []
        while self._flushed and self._flushed[0][0] <= position:
            for stanza, receipt in self._flushed.popleft()[1]:
                self.bytes -= len(stanza)
                if receipt is not None:
                    receipts.append(receipt)
        return receipts

    def unconfirmed(self) -> list[bytes]:
        """Return the stanzas that have not left, and that no row keeps, in order."""
        return [given.stanza for given in self._waiting() if given.receipt is None]

    def take_back(self) -> list[Given]:
        """Return all that has not left, in order, and forget it: its connection is gone."""
        found = self._waiting()
        self._flushed.clear()
        self._given = []
        self.bytes = 0
        return found

    def _waiting(self) -> list[Given]:
        return [*(given for _, group in self._flushed for given in group), *self._given]
