"""Fair shares of a session's send buffer among the senders of stanzas.

The buffer holds the stanzas that the session's peer has not received. Stanzas of other sessions
share one half of it, and each sender gets at most a quarter of it, so that no sender can fill it
and the gateway's own stanzas have room. An empty share takes one stanza, however large.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ALL_SENDERS: Final = 2
"""All senders together may fill the buffer's size divided by this number."""

EACH_SENDER: Final = 4
"""Each sender may fill the buffer's size divided by this number."""


class BufferSize(NamedTuple):
    """A size in stanzas and in bytes: of a buffer, of a share of it, or of their contents."""

    stanzas: int
    bytes: int

    def divided_by(self, divisor: int) -> BufferSize:
        """Return a part of this size."""
        return BufferSize(self.stanzas // divisor, self.bytes // divisor)

    def has_room(self, used: BufferSize, size: int) -> bool:
        """Return whether a stanza of `size` bytes fits in addition to `used`; the first stanza
        always fits."""
        if not used.stanzas:
            return True
        return used.stanzas < self.stanzas and used.bytes + size <= self.bytes


EMPTY: Final = BufferSize(0, 0)


def has_room(buffer: BufferSize, used: BufferSize, by_sender: BufferSize, size: int) -> bool:
    """Return whether a stanza of a sender, of `size` bytes, fits in the sender's share of a buffer.

    `used` is what all senders use of the buffer, `by_sender` what this one uses.
    """
    each, all_senders = buffer.divided_by(EACH_SENDER), buffer.divided_by(ALL_SENDERS)
    return all_senders.has_room(used, size) and each.has_room(by_sender, size)


class SendShares:
    """Use and limits of each sender's share of a session's buffer of `size` stanzas and bytes."""

    __slots__ = ("_all_limit", "_by_sender", "_each_limit", "used")

    def __init__(self, size: BufferSize) -> None:
        self._all_limit = size.divided_by(ALL_SENDERS)
        self._each_limit = size.divided_by(EACH_SENDER)
        self._by_sender: dict[str, BufferSize] = {}
        self.used = EMPTY

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether a stanza of a sender, of `size` bytes, fits."""
        used = self._by_sender.get(sender, EMPTY)
        return self._all_limit.has_room(self.used, size) and self._each_limit.has_room(used, size)

    def add(self, sender: str, size: int) -> None:
        """Count a stanza that was added to the buffer."""
        self._count(sender, 1, size)

    def remove(self, sender: str, size: int) -> None:
        """Stop counting a stanza that was removed from the buffer."""
        self._count(sender, -1, -size)

    def _count(self, sender: str, stanzas: int, size: int) -> None:
        used = self._by_sender.get(sender, EMPTY)
        self.used = BufferSize(self.used.stanzas + stanzas, self.used.bytes + size)
        if used.stanzas + stanzas:
            self._by_sender[sender] = BufferSize(used.stanzas + stanzas, used.bytes + size)
        else:
            del self._by_sender[sender]
