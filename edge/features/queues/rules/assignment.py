"""One engine for queues: which member gets which item next, and what becomes of it then.

Theory of operation. Items wait in line, the highest priority first and else in the order in which
they were published; an item's place is never lost, also when it comes back. An item goes to one
member at a time: a subscription with a capacity, through a session of it that is there. It is
locked then, until it is deleted, given back, or lost by what happens to the member. Each lock is a
delivery; after so many, an item that comes back again is dead: kept, and seen by people.

Queue nodes (XEP-0254) and shares (MQTT-234) differ by one table, `FATES`: what a loss makes of an
item. At level 0 nothing is kept of an item that was sent, so nobody else gets it; at level 1 it
goes to another; at level 2 it is bound to its member, and waits for it or dies with its
subscription. Who may delete or unlock an item stands in `rules.locks`.

Which member is next is a choice of the queue: the least loaded, or the one that a hash of the
publisher names, or always the same. An item that was given back goes to another member than the one
that gave it back, if another is there, and waits for it; what is behind it does not. By hash, all
items of a publisher in work are with one member, so their order is kept as long as that one deletes
them in order; whoever has none in work is placed anew among the members that are there, so that a
new member moves few of them.

Rows, sessions, clocks and stanzas are not known here. Sources: XEP-0254; MQTT-234, as the project's
protocol decisions complete them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

SLOTS: Final = 64
"""Publishers are told apart by hash into so many: a member has some of them each."""

MAX_DELIVERIES: Final = 5
"""How often an item of a share is given to members before it is dead; a queue node says its own."""


class Choice(Enum):
    """How the next member is chosen."""

    LEAST_LOADED = "least-loaded"
    HASH = "hash"
    STICKY = "sticky"


class Kind(Enum):
    """What an item's rules depend on: a queue node's, or a share's by the level of its member."""

    NODE = "node"
    SHARE_0 = "share at level 0"
    SHARE_1 = "share at level 1"
    SHARE_2 = "share at level 2"


class Loss(Enum):
    """How a member and an item that it has may part, other than by its being done."""

    CONNECTION = "its session ended"
    UNAVAILABLE = "its session went"
    UNSUBSCRIBED = "it unsubscribed"
    TIMEOUT = "its time is over"
    UNLOCKED = "it gave it back"
    REFUSED = "it refused it"
    RESTART = "the gateway was restarted"


class Fate(Enum):
    """What becomes of the item then."""

    READY = "ready"
    READY_FOR_ANOTHER = "ready for another"
    DEAD = "dead"
    STAYS = "stays"


_ANOTHERS: Final = dict.fromkeys(Loss, Fate.READY_FOR_ANOTHER) | {
    Loss.CONNECTION: Fate.READY,
    Loss.UNAVAILABLE: Fate.READY,
    Loss.UNSUBSCRIBED: Fate.READY,
}
_ITS_OWN: Final = dict.fromkeys(Loss, Fate.DEAD) | {
    Loss.CONNECTION: Fate.STAYS,
    Loss.UNAVAILABLE: Fate.STAYS,
    Loss.RESTART: Fate.STAYS,
}

FATES: Final[Mapping[Kind, Mapping[Loss, Fate]]] = {
    Kind.NODE: _ANOTHERS | {Loss.RESTART: Fate.STAYS},
    Kind.SHARE_0: dict.fromkeys(Loss, Fate.STAYS),
    Kind.SHARE_1: _ANOTHERS | {Loss.RESTART: Fate.READY},
    Kind.SHARE_2: _ITS_OWN,
}
"""What each loss makes of an item, but for the number of its deliveries."""

TOLD: Final = frozenset({Loss.UNAVAILABLE, Loss.UNSUBSCRIBED, Loss.TIMEOUT, Loss.UNLOCKED})
"""The losses of a queue node's item that its worker is told of: in the others it is not there."""


def kind(qos: int | None) -> Kind:
    """Return the kind of items that members at this level get; `None` is of a queue node."""
    if qos is None:
        return Kind.NODE
    return (Kind.SHARE_0, Kind.SHARE_1, Kind.SHARE_2)[qos]


def fate(kind: Kind, loss: Loss, deliveries: int, max_deliveries: int) -> Fate:
    """Return what becomes of an item.

    Args:
        kind: what rules it is under.
        loss: what has happened to the member that has it.
        deliveries: how often it was given to members, this time included.
        max_deliveries: after how many times it is dead.
    """
    found = FATES[kind][loss]
    if found in _BACK and deliveries >= max_deliveries:
        return Fate.DEAD
    return found


_BACK: Final = frozenset({Fate.READY, Fate.READY_FOR_ANOTHER})


# Who is next


class Member(NamedTuple):
    """A member of a queue as the engine sees it: a subscription, through a session that is there.

    A subscription with several sessions is there as often, with one capacity and one number of
    items in flight. `turn` is the number of the last item that it was given: who has the lowest has
    been idle for longest.
    """

    subscription: int
    session: str
    capacity: int
    in_flight: int
    turn: int

    @property
    def free(self) -> bool:
        """Whether it has room for one more."""
        return self.in_flight < self.capacity


class Waiting(NamedTuple):
    """An item that waits; `avoid` is the full JID that gave it back."""

    row: int
    publisher: str
    avoid: str | None = None


