"""The stanzas of a component's link: from whom, to the store, and the answers back.

Each full JID that speaks over the link has a session, as a device of the gateway's own has; its
stanzas go through the same router and the same store. While too much waits for the store, or the
server does not take what it is sent, the link is not read. Connecting is `front`'s, and bytes
are `link`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from edge.engine import access, refusals, sessions
from edge.engine.access import Sender
from edge.engine.database import Receipt, Send, Transaction
from edge.engine.hooks import OffloadedWork, Work
from edge.engine.router import Router, guarded, refusal
from edge.engine.session_lifecycle import SessionLifecycle
from edge.errors import StoreError
from edge.features.presence import remote_presence
from edge.server.component.peers import Peer, Peers
from edge.server.store_errors import rule, stanza_error
from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, clark
from edge.xmpp.stanza import STANZA_NAMES, Item, OversizedStanza, Stanza

if TYPE_CHECKING:
    from edge.engine.group_commit import Store
    from edge.server.refusal_counters import Tally

IN_FLIGHT: Final = 512
"""Stanzas of the link that wait for a commit, as many as one has; then the link waits."""

IN_FLIGHT_BYTES: Final = 1024 * 1024
"""The bytes of those: as much as the largest stanza that the link carries."""

LEAVE_AGAIN: Final = 5.0
"""Seconds after which sessions leave again where the store could not do it."""

_PRESENCE: Final = clark(CLIENT, "presence")


class Wire(Protocol):
    """What is asked of the link."""

    def write(self, data: bytes) -> None:
        """Send bytes, if there is a link."""

    def read(self, wanted: bool) -> None:
        """Read on, or leave the server waiting."""


class Traffic:
    """What goes over the link of a component, within bounds."""

    def __init__(self, store: Store, router: Router, tally: Tally) -> None:
        self._store = store
        self._router = router
        self._tally = tally
        self._lifecycle = SessionLifecycle(router)
        self._peers = Peers(router.context.limits)
        self._wire: Wire | None = None
        self._items: deque[Item] = deque()
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._writable = True
        self._reading = True

    # What the link tells.

    def begin(self, wire: Wire) -> None:
        """Go over this link from now on."""
        self._wire, self._writable, self._reading = wire, True, True

    def end(self) -> None:
        """End all sessions: nobody can be reached, and who comes back speaks anew."""
        self._wire = None
        self._items.clear()
        self._leave(self._peers.clear())

    def close(self) -> None:
        """Take nothing more; what came before is answered still."""
        self._items.clear()
        if self._wire is not None:
            self._wire.read(False)

    def received(self, items: list[Item]) -> None:
        """Take what came over the link."""
        self._items += items
        self._pump()

    def writable(self, writable: bool) -> None:
        """Note whether the server takes what it is sent; what it asks waits until it does."""
        self._writable = writable
        self._pump()

    # What the store tells.

    def read_on(self) -> None:
        """Go on, if nothing else holds the link back."""
        if self._items or not self._reading:
            self._pump()

    def deliver(self, sends: Sequence[Send]) -> None:
        """Hand over what units of work send to sessions."""
        for send in sends:
            if send.generation == sessions.COMPONENT_LINK:
                self._send_outside(send)
                continue
            peer = self._peers.of(send.generation)
            if peer is None or self._wire is None:
                continue  # it has left, and what it had was taken back
            self._wire.write(send.stanza)
            if send.receipt is not None:
                self._confirm(send.generation, send.receipt)

    def _send_outside(self, send: Send) -> None:
        """Send what is for somebody who need not have spoken: nobody stores it while there is no
        link."""
        if self._wire is None:
            self._tally.add("component_unsent")
        else:
            self._wire.write(send.stanza)

    def _confirm(self, generation: int, receipt: Receipt) -> None:
        self._store.submit(
            lambda tx: self._lifecycle.confirm(tx, generation, (receipt,)), lambda _outcome: None
        )

    def used(self) -> dict[str, int]:
        """Tell how much of the limits of sessions and of what waits is used now."""
        waiting = self._store.waiting
        return {
            "sessions": len(self._peers),
            "waiting_units": waiting.units,
            "waiting_bytes": waiting.bytes,
        }

    # How stanzas go on.

    def _pump(self) -> None:
        """Handle what came, until something has to be waited for."""
        while self._items and not self._held_back():
            item = self._items.popleft()
            if isinstance(item, Stanza) and item.name in STANZA_NAMES:
                self._handle(item)
        wanted = not (self._items or self._held_back())
        if wanted is not self._reading and self._wire is not None:
            self._reading = wanted
            self._wire.read(wanted)

    def _held_back(self) -> bool:
        return (
            not self._writable
            or self._in_flight >= IN_FLIGHT
            or self._in_flight_bytes >= IN_FLIGHT_BYTES
            or self._store.full
        )

    def _handle(self, stanza: Stanza) -> None:
        try:
            sender = jid.parse(stanza.attrs.get("from", ""))
            to = jid.parse(stanza.attrs.get("to", ""))
        except StanzaError:
            self._tally.add("component_address")
            return
        if to.domain != self._router.context.domain or sender.domain == self._router.context.domain:
            self._tally.add("component_address")
            return
        peer = self._peers.find(sender.full) or self._enter(sender)
        work = self._work(stanza, peer)
        if not isinstance(work, bytes):
            self._submit(stanza, peer, work)
        elif work and peer.in_flight:  # it comes after the answers to what came before it
            self._submit(stanza, peer, lambda _tx, _sender: work)
        elif self._wire is not None:
            self._wire.write(work)

    def _enter(self, sender: jid.Jid) -> Peer:
        """Take a new sender in; whoever is one too many leaves for it."""
        peer = self._peers.add(sender.full)
        context = self._router.context

        def unit(tx: Transaction) -> bool:
            self._lifecycle.enter(tx, peer.generation, sender.bare, sender.bare, sender.full)
            found = sessions.sender(tx, peer.generation)
            return found is not None and access.may_use_services(found, context.trusted_domains)

        def entered(outcome: bool | StoreError) -> None:
            self._settle(peer, 0)
            if isinstance(outcome, StoreError):
                self._tally.add(rule(outcome))
                self._peers.remove(peer)
            else:
                self._peers.judge(peer, outcome)
                self._make_room()

        self._charge(peer, 0)
        self._store.submit(unit, entered)
        self._make_room()
        return peer

    def _make_room(self) -> None:
        self._leave([gone.generation for gone in self._peers.surplus()])

    def _leave(self, generations: Sequence[int]) -> None:
        """Have sessions leave the store: again and again, for a row that stays is a ghost."""

        def unit(tx: Transaction) -> None:
            for generation in generations:
                self._lifecycle.leave(tx, generation, ())

        def left(outcome: StoreError | None) -> None:
            if outcome is not None:
                asyncio.get_running_loop().call_later(LEAVE_AGAIN, self._leave, generations)

        if generations:
            self._store.submit(unit, left)

    def _work(self, stanza: Stanza, peer: Peer) -> Work | bytes:
        context, limits = self._router.context, self._router.context.limits
        if isinstance(stanza, OversizedStanza):
            return self._refused(stanza, stanza.text)
        if stanza.size > limits.stanza_bytes:
            return self._refused(stanza, f"more than {limits.stanza_bytes} bytes in a stanza")
        if stanza.name == _PRESENCE:
            return (
                remote_presence.work(context, stanza)
                if stanza.attrs["to"] == self._router.context.domain
                else b""
            )
        work = self._router.route(stanza, peer.full)
        return (
            work.prepare() if isinstance(work, OffloadedWork) else work
        )  # what is slow needs accounts

    def _refused(self, stanza: Stanza, text: str) -> Work:
        """Refuse what is too large to one sender; the link is everybody's, and goes on."""

        def work(tx: Transaction, sender: Sender) -> bytes:
            refusals.log(self._router.context, tx, sender, "policy-violation")
            return refusal(stanza, StanzaError("policy-violation", text), sender.full)

        return work

    def _submit(self, stanza: Stanza, peer: Peer, work: Work) -> None:
        size = stanza.size

        def done(outcome: bytes | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._tally.add(rule(outcome))
                outcome = refusal(stanza, stanza_error(outcome), peer.full)
            if self._wire is not None:
                self._wire.write(outcome)
            self._settle(peer, size)
            self.read_on()

        self._charge(peer, size)
        self._store.submit(guarded(work, peer.generation), done, size)

    def _charge(self, peer: Peer, size: int) -> None:
        peer.in_flight += 1
        self._in_flight += 1
        self._in_flight_bytes += size

    def _settle(self, peer: Peer, size: int) -> None:
        peer.in_flight -= 1
        self._in_flight -= 1
        self._in_flight_bytes -= size
