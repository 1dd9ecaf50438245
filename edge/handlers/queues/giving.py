"""Giving items away: what waits in a queue goes to the members that are there and have room.

Who gets what is decided in `rules.queue`. How an item of a queue node is sent is `words`', how one
of a share is `sharing`'s; when to look is `line`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.handlers.queues import sharing, words
from edge.rules import queue as rules
from edge.rules.queue import Choice, Waiting
from edge.store import queue_members, queue_slots, queues, subscriptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edge.handlers.feature import House
    from edge.rules.queue import Member
    from edge.store.database import Transaction
    from edge.store.queue_members import There
    from edge.store.queues import Item, Queue

PAGE: Final = 32
"""How many items are assigned at once."""

PAGES: Final = 8
"""How many such pages go in one unit of work: more goes in the next."""

OF_A_SLOT: Final = 8
"""How many of those may be of one slot, by hash."""

STALLED: Final = 15.0
"""Seconds after which a member is tried again that had no room in its outbox."""


def pump(house: House, tx: Transaction, queue_id: int) -> None:
    """Give what waits in a queue to the members that are there and have room."""
    for _page in range(PAGES):
        if not _give_page(house, tx, queue_id):
            return
    tx.wake_at(tx.now.service)


def _give_page(house: House, tx: Transaction, queue_id: int) -> bool:
    """Give a page of items away; false if there is no more to give."""
    there = queue_members.free(tx, queue_id, PAGE + 1)
    queue = queues.get(tx, queue_id) if there else None
    if queue is None:
        return False
    choice = Choice(queue.policy)
    bound: Mapping[int, int] = {}
    if choice is not Choice.LEAST_LOADED:
        there = queue_members.there(tx, queue_id)
    members = [one.member for one in there]
    if choice is Choice.HASH:
        bound = queue_slots.bound(tx, queue_id)
        items = _heads_by_hash(tx, queue_id, members, bound)
    else:
        items = queues.heads(tx, queue_id, min(PAGE, _room_of(members)))
    if not items:
        return False
    given, stalled = _give_all(house, tx, queue, items, there, bound)
    return given == PAGE or stalled or (choice is Choice.HASH and given > 0)


def _room_of(members: Iterable[Member]) -> int:
    """Return how many items members take: one with several sessions counts once."""
    by_subscription = {member.subscription: member for member in members}
    return sum(max(0, m.capacity - m.in_flight) for m in by_subscription.values())


def _heads_by_hash(
    tx: Transaction, queue: int, members: Sequence[Member], bound: Mapping[int, int]
) -> list[Item]:
    """Return the first that wait of those slots whose members have room."""
    rows = []
    for number in rules.open_slots(members, bound):
        rows += queue_slots.heads(tx, queue, number, OF_A_SLOT)
    found = [item for row in rows if (item := queues.at(tx, row)) is not None]
    return sorted(found, key=lambda item: (-item.priority, item.row))[:PAGE]


def _give_all(
    house: House,
    tx: Transaction,
    queue: Queue,
    items: Sequence[Item],
    there: Sequence[There],
    bound: Mapping[int, int],
) -> tuple[int, bool]:
    """Give items away; returns how many were, and whether somebody had no room in its outbox."""
    waiting = [Waiting(item.row, item.publisher, item.holder) for item in items]
    members = [one.member for one in there]
    choice = Choice(queue.policy)
    found = rules.assign(waiting, members, choice, queue.favourite, bound)
    _favour(tx, queue, choice, [member.subscription for _row, member in found], members)
    by_row = {item.row: item for item in items}
    sessions = {(one.member.subscription, one.member.session): one for one in there}
    stalled: set[int] = set()
    given = 0
    for row, member in found:
        if member.subscription in stalled:
            continue
        one = sessions[member.subscription, member.session]
        if _give(house, tx, queue, by_row[row], one):
            given += 1
        else:
            stalled.add(member.subscription)
            queue_members.stall(tx, member.subscription)
            tx.wake_at(tx.now.service + STALLED)
    return given, bool(stalled)


def _favour(
    tx: Transaction, queue: Queue, choice: Choice, got: Sequence[int], members: Iterable[Member]
) -> None:
    """Note who is the favourite from now on, where the old one is not there."""
    there = {member.subscription for member in members}
    if choice is Choice.STICKY and got and queue.favourite not in there:
        queues.favour(tx, queue.id, got[0])


def _give(house: House, tx: Transaction, queue: Queue, item: Item, one: There) -> bool:
    """Send an item to a session, and lock it; false if there is no room in an outbox."""
    member, until = one.member, None
    if queue.node is None:
        subscription = subscriptions.get(tx, member.subscription)
        if subscription is None or not sharing.give(house, tx, queue, item, member, subscription):
            return False
        locked = subscription.qos > 0
    else:
        locked, until = True, tx.now.service + queue.lock_timeout
        tx.wake_at(until)
        words.give(house, tx, item, one)
    if locked:
        queues.lock(tx, item.row, member.subscription, member.session, until)
    queue_members.gave(tx, queue.id, one, item.bytes, house.limits.unacknowledged_bytes)
    return True
