"""Choice of the member that gets each item of a queue.

Items are assigned in order of priority (highest first) and then of publication. If a member does
not complete an item, the item returns to its old place in this order. If the member gave it back,
the item goes to another connected member, if there is one, and waits until that member has room;
later items do not wait for it.

The policy of the queue chooses the member: the least loaded one (`least-loaded`), one for each
publisher (`hash`), or always the same one (`sticky`). Under the hash policy one member has all
locked items of a publisher, so their order is kept if the member completes them in order. The
member for a publisher without locked items is chosen among the connected members by rendezvous
hashing, so that a new member takes over few publishers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from edge.features.pubsub.rules.node_config import QueuePolicy

SLOTS: Final = 64
"""Number of slots to which the hash policy maps publishers; each slot is served by one member."""


class Member(NamedTuple):
    """A member of a queue: a subscription, through one connected session with the full JID `full`.

    A subscription with several sessions has one `Member` for each session; they share `capacity`
    (maximum number of items) and `in_flight` (present number). `turn` is the sequence number of the
    session's last assignment: the session with the lowest `turn` has been idle longest.
    """

    subscription: int
    full: str
    capacity: int
    in_flight: int
    turn: int

    @property
    def has_room(self) -> bool:
        """Return whether the member accepts one more item."""
        return self.in_flight < self.capacity


class ReadyItem(NamedTuple):
    """Ready item; `avoid` is the full JID of the session that gave it back, if any."""

    row: int
    publisher: str
    avoid: str | None = None


class Assignment(NamedTuple):
    """Assignment of the item in the row `row` to a member."""

    row: int
    member: Member


def assign(
    items: Iterable[ReadyItem],
    members: Iterable[Member],
    policy: QueuePolicy,
    favourite: int | None = None,
    slot_owners: Mapping[int, int] | None = None,
) -> list[Assignment]:
    """Assign items to members; items for which no member has room are left out.

    Args:
        members: the connected members. If the policy is least-loaded and no item has `avoid`, the
            n + 1 least loaded members with room are enough for n items.
        favourite: under the sticky policy, the subscription that gets all items while it is
            connected.
        slot_owners: under the hash policy, the subscription that has locked items of a slot, by
            slot.
    """
    pool = _Pool(members, policy, favourite, slot_owners or {})
    blocked_slots: set[int] = set()  # an item waits behind those of its slot that wait
    found = []
    for item in items:
        slot = slot_of(item.publisher) if policy is QueuePolicy.HASH else None
        member = None if slot in blocked_slots else pool.next(item)
        if member is not None:
            found.append(Assignment(item.row, member))
            pool.count_assignment(member)
        elif slot is not None:
            blocked_slots.add(slot)
    return found


def slot_of(publisher: str) -> int:
    """Return the slot (see `SLOTS`) of a publisher's JID; all sessions of an account share one."""
    return crc32(publisher.partition("/")[0].encode()) % SLOTS


def open_slots(
    slots: Iterable[int], members: Sequence[Member], slot_owners: Mapping[int, int]
) -> list[int]:
    """Return those of `slots` whose member has room for an item now, if the item has no `avoid`."""
    pool = _Pool(members, QueuePolicy.HASH, None, slot_owners)
    return [slot for slot in slots if pool.of_slot(slot, None) is not None]


class _Pool:
    """Members whose loads change with each assignment."""

    def __init__(
        self,
        members: Iterable[Member],
        policy: QueuePolicy,
        favourite: int | None,
        slot_owners: Mapping[int, int],
    ) -> None:
        self._members = list(members)
        self._policy = policy
        self._favourite = favourite
        self._slot_owners = dict(slot_owners)
        self._turn = max((member.turn for member in self._members), default=0)

    def next(self, item: ReadyItem) -> Member | None:
        if self._policy is QueuePolicy.HASH:
            return self.of_slot(slot_of(item.publisher), item.avoid)
        if self._policy is QueuePolicy.STICKY:
            return self._sticky(item.avoid)
        return _least_loaded(self._members, item.avoid)

    def of_slot(self, slot: int, avoid: str | None) -> Member | None:
        """Return the member for an item of a slot (`slot_of`) with this `avoid`, if it has room."""
        owner = self._slot_owners.get(slot)
        if owner is not None:  # an owner that is not connected has to complete its items first
            found = _least_loaded((m for m in self._members if m.subscription == owner), None)
        else:
            names = {member.subscription for member in _others(self._members, avoid)}
            chosen = max(names, key=lambda name: (_weight(slot, name), name), default=None)
            found = _least_loaded((m for m in self._members if m.subscription == chosen), avoid)
        if found is not None:
            self._slot_owners[slot] = found.subscription
        return found

    def _sticky(self, avoid: str | None) -> Member | None:
        """Return a session of the favourite. If the favourite is not connected, choose a new one;
        for an item with `avoid`, choose among all other sessions."""
        sessions = [member for member in self._members if member.subscription == self._favourite]
        if sessions and avoid is None:
            return _least_loaded(sessions, None)
        found = _least_loaded(self._members, avoid)
        if found is not None and not sessions:
            self._favourite = found.subscription
        return found

    def count_assignment(self, to: Member) -> None:
        self._turn += 1
        for index, member in enumerate(self._members):
            if member.subscription == to.subscription:
                turn = self._turn if member.full == to.full else member.turn
                self._members[index] = member._replace(in_flight=member.in_flight + 1, turn=turn)


@lru_cache(maxsize=128 * SLOTS)
def _weight(slot: int, subscription: int) -> bytes:
    """Return a subscription's weight for a slot; the highest weight wins (rendezvous hashing)."""
    return blake2b(b"%d %d" % (slot, subscription), digest_size=8).digest()


def _others(members: Iterable[Member], avoid: str | None) -> list[Member]:
    """Return the members except the session `avoid`; all members if no other is left."""
    known = list(members)
    return [member for member in known if member.full != avoid] or known


def _least_loaded(members: Iterable[Member], avoid: str | None) -> Member | None:
    """Return the least loaded member that has room, and of equal ones the one that is idle longest;
    the session `avoid` only if there is no other member."""
    free = (member for member in _others(members, avoid) if member.has_room)
    return min(free, key=lambda member: (member.in_flight, member.turn), default=None)
