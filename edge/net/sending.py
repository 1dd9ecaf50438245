"""What a session sends: answers, and what others have for it, until its peer has got them.

With stream management (XEP-0198), all of it is kept until it is acknowledged, within bounds, also
while there is no connection. Without, what others sent is kept until it is written. A session that
goes over a bound is ended: to drop a stanza would be to lose it.

When a session begins and ends is told in `net.session`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.net.unsent import Unsent
from edge.store.database import STAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge.errors import StoreError
    from edge.net.channel import Channel
    from edge.net.connection import Connection
    from edge.net.shared import Shared
    from edge.store.database import Receipt
    from edge.wire.management import Management

KEPT: Final = 128
"""Bytes that a stanza which is kept costs beside its own: objects, and its place in a queue."""

BACKLOG: Final = 4
"""What others sent to a peer that does not read, in units of `limits.send_buffer`: its answers fill
one, and then it is not read; what others send has no such brake."""


class Sending:
    """What a session of `full` sends, on its connection while it has one."""

    __slots__ = (
        "_asked", "_shared", "_to_confirm", "_unsent", "_urgent", "account", "bare", "connection",
        "full", "generation", "held", "late", "management", "on_late", "over", "tracking",
    )  # fmt: skip

    def __init__(self, shared: Shared, account: str, full: str) -> None:
        self._shared = shared
        self.generation = shared.registry.generation()
        self.account = account
        self.full = full
        self.bare = full.partition("/")[0]
        self.connection: Connection | None = None
        self.over = False
        self.management: Management[Receipt | None] | None = None
        self.held = 0  # bytes of what is not acknowledged, as they are counted for all sessions
        self.tracking = False  # the connection's writing has to be followed
        self._unsent = Unsent()
        self._asked: float | None = None  # when, for an acknowledgement that has not come
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
        """Send what another unit of work has for this session.

        What does not fit ends the session, and goes back with the rest.
        """
        if self.over:
            if receipt is None:
                self.late.append(stanza)
                self.on_late()
        elif self.management is not None:
            self._urgent = self._urgent or receipt not in (None, STAYS)
            if self._keep(stanza, receipt):
                self._write(stanza)
        else:
            self.tracking = True
            self._unsent.add(stanza, receipt)
            self._write(stanza)
            self._see_backlog()

    def _see_backlog(self) -> None:
        """End the session if too much of what others sent is not read, after all."""
        most = BACKLOG * self._shared.settings.limits.send_buffer
        if self._unsent.bytes > most and self.connection is not None:
            self.connection.flush()
            if self._unsent.bytes > most:
                self._overflow("too much is not read")

    def _write(self, stanza: bytes) -> None:
        if self.connection is not None:
            self.connection.send(stanza)

    def _keep(self, stanza: bytes, receipt: Receipt | None) -> bool:
        """Keep a stanza until it is acknowledged; false if that was too much."""
        assert self.management is not None  # noqa: S101
        registry, size = self._shared.registry, len(stanza) + KEPT
        self.held += size
        registry.unacknowledged += size
        if not self.management.send(stanza, receipt):
            self._overflow("too much is not acknowledged")
        elif registry.unacknowledged > self._shared.settings.limits.unacknowledged_total_bytes:
            registry.relieve()
        return not self.over

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
            if self.management is not None and self.management.bytes:
                self._look_for_acknowledgement(self.connection, self.management)
        return bool(self._unsent.bytes or self._to_confirm or self._asked is not None)

    def _look_for_acknowledgement(
        self, connection: Connection, managed: Management[Receipt | None]
    ) -> None:
        """Ask for it, or end: who is there has as long to acknowledge as who has to come back."""
        limits = self._shared.settings.limits
        if self._asked is None:
            connection.send(self._request(managed))
        elif self._shared.loop.time() - self._asked > max(limits.resume_time, limits.stalled_time):
            end, text = self._shared.registry.end, "nothing is acknowledged"
            end(self.generation, "connection-timeout", text)

    def _request(self, managed: Management[Receipt | None]) -> bytes:
        self._asked = self._shared.loop.time()
        self._urgent = False
        self._shared.watch(self)
        return managed.request()

    def _see_unsent(self, connection: Channel) -> None:
        self._confirm(self._unsent.left(connection.written - connection.backlog()))
        if self._unsent.bytes:
            self._shared.watch(self)
        else:
            self.tracking = self.management is not None

    def _confirm(self, receipts: list[Receipt]) -> None:
        """Tell the store which rows' stanzas have arrived; what it cannot note is told again."""

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None:
                self._to_confirm += receipts
                self._shared.watch(self)

        receipts = [receipt for receipt in receipts if receipt is not STAYS]
        if receipts:
            confirm, generation = self._shared.lifecycle.confirm, self.generation
            self._shared.store.submit(lambda tx: confirm(tx, generation, receipts), answer)

    def acknowledged(self, managed: Management[Receipt | None], h: int) -> None:
        """Forget what the peer has handled; raises `StreamError` if it cannot have."""
        before = managed.bytes
        tokens = managed.acknowledge(h)
        freed = before - managed.bytes + KEPT * len(tokens)
        self.held -= freed
        self._shared.registry.unacknowledged -= freed
        self._asked = None
        self._confirm([token for token in tokens if token is not None])

    def unconfirmed(self) -> list[bytes]:
        """Return the stanzas that the peer may not have got, and that no row keeps, in order."""
        stanzas = self._unsent.unconfirmed()
        if self.management is not None:
            stanzas += [s.stanza for s in self.management.unacknowledged if s.token is None]
        return stanzas

    def _overflow(self, text: str) -> None:
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
            for stanza, receipt in self._unsent.take_back():
                self.deliver(stanza, receipt)

    def release(self) -> None:
        """Count what is kept no more: it is about to be given back."""
        self._shared.registry.unacknowledged -= self.held
        self.held = 0

    def forget(self) -> None:
        """Let go of what is kept: it has been given back."""
        self._shared.registry.forget(self.generation)
        self.management = None
