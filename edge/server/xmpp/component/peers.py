"""The sessions of a component: one for each full JID that has sent a stanza, limited in number.

A component does not learn of every log-out, so when there are too many sessions, of one account or
of all, the one that has been silent longest is removed. Peers that may use the gateway's services
are trusted; all others are limited separately and never displace trusted ones. A peer with stanzas
in flight is not removed. The limits count the sessions of all endpoints.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from edge.config.limits import Limits
from edge.engine.dispatch.outputs import EndReason, Outputs
from edge.engine.store.database import Receipt, SentMessage
from edge.server.admission import Admission


class PeerDispatcher(Protocol):
    """The methods of the dispatcher that its peers call."""

    def deliver_to(self, peer: Peer, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a message to a peer; `receipt` names the row that stores it, if any."""

    def end_session(self, peer: Peer) -> None:
        """End the session of a peer."""


class Peer:
    """A full JID that has sent a stanza, with the number of its session, the generation.

    `query` is the id of the last query that it was sent to learn whether it is still connected.
    """

    __slots__ = ("_dispatcher", "bare", "full", "generation", "in_flight", "query", "trusted")

    source = ""  # only its server knows its address
    unacknowledged_bytes = 0

    def __init__(self, full: str, generation: int, dispatcher: PeerDispatcher) -> None:
        self._dispatcher = dispatcher
        self.bare = full.partition("/")[0]
        self.full = full
        self.query = ""
        self.generation = generation
        self.in_flight = 0
        self.trusted = False

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        """Send a unit of work's message; `receipt` names the row that stores it, if any."""
        self._dispatcher.deliver_to(self, message, receipt)

    def end(self, _reason: EndReason) -> None:
        """End the session; a component cannot tell that to its peer."""
        self._dispatcher.end_session(self)


class Peers:
    """The peers of a component: at most `limits.sessions`, at most `limits.unauthenticated` of them
    untrusted. Peers with stanzas in flight are not removed, so there can be more for a while."""

    def __init__(
        self, limits: Limits, admission: Admission, outputs: Outputs, dispatcher: PeerDispatcher
    ) -> None:
        self._limits = limits
        self._admission = admission
        self._outputs = outputs
        self._dispatcher = dispatcher
        self._trusted: OrderedDict[str, Peer] = OrderedDict()
        self._untrusted: OrderedDict[str, Peer] = OrderedDict()
        self._by_account: dict[str, OrderedDict[str, Peer]] = {}

    def __len__(self) -> int:
        return len(self._trusted) + len(self._untrusted)

    def find(self, full: str) -> Peer | None:
        """Return a peer by its full JID if there is one, and record that it has sent something."""
        for group in (self._trusted, self._untrusted):
            if full in group:
                group.move_to_end(full)
                peer = group[full]
                self._by_account[peer.bare].move_to_end(full)
                return peer
        return None

    def of_account(self, bare: str) -> list[Peer]:
        """Return the peers of an account, the longest silent first."""
        return list(self._by_account.get(bare, {}).values())

    def has_room(self, bare: str) -> bool:
        """Return whether an account may have another peer: it has fewer than
        `limits.sessions_per_account`, or one of them can be removed for it."""
        limit = self._limits.sessions_per_account
        has_idle = any(not peer.in_flight for peer in self.of_account(bare))
        return has_idle or self._admission.count_of_account(bare) < limit

    def add(self, full: str) -> Peer:
        """Add an untrusted peer; call `remove_excess` afterwards."""
        generation = self._outputs.next_generation()
        peer = Peer(full, generation, self._dispatcher)
        self._admission.add(peer)
        self._outputs.attach(generation, peer)
        self._untrusted[full] = peer
        self._by_account.setdefault(peer.bare, OrderedDict())[full] = peer
        return peer

    def addresses(self) -> list[str]:
        """Return the full JIDs of all peers."""
        return [*self._trusted, *self._untrusted]

    def set_trusted(self, peer: Peer, trusted: bool) -> None:
        """Record whether a peer is trusted."""
        if peer.trusted is not trusted and self._is_present(peer):
            del self._group(peer)[peer.full]
            peer.trusted = trusted
            self._group(peer)[peer.full] = peer

    def remove(self, peer: Peer) -> None:
        """Remove a peer."""
        if self._is_present(peer):
            del self._group(peer)[peer.full]
            self._admission.remove(peer)
            self._outputs.detach(peer.generation)
            own = self._by_account[peer.bare]
            del own[peer.full]
            if not own:
                del self._by_account[peer.bare]

    def clear(self) -> list[int]:
        """Remove all peers; return their generations."""
        peers = [*self._trusted.values(), *self._untrusted.values()]
        for peer in peers:
            self.remove(peer)
        return [peer.generation for peer in peers]

    def remove_excess(self, bare: str) -> list[Peer]:
        """Remove idle peers until the limits are met, the longest silent first; return them.

        `bare` is the account whose peers may have become too many.
        """
        admission, limits = self._admission, self._limits
        own = self._by_account.get(bare, OrderedDict())
        others_of_account = admission.count_of_account(bare) - len(own)
        limit = limits.sessions - (admission.session_count - len(self))  # the others' share is used
        return [
            *self._shrink(own, limits.sessions_per_account - others_of_account),
            *self._shrink(self._untrusted, min(limits.unauthenticated, limit)),
            *self._shrink(self._trusted, limit),
            *self._shrink(self._untrusted, limit - len(self._trusted)),
        ]

    def _shrink(self, group: OrderedDict[str, Peer], limit: int) -> list[Peer]:
        excess = len(group) - limit
        if excess <= 0:
            return []
        idle = [peer for peer in group.values() if not peer.in_flight][:excess]
        for peer in idle:
            self.remove(peer)
        return idle

    def _is_present(self, peer: Peer) -> bool:
        return self._group(peer).get(peer.full) is peer  # a later peer may have the same JID

    def _group(self, peer: Peer) -> OrderedDict[str, Peer]:
        return self._trusted if peer.trusted else self._untrusted
