"""Choice of the member that gets each item of a queue.

Items are assigned in order: the highest priority first, then the order of publication. An item
keeps its place when it comes back. An item that a member gave back goes to another member if
another is connected, and waits until that one has room; the items behind it do not wait.

The policy of the queue names the next member: the least loaded one, the one that a hash of the
publisher names, or always the same one. Under the hash policy all locked items of a publisher are
with one member, so their order is kept as long as that member completes them in order. A publisher
without locked items is placed anew among the connected members (rendezvous hashing), so a new
member moves few publishers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

SLOTS: Final = 64
"""Slots that the hash policy maps publishers to; each member serves some of them."""


class Policy(Enum):
    """The rule by which the next member is chosen."""

    LEAST_LOADED = "least-loaded"
    HASH = "hash"
    STICKY = "sticky"


class Member(NamedTuple):
    """A member of a queue: a subscription, through one connected session.

    A subscription with several sessions appears once for each, with one capacity and one number of
    items in flight. `turn` is the sequence number of the session's last assignment: the session
    with the lowest has been idle longest.
    """

    subscription: int
    session: str
    capacity: int
    in_flight: int
    turn: int

    @property
    def has_room(self) -> bool:
        """Return whether the member accepts one more item."""
        return self.in_flight < self.capacity


class ReadyItem(NamedTuple):
    """A ready item; `avoid` is the full JID that gave it back."""

    row: int
    publisher: str
    avoid: str | None = None


class Assignment(NamedTuple):
    """An item and the member that gets it."""

    row: int
    member: Member


def assign(
    items: Iterable[ReadyItem],
    members: Iterable[Member],
    policy: Policy,
    favourite: int | None = None,
    slot_owners: Mapping[int, int] | None = None,
) -> list[Assignment]:
    """Assign items to members.

    Args:
        members: the connected members. Under the least-loaded policy, if any member may get any
            item, the first members with room suffice if they outnumber the items.
        favourite: under the sticky policy, the subscription that gets all items while connected.
        slot_owners: under the hash policy, the subscription that has locked items of each slot.
    """
    pool = _Pool(members, policy, favourite, slot_owners or {})
    blocked_slots: set[int] = set()  # an item waits behind those of its slot that wait
    found = []
    for item in items:
        slot = slot_of(item.publisher) if policy is Policy.HASH else None
        member = None if slot in blocked_slots else pool.next(item)
        if member is not None:
            found.append(Assignment(item.row, member))
            pool.count_assignment(member)
        elif slot is not None:
            blocked_slots.add(slot)
    return found


def slot_of(publisher: str) -> int:
    """Return the slot of a publisher, which is the same for all sessions of an account."""
    return crc32(publisher.partition("/")[0].encode()) % SLOTS


def open_slots(
    slots: Iterable[int], members: Sequence[Member], slot_owners: Mapping[int, int]
) -> list[int]:
    """Return those of `slots` whose member has room, without regard to members to avoid."""
    pool = _Pool(members, Policy.HASH, None, slot_owners)
    return [slot for slot in slots if pool.of_slot(slot, None) is not None]


class _Pool:
    """The connected members, updated with each assignment."""

    def __init__(
        self,
        members: Iterable[Member],
        policy: Policy,
        favourite: int | None,
        slot_owners: Mapping[int, int],
    ) -> None:
        self._members = list(members)
        self._policy = policy
        self._favourite = favourite
        self._slot_owners = dict(slot_owners)
        self._turn = max((member.turn for member in self._members), default=0)

    def next(self, item: ReadyItem) -> Member | None:
        if self._policy is Policy.HASH:
            return self.of_slot(slot_of(item.publisher), item.avoid)
        if self._policy is Policy.STICKY:
            return self._sticky(item.avoid)
        return _least_loaded(self._members, item.avoid)

    def of_slot(self, slot: int, avoid: str | None) -> Member | None:
        """Return the member of a slot if it has room."""
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
        """Return the favourite if it is connected; otherwise the next member becomes it."""
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
                turn = self._turn if member.session == to.session else member.turn
                self._members[index] = member._replace(in_flight=member.in_flight + 1, turn=turn)


@lru_cache(maxsize=128 * SLOTS)
def _weight(slot: int, subscription: int) -> bytes:
    """Return a subscription's weight for a slot; the highest gets it (rendezvous hashing)."""
    return blake2b(b"%d %d" % (slot, subscription), digest_size=8).digest()


def _others(members: Iterable[Member], avoid: str | None) -> list[Member]:
    """Return the members except the one to avoid, unless it is the only one."""
    known = list(members)
    return [member for member in known if member.session != avoid] or known


def _least_loaded(members: Iterable[Member], avoid: str | None) -> Member | None:
    """Return the least loaded member that has room; of several, the longest idle."""
    free = (member for member in _others(members, avoid) if member.has_room)
    return min(free, key=lambda member: (member.in_flight, member.turn), default=None)
