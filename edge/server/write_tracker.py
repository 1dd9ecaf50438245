"""What others sent to a session without stream management, while it is in our own buffers.

A stanza counts as arrived when it has left the connection's buffers (RFC 6120 knows no better); one
that has not when the session ends goes back where it came from. Positions are bytes written to the
connection since it began.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from edge.engine.database import Receipt


class Relayed(NamedTuple):
    """What a stanza that another sends is known by: its source, a bare JID as it is written, and
    its bytes, which count in that source's share (`rules.shares`)."""

    source: bytes
    size: int


Token: TypeAlias = Receipt | Relayed | None
"""What a stanza of a session is known by: the row that it came from, who sent it, or neither, for
the gateway's own and its answers."""


class Given(NamedTuple):
    """A stanza that was given to the connection, and what it is known by."""

    stanza: bytes
    token: Token


class Unsent:
    """The stanzas of one session that have not left yet, in order.

    Attributes:
        bytes: of those stanzas.
        own: bytes of those of them that are the gateway's own.
    """

    __slots__ = ("_flushed", "_given", "bytes", "own")

    def __init__(self) -> None:
        self._given: list[Given] = []
        self._flushed: deque[tuple[int, list[Given]]] = deque()
        self.bytes = 0
        self.own = 0

    def add(self, stanza: bytes, token: Token) -> None:
        """Note what is given to the connection."""
        self._given.append(Given(stanza, token))
        self._count(token, len(stanza))

    def _count(self, token: Token, size: int) -> None:
        self.bytes += size
        if token is None:
            self.own += size

    def flushed(self, position: int) -> None:
        """Note that the connection has written all that it was given, up to `position`."""
        if self._given:
            self._flushed.append((position, self._given))
            self._given = []

    def left(self, position: int) -> list[Token]:
        """Forget what has left the buffers, up to `position`; returns the tokens of that."""
        tokens: list[Token] = []
        while self._flushed and self._flushed[0][0] <= position:
            for stanza, token in self._flushed.popleft()[1]:
                self._count(token, -len(stanza))
                tokens.append(token)
        return tokens

    def unconfirmed(self) -> list[bytes]:
        """Return the stanzas that have not left, and that no row keeps, in order."""
        return [given.stanza for given in self._waiting() if not isinstance(given.token, Receipt)]

    def take_back(self) -> list[Given]:
        """Return all that has not left, in order, and forget it: its connection is gone."""
        found = self._waiting()
        self._flushed.clear()
        self._given = []
        self.bytes = self.own = 0
        return found

    def _waiting(self) -> list[Given]:
        return [*(given for _, group in self._flushed for given in group), *self._given]