class Assignment(NamedTuple):
    """An item, and who gets it."""

    row: int
    member: Member


def assign(
    waiting: Iterable[Waiting],
    members: Iterable[Member],
    choice: Choice,
    favourite: int | None = None,
    bound: Mapping[int, int] | None = None,
) -> list[Assignment]:
    """Give items to members.

    Args:
        waiting: what waits, in order.
        members: those that are there; where all items may go to any of them, the least loaded is
            chosen rightly also among the first with room, if they are one more than items.
        choice: how the next one is chosen.
        favourite: sticky: the subscription that gets all, as long as it is there.
        bound: by hash: the subscriptions that have items of a slot in work.
    """
    there = _There(members, choice, favourite, bound or {})
    held_up: set[int] = set()  # by hash: what comes behind an item of its slot waits with it
    found = []
    for item in waiting:
        place = slot(item.publisher) if choice is Choice.HASH else None
        member = None if place in held_up else there.next(item)
        if member is not None:
            found.append(Assignment(item.row, member))
            there.give(member)
        elif place is not None:
            held_up.add(place)
    return found


def slot(publisher: str) -> int:
    """Return the slot of a publisher: that of its account, whichever session it publishes by."""
    return crc32(publisher.partition("/")[0].encode()) % SLOTS


def open_slots(
    slots: Iterable[int], members: Sequence[Member], bound: Mapping[int, int]
) -> list[int]:
    """Return those of `slots` whose member has room, as far as that is told by the slot alone."""
    there = _There(members, Choice.HASH, None, bound)
    return [number for number in slots if there.of_slot(number, None) is not None]


class _There:
    """The members that are there, with what they are given meanwhile."""

    def __init__(
        self,
        members: Iterable[Member],
        choice: Choice,
        favourite: int | None,
        bound: Mapping[int, int],
    ) -> None:
        self._members = list(members)
        self._choice = choice
        self._favourite = favourite
        self._bound = dict(bound)
        self._turn = max((member.turn for member in self._members), default=0)

    def next(self, item: Waiting) -> Member | None:
        if self._choice is Choice.HASH:
            return self.of_slot(slot(item.publisher), item.avoid)
        if self._choice is Choice.STICKY:
            return self._stick(item.avoid)
        return _least(self._members, item.avoid)

    def of_slot(self, number: int, avoid: str | None) -> Member | None:
        """Return the member of a slot, if it has room."""
        holder = self._bound.get(number)
        mine = [member for member in self._members if member.subscription == holder]
        if holder is not None:  # who is not there has its items in work still: they are first
            found = _least(mine, None)
        else:
            names = {member.subscription for member in _others(self._members, avoid)}
            owner = max(names, key=lambda name: (_weight(number, name), name), default=None)
            found = _least((m for m in self._members if m.subscription == owner), avoid)
        if found is not None:
            self._bound[number] = found.subscription
        return found

    def _stick(self, avoid: str | None) -> Member | None:
        """Return the favourite, if it is there; the first that gets something is, if it is not."""
        mine = [member for member in self._members if member.subscription == self._favourite]
        if mine and avoid is None:
            return _least(mine, None)
        if mine:
            return _least(self._members, avoid)
        found = _least(self._members, avoid)
        if found is not None:
            self._favourite = found.subscription
        return found

    def give(self, to: Member) -> None:
        """Count one more item of a member."""
        self._turn += 1
        for index, member in enumerate(self._members):
            if member.subscription == to.subscription:
                turn = self._turn if member.session == to.session else member.turn
                self._members[index] = member._replace(in_flight=member.in_flight + 1, turn=turn)


@lru_cache(maxsize=128 * SLOTS)
def _weight(number: int, subscription: int) -> bytes:
    """Return how much a slot is a subscription's: who has most has it (rendezvous hashing)."""
    return blake2b(b"%d %d" % (number, subscription), digest_size=8).digest()


def _others(members: Iterable[Member], avoid: str | None) -> list[Member]:
    """Return the members but one, unless it is the only one."""
    known = list(members)
    return [member for member in known if member.session != avoid] or known


def _least(members: Iterable[Member], avoid: str | None) -> Member | None:
    """Return the least loaded member that has room, of those the longest idle."""
    free = (member for member in _others(members, avoid) if member.free)
    return min(free, key=lambda member: (member.in_flight, member.turn), default=None)


def diagram(kind: Kind) -> str:
    """Draw what becomes of an item of a kind as a Mermaid state diagram."""
    names = {Fate.READY_FOR_ANOTHER: "ready", Fate.STAYS: "locked"}
    lines = ["stateDiagram-v2", "    [*] --> ready", "    ready --> locked: assigned"]
    if kind is Kind.SHARE_0:
        return "\n".join([*lines[:2], "    ready --> [*]: sent"])
    for loss, fate in FATES[kind].items():
        lines.append(f"    locked --> {names.get(fate, fate.value)}: {loss.value}")
    if not _BACK.isdisjoint(FATES[kind].values()):
        lines.append("    locked --> dead: it comes back too often")
    lines.append("    locked --> [*]: done")
    return "\n".join([*lines, "    dead --> ready: requeued"])
