"""What others send to a session that has no room for it: back where it came from, at once.

Messages are stored or their senders told, requests are answered with an error (`handlers.crowded`);
the session goes on. What came first stays first: while messages are on their way back, those behind
them go the same way. Presence is a state, so that of each sender the last one is kept, within a
bound, and sent when there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.errors import StoreError
from edge.server.shared import Shared
from edge.xmpp import sender_address

if TYPE_CHECKING:
    from edge.server.send_queue import Sending

LATEST: Final = 8
"""Kept presence takes at most one part in so many of what a session may leave unacknowledged."""

COST: Final = 256
"""Bytes that a presence that is kept costs beside its own."""

_PRESENCE: Final = b"<presence"
_MESSAGE: Final = b"<message"


class Surplus:
    """What one session has no room for.

    Args:
        shared: what all share.
        session: whose it is.
    """

    __slots__ = ("_bytes", "_latest", "_most", "_session", "_shared", "_under_way")

    def __init__(self, shared: Shared, session: Sending) -> None:
        self._shared = shared
        self._session = session
        self._most = shared.settings.limits.unacknowledged_bytes // LATEST
        self._latest: dict[bytes, bytes] = {}
        self._bytes = 0  # of those
        self._under_way: list[bytes] = []

    def is_before(self, stanza: bytes) -> bool:
        """Tell whether something waits here that a stanza must not overtake."""
        if stanza.startswith(_MESSAGE):
            return bool(self._under_way)
        return bool(self._latest) and stanza.startswith(_PRESENCE)

    def take(self, stanza: bytes) -> None:
        """Take what there is no room for."""
        if stanza.startswith(_PRESENCE) and self._keep(stanza):
            return
        self._under_way.append(stanza)
        if len(self._under_way) == 1:
            self._turn_back()

    def room(self) -> None:
        """Send what was kept, as far as it fits now."""
        if self._latest:
            kept = list(self._latest.values())
            self._drop()
            for stanza in kept:
                self._session.deliver(stanza, None)

    def _keep(self, stanza: bytes) -> bool:
        """Keep a presence instead of its sender's last one; false if there is no room here."""
        key = sender_address.presence_key(stanza)
        if (before := self._latest.pop(key, None)) is not None:
            self._hold(-len(before) - COST)
        size = len(stanza) + COST
        if self._bytes + size > self._most:
            return False
        self._latest[key] = stanza
        self._hold(size)
        return True

    def _drop(self) -> None:
        self._latest.clear()
        self._hold(-self._bytes)

    def _hold(self, size: int) -> None:
        self._bytes += size
        if not self._session.over:  # its count is given up as a whole
            self._session.hold(size)

    def _turn_back(self) -> None:
        """Give back what came by the time that the store has its turn."""
        stanzas, life = self._under_way, self._shared.lifecycle
        generation = self._session.generation

        def answer(outcome: int | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._refuse()
            else:
                self._done(outcome)

        self._shared.store.submit(lambda tx: life.turn_back(tx, generation, list(stanzas)), answer)

    def _refuse(self) -> None:
        """Tell who sent what could not be given back, which writes nothing; or count it."""
        stanzas, life = list(self._under_way), self._shared.lifecycle

        def answer(outcome: StoreError | None) -> None:
            if isinstance(outcome, StoreError):
                self._shared.tally.add("returned", len(stanzas))
            self._done(len(stanzas))

        self._shared.store.submit(lambda tx: life.refuse(tx, stanzas), answer)

    def _done(self, count: int) -> None:
        del self._under_way[:count]
        if self._under_way:
            self._turn_back()
