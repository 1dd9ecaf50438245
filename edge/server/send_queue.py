"""What a session sends: answers, and what others have for it, until its peer has got them.

With stream management (XEP-0198), all of it is kept until it is acknowledged, within bounds, also
while there is no connection. Without, what others sent is kept until it is written. What another
session sends and there is no room for goes back (`surplus`), while the session goes on: nobody ends
another's. A session whose own answers go over a bound is ended: to drop one would be to lose it.
Rows always fit: who hands them over bounds them.

When a session begins and ends is told in `net.session`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edge.engine.database import AWAITS_ANSWER, Receipt
from edge.errors import StoreError
from edge.server.overflow import Surplus
from edge.server.send_share import Room, Shares
from edge.server.shared import Shared
from edge.server.write_tracker import Relayed, Token, Unsent
from edge.xmpp import sender_address
from edge.xmpp.stream.management import Management

if TYPE_CHECKING:
    from edge.server.channel import Channel
    from edge.server.connection import Connection

KEPT: Final = 128
"""Bytes that a stanza which is kept costs beside its own: objects, and its place in a queue."""

BACKLOG: Final = 4
"""What the gateway itself sent to a peer that does not read, in units of `limits.send_buffer`: its
answers fill one, and then it is not read; what else there is has no such brake."""


class Sending:
    """What a session of `full` sends, on its connection while it has one."""

    __slots__ = (
        "_asked", "_left", "_left_at", "_shared", "_shares", "_surplus", "_to_confirm", "_unsent",
        "_urgent", "account", "bare", "connection", "full", "generation", "held", "late",
        "management", "on_late", "over", "tracking",
    )  # fmt: skip

    def __init__(self, shared: Shared, account: str, full: str) -> None:
        self._shared = shared
        self.generation = shared.registry.generation()
        self.account = account
        self.full = full
        self.bare = full.partition("/")[0]
        self.connection: Connection | None = None
        self.over = False
        self.management: Management[Token] | None = None
        self.held = 0  # bytes of what is not acknowledged, as they are counted for all sessions
        self.tracking = False  # the connection's writing has to be followed
        self._unsent = Unsent()
        limits = shared.settings.limits
        self._shares = Shares(Room(limits.unacknowledged_stanzas, limits.unacknowledged_bytes))
        self._surplus: Surplus | None = None  # made when something does not fit
        self._asked: float | None = None  # when, for an acknowledgement that has not come
        self._left = -1  # how far what was written has left the buffers, in bytes,
        self._left_at = 0.0  # and since when
        self._urgent = False  # a row waits for an acknowledgement that was not asked for
        self._to_confirm: list[Receipt] = []
        self.late: list[bytes] = []  # came since the session is over
        self.on_late: Callable[[], None] = lambda: None

    def answer(self, answer: bytes) -> None:
        """Send the answer to a stanza of the peer's."""
        if self.over or not answer:
            return
        if self.management is None or self._keep(answer, None):
            self._write(answer)

    def deliver(self, stanza: bytes, receipt: Receipt | None) -> None:
        """Send what another unit of work has for this session; what does not fit goes back."""
        if self.over:
            if receipt is None:
                self.late.append(stanza)
                self.on_late()
            return
        source = b"" if receipt is not None else sender_address.bare_sender(stanza)
        if b"@" not in source:  # a row's, or the gateway's own
            self._hand_over(stanza, receipt)
        elif self._has_room(source, stanza):
            relayed = Relayed(source, len(stanza))
            self._shares.add(*relayed)
            self._hand_over(stanza, relayed)
        else:
            if self._surplus is None:
                self._surplus = Surplus(self._shared, self)
            self._surplus.take(stanza)

    def _has_room(self, source: bytes, stanza: bytes) -> bool:
        """Tell whether a stanza that another sends fits, and none waits that was before it."""
        if self._surplus is not None and self._surplus.is_before(stanza):
            return False
        size = len(stanza)
        if self.management is not None:
            return self._shares.fits(source, size) and self._shared.registry.has_room(size + KEPT)
        if not self._shares.fits(source, size) and self.connection is not None:
            self.connection.flush()  # what is written by now has left
        return self._shares.fits(source, size)

    def _hand_over(self, stanza: bytes, token: Token) -> None:
        if self.management is not None:
            self._urgent = self._urgent or (isinstance(token, Receipt) and token != AWAITS_ANSWER)
            if self._keep(stanza, token):
                self._write(stanza)
        else:
            self.tracking = True
            self._unsent.add(stanza, token)
            self._write(stanza)
            self._see_backlog()

    def _see_backlog(self) -> None:
        """End the session if too much of what the gateway sent is not read, after all."""
        most = BACKLOG * self._shared.settings.limits.send_buffer
        if self._unsent.own > most and self.connection is not None:
            self.connection.flush()
            if self._unsent.own > most:
                self._overflow("send_buffer", "too much is not read")

    def _write(self, stanza: bytes) -> None:
        if self.connection is not None:
            self.connection.send(stanza)

    def _keep(self, stanza: bytes, token: Token) -> bool:
        """Keep a stanza until it is acknowledged; false if that was too much."""
        assert self.management is not None  # noqa: S101
        registry = self._shared.registry
        self.hold(len(stanza) + KEPT)
        if not self.management.send(stanza, token):
            self._overflow("unacknowledged_bytes", "too much is not acknowledged")
        elif registry.unacknowledged > self._shared.settings.limits.unacknowledged_total_bytes:
            self._shared.tally.add("unacknowledged_total_bytes", source=registry.relieve())
        return not self.over

    def hold(self, size: int) -> None:
        """Count bytes that are kept, of all sessions, or if negative that are kept no more."""
        self.held += size
        self._shared.registry.unacknowledged += size

    def flushing(self, out: list[bytes]) -> None:
        """Add to what is about to be written the question whether it arrived, if it is time."""
        if self.management is None:
            return
        if self._urgent or self.management.wants_request():
            out.append(self._request(self.management))
        elif self.management.bytes and self._asked is None:
            self._shared.watch(self)

    def flushed(self, connection: Channel) -> None:
        """Note that all that was to be sent is in the connection's buffers."""
        self._unsent.flushed(connection.written)
        self._see_unsent(connection)

    def look(self) -> bool:
        """See what the peer has taken, ask what it has got, and try again what failed."""
        if self.over:
            return False
        if self._to_confirm:
            receipts, self._to_confirm = self._to_confirm, []
            self._confirm(receipts)
        if self.connection is not None:
            if self._unsent.bytes:
                self._see_unsent(self.connection)
                self._look_for_progress(self.connection)
            if self.management is not None and self.management.bytes:
                self._look_for_acknowledgement(self.connection, self.management)
        return bool(self._unsent.bytes or self._to_confirm or self._asked is not None)

    def _look_for_progress(self, connection: Connection) -> None:
        """End if nothing of what others sent leaves, be it too little to stop reading for."""
        now, left = self._shared.loop.time(), connection.written - connection.backlog()
        if not self._unsent.bytes:
            self._left = -1
        elif left != self._left:
            self._left, self._left_at = left, now
        elif now - self._left_at > self._shared.settings.limits.stalled_time:
            self._shared.registry.end(self.generation, "connection-timeout", "nothing is read")

    def _look_for_acknowledgement(self, connection: Connection, managed: Management[Token]) -> None:
        """Ask for it, or end: who is there has as long to acknowledge as who has to come back."""
        limits = self._shared.settings.limits
        if self._asked is None:
            connection.send(self._request(managed))
        elif self._shared.loop.time() - self._asked > max(limits.resume_time, limits.stalled_time):
            end, text = self._shared.registry.end, "nothing is acknowledged"
            end(self.generation, "connection-timeout", text)

    def _request(self, managed: Management[Token]) -> bytes:
        self._asked = self._shared.loop.time()
        self._urgent = False
        self._shared.watch(self)
        return managed.request()

    def _see_unsent(self, connection: Channel) -> None:
        self._has_got(self._unsent.left(connection.written - connection.backlog()))
        if self._unsent.bytes:
            self._shared.watch(self)
        else:
            self.tracking = self.management is not None

    def _has_got(self, tokens: list[Token]) -> None:
        """Note what has arrived: there is room for more."""
        receipts = []
        for token in tokens:
            if isinstance(token, Relayed):
                self._shares.remove(*token)
            elif token is not None:
                receipts.append(token)
        self._confirm(receipts)
        if tokens and self._surplus is not None:
            self._surplus.room()

    def _confirm(self, receipts: list[Receipt]) -> None:
        """Tell the store which rows' stanzas have arrived; what it cannot note is told again."""

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None:
                self._to_confirm += receipts
                self._shared.watch(self)

        receipts = [receipt for receipt in receipts if receipt is not AWAITS_ANSWER]
        if receipts:
            confirm, generation = self._shared.lifecycle.confirm, self.generation
            self._shared.store.submit(lambda tx: confirm(tx, generation, receipts), answer)

    def acknowledged(self, managed: Management[Token], h: int) -> None:
        """Forget what the peer has handled; raises `StreamError` if it cannot have."""
        before = managed.bytes
        tokens = managed.acknowledge(h)
        self.hold(managed.bytes - before - KEPT * len(tokens))
        self._asked = None
        self._has_got(tokens)

    def unconfirmed(self) -> list[bytes]:
        """Return the stanzas that the peer may not have got, and that no row keeps, in order."""
        stanzas = self._unsent.unconfirmed()
        if self.management is not None:
            stanzas += [
                s.stanza for s in self.management.unacknowledged if not isinstance(s.token, Receipt)
            ]
        return stanzas

    def _overflow(self, rule: str, text: str) -> None:
        self._shared.tally.add(rule, source=self.bare)
        self._shared.registry.end(self.generation, "resource-constraint", text)

    def send_again(self) -> None:
        """Send what is not acknowledged on the connection that there is now.

        What was sent before stream management was turned on, and never left the old connection,
        comes behind, and is to be acknowledged now.
        """
        if self.management is not None and self.connection is not None:
            for kept in self.management.unacknowledged:
                self.connection.send(kept.stanza)
            self._urgent = bool(self.management.bytes)
            for stanza, token in self._unsent.take_back():
                if isinstance(token, Relayed):
                    self._shares.remove(*token)
                self.deliver(stanza, token if isinstance(token, Receipt) else None)

    def release(self) -> None:
        """Count what is kept no more: it is about to be given back."""
        self._shared.registry.unacknowledged -= self.held
        self.held = 0

    def forget(self) -> None:
        """Let go of what is kept: it has been given back."""
        self._shared.registry.forget(self.generation)
        self.management = None
