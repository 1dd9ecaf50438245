"""Tracking of what is in a connection's write buffers, for a session without acknowledgements.

A message or an answer counts as delivered when it has left the buffers. One that is still in the
buffers when the session ends is routed again. Positions are bytes written to the connection since
it began.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from edge.engine.store.database import Receipt, SentMessage

STANZA_OVERHEAD: Final = 128
"""Bytes of memory for each kept message beside its text: objects, and its place in a queue."""


class Unstored(NamedTuple):
    """The origin of what is sent and in no table: the message that it encodes.

    Attributes:
        message: routed again if the session ends without it.
        source: the bare JID of the account that it comes from, "" for the gateway itself.
        size: the bytes that count towards the share of `source` in the buffer (`send_share`).
    """

    message: SentMessage
    source: str
    size: int


Token: TypeAlias = Receipt | Unstored | None
"""The origin of what is sent: a row, a message, or (None) an answer, which is never routed
again."""


def is_own(token: Token) -> bool:
    """Return whether a message is the gateway's own, and no table stores it."""
    return token is None or (isinstance(token, Unstored) and not token.source)


class PendingWrite(NamedTuple):
    """A message in the write buffers; `token` is its origin."""

    data: bytes
    token: Token


class WriteTracker:
    """The messages and answers of one session that have not left the buffers, in order.

    Attributes:
        bytes: size of all of them.
        own_bytes: size of those among them that are the gateway's own.
    """

    __slots__ = ("_flushed", "_unflushed", "bytes", "own_bytes")

    def __init__(self) -> None:
        self._unflushed: list[PendingWrite] = []
        self._flushed: list[tuple[int, list[PendingWrite]]] = []
        self.bytes = 0
        self.own_bytes = 0

    def add(self, data: bytes, token: Token) -> None:
        """Add a message that is written to the connection; `token` is its origin."""
        self._unflushed.append(PendingWrite(data, token))
        self._count(token, len(data))

    def _count(self, token: Token, size: int) -> None:
        self.bytes += size
        if is_own(token):
            self.own_bytes += size

    def mark_flushed(self, position: int) -> None:
        """Record that all added messages were written; the last ends at the byte `position`."""
        if self._unflushed:
            self._flushed.append((position, self._unflushed))
            self._unflushed = []

    def remove_sent(self, position: int) -> list[Token]:
        """Remove the messages that have left the buffers, up to `position`; return their tokens."""
        tokens: list[Token] = []
        sent = 0
        for end, group in self._flushed:
            if end > position:
                break
            sent += 1
            for data, token in group:
                self._count(token, -len(data))
                tokens.append(token)
        del self._flushed[:sent]
        return tokens

    def tokens(self) -> list[Token]:
        """Return the tokens of the messages, in order."""
        return [write.token for write in self._pending()]

    def take_all(self) -> list[PendingWrite]:
        """Remove and return all messages, in order, because their connection is closed."""
        found = self._pending()
        self._flushed.clear()
        self._unflushed = []
        self.bytes = self.own_bytes = 0
        return found

    def _pending(self) -> list[PendingWrite]:
        return [*(write for _, group in self._flushed for write in group), *self._unflushed]
