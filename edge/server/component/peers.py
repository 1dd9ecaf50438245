"""The sessions of a component: one for each full JID that has sent a stanza, limited in number.

A component does not learn of every log-out, so when there are too many sessions, of one account or
of all, the one that has been silent longest is removed. Peers that may use the gateway's services
are trusted; all others are limited separately and never displace trusted ones. A peer with stanzas
in flight is not removed.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count

from edge.config.limits import Limits


class Peer:
    """A full JID that has sent a stanza, with the number of its session, the generation.

    `query` is the id of the last query that it was sent to learn whether it is still connected.
    """

    __slots__ = ("bare", "full", "generation", "in_flight", "query", "trusted")

    def __init__(self, full: str, generation: int) -> None:
        self.bare = full.partition("/")[0]
        self.full = full
        self.query = ""
        self.generation = generation
        self.in_flight = 0
        self.trusted = False


class Peers:
    """The peers of a component: at most `limits.sessions`, at most `limits.unauthenticated` of them
    untrusted. Peers with stanzas in flight are not removed, so there can be more for a while."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations = count(1)
        self._trusted: OrderedDict[str, Peer] = OrderedDict()
        self._untrusted: OrderedDict[str, Peer] = OrderedDict()
        self._by_generation: dict[int, Peer] = {}
        self._by_account: dict[str, OrderedDict[str, Peer]] = {}

    def __len__(self) -> int:
        return len(self._by_generation)

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

    def largest_account(self) -> int:
        """Return the largest number of peers that an account has."""
        return max(map(len, self._by_account.values()), default=0)

    def has_room(self, bare: str) -> bool:
        """Return whether an account may have another peer: it has fewer than
        `limits.sessions_per_account`, or one of them can be removed for it."""
        own = self.of_account(bare)
        limit = self._limits.sessions_per_account
        return len(own) < limit or any(not peer.in_flight for peer in own)

    def add(self, full: str) -> Peer:
        """Add an untrusted peer; call `remove_excess` afterwards."""
        peer = Peer(full, next(self._generations))
        self._untrusted[full] = peer
        self._by_generation[peer.generation] = peer
        self._by_account.setdefault(peer.bare, OrderedDict())[full] = peer
        return peer

    def addresses(self) -> list[str]:
        """Return the full JIDs of all peers."""
        return [peer.full for peer in self._by_generation.values()]

    def by_generation(self, generation: int) -> Peer | None:
        """Return the peer whose session has this generation, if it was not removed."""
        return self._by_generation.get(generation)

    def set_trusted(self, peer: Peer, trusted: bool) -> None:
        """Record whether a peer is trusted."""
        if peer.trusted is not trusted and peer.generation in self._by_generation:
            old, new = self._group(peer), self._untrusted if peer.trusted else self._trusted
            del old[peer.full]
            new[peer.full] = peer
            peer.trusted = trusted

    def remove(self, peer: Peer) -> None:
        """Remove a peer."""
        if self._by_generation.pop(peer.generation, None) is not None:
            del self._group(peer)[peer.full]
            own = self._by_account[peer.bare]
            del own[peer.full]
            if not own:
                del self._by_account[peer.bare]

    def clear(self) -> list[int]:
        """Remove all peers; return their generations."""
        generations = list(self._by_generation)
        for group in (self._trusted, self._untrusted, self._by_generation, self._by_account):
            group.clear()
        return generations

    def remove_excess(self, bare: str) -> list[Peer]:
        """Remove idle peers until the limits are met, the longest silent first; return them.

        `bare` is the account whose peers may have become too many.
        """
        limit = self._limits.sessions
        own = self._by_account.get(bare, OrderedDict())
        return [
            *self._shrink(own, self._limits.sessions_per_account),
            *self._shrink(self._untrusted, min(self._limits.unauthenticated, limit)),
            *self._shrink(self._trusted, limit),
            *self._shrink(self._untrusted, max(0, limit - len(self._trusted))),
        ]

    def _shrink(self, group: OrderedDict[str, Peer], limit: int) -> list[Peer]:
        excess = len(group) - limit
        if excess <= 0:
            return []
        idle = [peer for peer in group.values() if not peer.in_flight][:excess]
        for peer in idle:
            self.remove(peer)
        return idle

    def _group(self, peer: Peer) -> OrderedDict[str, Peer]:
        return self._trusted if peer.trusted else self._untrusted
