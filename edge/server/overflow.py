"""Handling of stanzas that a session has no room for.

The session continues. Of each sender, the latest presence is kept, within a limit, and sent when
there is room. All other stanzas are returned, that is stored or refused, at once
(`messages.xmpp.returned_stanzas`). Order is kept: while messages are being returned, later messages
are returned, too.
"""

from __future__ import annotations

from typing import Final, Protocol

from edge.engine.database import Receipt
from edge.errors import StoreError
from edge.server.server_context import ServerContext
from edge.xmpp import sender_address

PRESENCE_SHARE: Final = 8
"""`limits.unacknowledged_bytes` divided by this is the maximum bytes of presence that is kept until
the session has room. Presence above it is returned, like other stanzas."""

PRESENCE_OVERHEAD: Final = 256
"""Bytes of memory that each kept presence takes in addition to its stanza."""

_PRESENCE: Final = b"<presence"
_MESSAGE: Final = b"<message"


class OverflowingSession(Protocol):
    """The methods of a session that its overflow calls."""

    generation: int

    def deliver(self, stanza: bytes, receipt: Receipt | None) -> None:
        """Send a stanza, or pass it to the overflow if the session has no room for it."""

    def count_unacknowledged(self, size: int) -> None:
        """Add to the session's unacknowledged bytes."""


class Overflow:
    """The stanzas that one session has no room for: kept or returned, as the module describes."""

    __slots__ = ("_context", "_limit", "_presence", "_presence_bytes", "_returning", "_session")

    def __init__(self, context: ServerContext, session: OverflowingSession) -> None:
        self._context = context
        self._session = session
        self._limit = context.settings.limits.unacknowledged_bytes // PRESENCE_SHARE
        self._presence: dict[bytes, bytes] = {}
        self._presence_bytes = 0
        self._returning: list[bytes] = []

    def holds_predecessor(self, stanza: bytes) -> bool:
        """Return whether the overflow has stanzas that `stanza` must not overtake."""
        if stanza.startswith(_MESSAGE):
            return bool(self._returning)
        return bool(self._presence) and stanza.startswith(_PRESENCE)

    def add(self, stanza: bytes) -> None:
        """Keep or return a stanza that the session has no room for, as the module describes."""
        if stanza.startswith(_PRESENCE) and self._keep_presence(stanza):
            return
        self._returning.append(stanza)
        if len(self._returning) == 1:
            self._return_stanzas()

    def send_kept(self) -> None:
        """Send the presence stanzas that wait here, and keep those that still have no room."""
        if self._presence:
            kept = list(self._presence.values())
            self._presence.clear()
            self._count(-self._presence_bytes)
            for stanza in kept:
                self._session.deliver(stanza, None)

    def _keep_presence(self, stanza: bytes) -> bool:
        """Keep a presence in place of its sender's last one; return whether there is room."""
        key = sender_address.presence_key(stanza)
        if (before := self._presence.pop(key, None)) is not None:
            self._count(-len(before) - PRESENCE_OVERHEAD)
        size = len(stanza) + PRESENCE_OVERHEAD
        if self._presence_bytes + size > self._limit:
            return False
        self._presence[key] = stanza
        self._count(size)
        return True

    def _count(self, size: int) -> None:
        self._presence_bytes += size
        self._session.count_unacknowledged(size)

    def _return_stanzas(self) -> None:
        """Store or refuse all stanzas to be returned, also those added before the unit runs."""
        stanzas, lifecycle = self._returning, self._context.lifecycle
        generation = self._session.generation

        def answer(outcome: int | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._refuse_stanzas()
            else:
                self._mark_returned(outcome)

        self._context.store.submit(
            lambda tx: lifecycle.reroute_overflow(tx, generation, list(stanzas)), answer
        )

    def _refuse_stanzas(self) -> None:
        """Send errors to the stanzas' senders, which needs no room on the disk; if that fails, too,
        count the stanzas as refused."""
        stanzas, lifecycle = list(self._returning), self._context.lifecycle

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._context.refusals.add("returned", len(stanzas))
            self._mark_returned(len(stanzas))

        self._context.store.submit(lambda tx: lifecycle.reject(tx, stanzas), answer)

    def _mark_returned(self, count: int) -> None:
        del self._returning[:count]
        if self._returning:
            self._return_stanzas()
