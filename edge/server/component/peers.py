"""Who has spoken over a component's link: a session for each full JID, bounded in number.

The server tells nobody's log-out to a component, so who is silent longest leaves when there are too
many. Strangers are counted apart: they push out each other, and none of those who are trusted. Who
has something under way stays. Sockets and stanzas are not known here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge.config.limits import Limits


class Peer:
    """A full JID that has spoken: its session's number, and what of it is under way."""

    __slots__ = ("full", "generation", "in_flight", "trusted")

    def __init__(self, full: str, generation: int) -> None:
        self.full = full
        self.generation = generation
        self.in_flight = 0
        self.trusted = False


class Peers:
    """The sessions of a component: at most `limits.sessions`, `limits.unauthenticated` of them of
    strangers; beyond these, only who has something under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations = count(1)
        self._trusted: OrderedDict[str, Peer] = OrderedDict()
        self._strangers: OrderedDict[str, Peer] = OrderedDict()
        self._by_generation: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._by_generation)

    def find(self, full: str) -> Peer | None:
        """Return who has spoken before and is here still, and note that they speak again."""
        for group in (self._trusted, self._strangers):
            if full in group:
                group.move_to_end(full)
                return group[full]
        return None

    def add(self, full: str) -> Peer:
        """Take somebody in, as a stranger; `surplus` tells who has to leave for it."""
        peer = Peer(full, next(self._generations))
        self._strangers[full] = peer
        self._by_generation[peer.generation] = peer
        return peer

    def of(self, generation: int) -> Peer | None:
        """Return whose session this is, if it is not over."""
        return self._by_generation.get(generation)

    def judge(self, peer: Peer, trusted: bool) -> None:
        """Note whether somebody is trusted."""
        if peer.trusted is not trusted and peer.generation in self._by_generation:
            old, new = self._group(peer), self._strangers if peer.trusted else self._trusted
            del old[peer.full]
            new[peer.full] = peer
            peer.trusted = trusted

    def remove(self, peer: Peer) -> None:
        """Forget somebody."""
        if self._by_generation.pop(peer.generation, None) is not None:
            del self._group(peer)[peer.full]

    def clear(self) -> list[int]:
        """Forget all; returns their sessions' numbers."""
        generations = list(self._by_generation)
        for group in (self._trusted, self._strangers, self._by_generation):
            group.clear()
        return generations

    def surplus(self) -> Iterator[Peer]:
        """Forget those who are too many, and tell who they are."""
        most = self._limits.sessions
        yield from self._leave(self._strangers, min(self._limits.unauthenticated, most))
        yield from self._leave(self._trusted, most)
        yield from self._leave(self._strangers, max(0, most - len(self._trusted)))

    def _leave(self, group: OrderedDict[str, Peer], most: int) -> list[Peer]:
        excess = len(group) - most
        if excess <= 0:
            return []
        idle = [peer for peer in group.values() if not peer.in_flight][:excess]
        for peer in idle:
            self.remove(peer)
        return idle

    def _group(self, peer: Peer) -> OrderedDict[str, Peer]:
        return self._trusted if peer.trusted else self._strangers
