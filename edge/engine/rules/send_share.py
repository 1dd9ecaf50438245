"""Fair shares of a session's send buffer among the senders of messages.

The buffer holds the messages that the session's peer has not received. Messages of other sessions
share one half of it, and each sender gets at most a quarter of it, so that no sender can fill it
and the gateway's own messages have room. An empty share takes one message, however large.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from edge.engine.rules.quota import NO_USAGE, Usage

ALL_SENDERS: Final = 2
"""All senders together may fill the buffer's size divided by this number."""

EACH_SENDER: Final = 4
"""Each sender may fill the buffer's size divided by this number."""


def has_room(buffer: Usage, used: Usage, by_sender: Usage, size: int) -> bool:
    """Return whether a message of `size` bytes fits in its sender's share of a buffer.

    `used` is what all senders use of the buffer, `by_sender` what this one uses.
    """
    each, all_senders = buffer.divided_by(EACH_SENDER), buffer.divided_by(ALL_SENDERS)
    return all_senders.has_room(used, size) and each.has_room(by_sender, size)


@lru_cache(maxsize=4)  # all sessions have the same
def _limits(messages: int, size: int) -> tuple[Usage, Usage]:
    whole = Usage(messages, size)
    return whole.divided_by(ALL_SENDERS), whole.divided_by(EACH_SENDER)


class SendShares:
    """Use and limits of each sender's share of a session's buffer of `size` messages and bytes."""

    __slots__ = ("_all_limit", "_by_sender", "_each_limit", "used")

    def __init__(self, size: Usage) -> None:
        self._all_limit, self._each_limit = _limits(*size)
        self._by_sender: dict[str, Usage] = {}
        self.used = NO_USAGE

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether a message of a sender, of `size` bytes, fits."""
        used = self._by_sender.get(sender, NO_USAGE)
        return self._all_limit.has_room(self.used, size) and self._each_limit.has_room(used, size)

    def add(self, sender: str, size: int) -> None:
        """Count a message that was added to the buffer."""
        self._count(sender, 1, size)

    def remove(self, sender: str, size: int) -> None:
        """Stop counting a message that was removed from the buffer."""
        self._count(sender, -1, -size)

    def _count(self, sender: str, messages: int, size: int) -> None:
        used = self._by_sender.get(sender, NO_USAGE)
        self.used = Usage(self.used.messages + messages, self.used.bytes + size)
        if used.messages + messages:
            self._by_sender[sender] = Usage(used.messages + messages, used.bytes + size)
        else:
            del self._by_sender[sender]
