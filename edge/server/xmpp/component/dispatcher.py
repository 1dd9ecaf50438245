"""Dispatch of a component link's stanzas to the router and the store, and of answers to the link.

Each full JID that sends a stanza over the link gets a session, like a device that logs in. It ends
when the device sends unavailable presence, or when the server answers that the device is not there.
The server is asked when another session of the account begins.

While too many stanzas wait for the store, or the server does not read, the link is not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final, Protocol

from edge import jid
from edge.engine.dispatch.encoding import encode
from edge.engine.dispatch.hooks import OffloadedWork, Work
from edge.engine.dispatch.outputs import EndReason
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import guarded
from edge.engine.store.database import Receipt, SentMessage, Transaction
from edge.errors import StoreError
from edge.features.presence.xmpp import component_presence
from edge.ops.gateway.control import ConnectedSession
from edge.routing.xmpp.router import Router, refusal
from edge.server.server_context import ServerContext
from edge.server.xmpp.component.peers import Peer, Peers
from edge.server.xmpp.errors import stanza_error
from edge.xmpp import PROTOCOL, disco, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, DISCO_INFO, STANZA_ERRORS, clark
from edge.xmpp.stanza import STANZA_NAMES, Item, OversizedStanza, Stanza

IN_FLIGHT: Final = 512
"""Maximum stanzas of the link that wait for a commit: as many as one commit can have."""

IN_FLIGHT_BYTES: Final = 1024 * 1024
"""Maximum bytes of the link's stanzas that wait for a commit: as much as its largest stanza."""

RETRY_INTERVAL: Final = 5.0
"""Seconds until another attempt to remove ended sessions from the store, after a store error."""

_PRESENCE: Final = clark(CLIENT, "presence")
_IQ: Final = clark(CLIENT, "iq")
_ERROR: Final = clark(CLIENT, "error")

_SESSION_PRESENCE: Final = frozenset({"", "subscribe", "unsubscribe", "probe"})
"""Types of presence for which a session begins; the others show nobody or answer the gateway."""

_ABSENT: Final = frozenset(
    clark(STANZA_ERRORS, name)
    for name in ("gone", "item-not-found", "recipient-unavailable", "service-unavailable")
)
"""Error conditions of an answer to disco#info by which a server says that a full JID is not
connected (RFC 6121, section 8.5.3.2.3). A connected device that supports the quality of service
answers with a result."""


class StanzaLink(Protocol):
    """The methods of the link (`link.Link`) that the dispatcher calls."""

    def write(self, data: bytes) -> None:
        """Send bytes, if connected."""

    def set_reading(self, wanted: bool) -> None:
        """Resume or pause reading."""


class Dispatcher:
    """The dispatcher of one component: its sessions, and its stanzas in flight."""

    def __init__(self, context: ServerContext, router: Router) -> None:
        self._store = context.store
        self._router = router
        self._counters = context.refusals
        self._lifecycle = context.lifecycle
        self._peers = Peers(context.settings.limits, context.admission, context.outputs, self)
        self._link: StanzaLink | None = None
        self._items: deque[Item] = deque()
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._writable = True
        self._reading = True
        self._queries = count(1)

    # Events of the link

    def attach(self, link: StanzaLink) -> None:
        """Exchange stanzas over this link, which has just been established, from now on."""
        self._link, self._writable, self._reading = link, True, True

    def detach(self) -> None:
        """Remove all sessions, because the link is lost and nobody can be reached."""
        self._link = None
        self._items.clear()
        self._leave(self._peers.clear())

    def stop_reading(self) -> None:
        """Drop unhandled stanzas and read no more; stanzas in flight still get their answers."""
        self._items.clear()
        if self._link is not None:
            self._link.set_reading(False)

    def receive(self, items: list[Item]) -> None:
        """Handle the stanzas that came over the link; other items are ignored."""
        self._items += items
        self._process()

    def set_writable(self, writable: bool) -> None:
        """Record whether the server reads the link; stanzas are handled only while it does."""
        self._writable = writable
        self._process()

    # Events of the store

    def resume_reading(self) -> None:
        """Process the waiting items and read again, unless something else prevents it."""
        if self._items or not self._reading:
            self._process()

    def deliver(self, message: SentMessage, _receipt: Receipt | None) -> None:
        """Send a message to a JID without a session; drop and count it if there is no link."""
        if self._link is None:
            self._counters.add("component_unsent")
        else:
            self._link.write(encode(self._router.context, PROTOCOL, message))

    def end(self, _reason: EndReason) -> None:
        """Do nothing: the link for JIDs without a session ends with the component alone."""

    def deliver_to(self, peer: Peer, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a committed unit's message to a peer; `receipt` names the row that stores it."""
        stanza = encode(self._router.context, PROTOCOL, message)
        if self._link is None or not stanza:
            return
        self._link.write(stanza)
        if receipt is not None:
            self._store.submit(
                lambda tx: self._lifecycle.acknowledge(tx, peer.generation, (receipt,)),
                lambda _outcome: None,
            )

    def end_session(self, peer: Peer) -> None:
        """End the session of a peer."""
        self._peers.remove(peer)
        self._leave([peer.generation])

    def connected_sessions(self) -> list[ConnectedSession]:
        """Return the sessions; only account and resource are known.

        A bare JID that asks for the gateway's presence is no session of a device.
        """
        return [
            ConnectedSession(account=bare, resource=resource)
            for bare, _, resource in (full.partition("/") for full in self._peers.addresses())
            if resource
        ]

    # Stanzas

    def _process(self) -> None:
        """Handle the items until they have to wait, and pause or resume reading."""
        while self._items and not self._must_wait():
            item = self._items.popleft()
            if isinstance(item, Stanza) and item.name in STANZA_NAMES:
                self._handle(item)
        wanted = not (self._items or self._must_wait())
        if wanted is not self._reading and self._link is not None:
            self._reading = wanted
            self._link.set_reading(wanted)

    def _must_wait(self) -> bool:
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
        except jid.JidError:
            self._counters.add("component_address")
            return
        domain = self._router.context.domain
        if to.domain != domain or sender.domain == domain:
            self._counters.add("component_address")
            return
        peer = self._peers.find(sender.full)
        if peer is None and not _begins_session(stanza):
            return
        if peer is None and not self._peers.has_room(sender.bare):
            self._refuse_session(stanza, sender)
            return
        peer = peer or self._enter(sender)
        if _is_unavailable(stanza) or _is_absent(stanza, peer):
            self.end_session(peer)
            return
        work = self._work(stanza, peer)
        if not isinstance(work, bytes):
            self._submit(stanza, peer, work)
        elif work and peer.in_flight:  # after the answers to earlier stanzas
            self._submit(stanza, peer, lambda _tx, _sender: work)
        elif self._link is not None:
            self._link.write(work)

    def _enter(self, sender: jid.Jid) -> Peer:
        """Create a session for a new sender, and remove the sessions above the limits.

        The other sessions of its account are asked whether they are still connected.
        """
        self._query(self._peers.of_account(sender.bare))
        peer = self._peers.add(sender.full)
        context = self._router.context

        def unit(tx: Transaction) -> bool:
            self._lifecycle.bind(tx, peer.generation, sender.bare, sender.bare, sender.full)
            found = sessions.sender(tx, peer.generation)
            return found is not None and access.may_use_services(found, context.trusted_domains)

        def answer(outcome: bool | StoreError) -> None:
            self._end_work(peer, 0)
            if isinstance(outcome, StoreError):
                self._counters.add_store_error(outcome)
                self._peers.remove(peer)
            else:
                self._peers.set_trusted(peer, outcome)
                self._remove_excess(peer)

        self._begin_work(peer, 0)
        self._store.submit(unit, answer)
        self._remove_excess(peer)
        return peer

    def _query(self, peers: Sequence[Peer]) -> None:
        """Ask peers for their features; for a peer that is not connected, its server answers."""
        domain, payload = self._router.context.domain, disco.query(DISCO_INFO, b"")
        for peer in peers:
            if self._link is not None and peer.full != peer.bare:
                peer.query = f"connected-{next(self._queries)}"
                self._link.write(serialize.iq_get(peer.query, peer.full, domain, payload))

    def _refuse_session(self, stanza: Stanza, sender: jid.Jid) -> None:
        limit = self._router.context.limits.sessions_per_account
        text = f"the limit sessions_per_account = {limit} is reached"
        self._counters.add("sessions_per_account", source=sender.bare)
        if self._link is not None:
            error = StanzaError("resource-constraint", text)
            self._link.write(refusal(stanza, error, sender.full))

    def _remove_excess(self, peer: Peer) -> None:
        self._leave([one.generation for one in self._peers.remove_excess(peer.bare)])

    def _leave(self, generations: Sequence[int]) -> None:
        """Remove sessions from the store; retry until that succeeds."""

        def unit(tx: Transaction) -> None:
            for generation in generations:
                self._lifecycle.end(tx, generation, ())

        def answer(outcome: StoreError | None) -> None:
            if outcome is not None:
                asyncio.get_running_loop().call_later(RETRY_INTERVAL, self._leave, generations)

        if generations:
            self._store.submit(unit, answer)

    def _work(self, stanza: Stanza, peer: Peer) -> Work | bytes:
        context, limits = self._router.context, self._router.context.limits
        if isinstance(stanza, OversizedStanza):
            return self._refuse(stanza, stanza.text)
        if stanza.size > limits.stanza_bytes:
            return self._refuse(stanza, f"more than {limits.stanza_bytes} bytes in a stanza")
        if stanza.name == _PRESENCE:
            if stanza.attrs["to"] != context.domain:
                return b""
            return component_presence.handle(context, stanza)
        work = self._router.route(stanza, peer.full)
        # Only features with accounts offload work, and a component has none.
        return work.prepare() if isinstance(work, OffloadedWork) else work

    def _refuse(self, stanza: Stanza, text: str) -> Work:
        """Return the work that refuses a stanza that is too large.

        The link continues, because other senders use it, too.
        """

        def work(tx: Transaction, sender: Sender) -> bytes:
            refusals.log(self._router.context, tx, sender, "policy-violation")
            return refusal(stanza, StanzaError("policy-violation", text), sender.full)

        return work

    def _submit(self, stanza: Stanza, peer: Peer, work: Work) -> None:
        size = stanza.size

        def answer(outcome: bytes | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._counters.add_store_error(outcome)
                outcome = refusal(stanza, stanza_error(outcome), peer.full)
            if self._link is not None:
                self._link.write(outcome)
            self._end_work(peer, size)
            self.resume_reading()

        self._begin_work(peer, size)
        self._store.submit(guarded(work, peer.generation), answer, size)

    def _begin_work(self, peer: Peer, size: int) -> None:
        peer.in_flight += 1
        self._in_flight += 1
        self._in_flight_bytes += size

    def _end_work(self, peer: Peer, size: int) -> None:
        peer.in_flight -= 1
        self._in_flight -= 1
        self._in_flight_bytes -= size


def _begins_session(stanza: Stanza) -> bool:
    """Return whether a stanza of an unknown sender begins a session.

    Answers do not, nor does a presence by which a server says that nobody is there.
    """
    type_ = stanza.attrs.get("type", "")
    if stanza.name == _PRESENCE:
        return type_ in _SESSION_PRESENCE
    return type_ != "error" and not (stanza.name == _IQ and type_ == "result")


def _is_unavailable(stanza: Stanza) -> bool:
    return stanza.name == _PRESENCE and stanza.attrs.get("type") == "unavailable"


def _is_absent(stanza: Stanza, peer: Peer) -> bool:
    """Return whether a server answers the last query to a peer: the peer is not connected."""
    attrs = stanza.attrs
    if not peer.query or stanza.name != _IQ or attrs.get("id") != peer.query:
        return False
    errors = [child for child in stanza.children if child.name == _ERROR]
    return attrs.get("type") == "error" and any(
        condition.tag in _ABSENT for error in errors for condition in error.tree()
    )
