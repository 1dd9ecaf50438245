"""Giving items away: what waits in a queue goes to the members that are there and have room.

Who gets what is decided in `rules.queue`. How an item of a queue node is sent is `words`', how one
of a share is `sharing`'s; when to look is `line`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.pubsub.store import subscriptions
from edge.features.queues import admission, notifications, sharing
from edge.features.queues.rules import assignment as rules
from edge.features.queues.rules.assignment import Assignment, Member, Policy, ReadyItem
from edge.features.queues.store import (
    depth_events,
    queue_items,
    queue_members,
    queues,
)
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queue_members import ConnectedMember
from edge.features.queues.store.queues import Queue

PAGE: Final = 32
"""How many items are assigned at once."""

FIRST: Final = 4
"""How many in the first page: mostly it is one item, or one member that has room again."""

PAGES: Final = 8
"""How many such pages go in one unit of work: more goes in the next."""

LOOK: Final = 128
"""How many items are looked at where the first wait for other members than have room; where all of
them do, those members get them all the same."""

OF_A_SLOT: Final = 8
"""How many of those may be of one slot, by hash."""

STALLED: Final = 15.0
"""Seconds after which a member is tried again that had no room in its outbox."""


def pump(
    context: Context,
    tx: Transaction,
    queue_id: int,
    queue: Queue | None = None,
    *,
    ask: bool = True,
) -> None:
    """Give what waits in a queue to the members that are there and have room.

    `queue` is the queue itself, where it is at hand. Of a share, members are asked what they take
    where that is not known, unless the caller is not ready for what follows once it is (`ask`).
    """
    queue = queue or queues.get(tx, queue_id)
    if queue is None:
        return
    for number in range(PAGES):
        if not _give_page(context, tx, queue, PAGE if number else FIRST):
            if ask and queue.node is None:
                sharing.ask(context, tx, queue.id)
            return
        if queue.policy == Policy.STICKY.value:  # the favourite may be another now
            queue = queues.get(tx, queue_id) or queue
    tx.wake_at(tx.now.service)


def pump_all(context: Context, tx: Transaction, found: Iterable[int]) -> None:
    """Do that for several queues, each once."""
    for queue in dict.fromkeys(found):
        pump(context, tx, queue)


def _give_page(context: Context, tx: Transaction, queue: Queue, size: int) -> bool:
    """Give a page of so many items away; false if there is no more to give."""
    there = queue_members.with_room(tx, queue.id, size + 1)
    if not there:
        return False
    page = _choose(tx, queue, there, size)
    given, again = _give_all(context, tx, queue, page)
    by_hash = queue.policy == Policy.HASH.value
    return given == size or again or (by_hash and given > 0)


class _Page(NamedTuple):
    """Items, the members that are there, and who gets what."""

    items: Sequence[Item]
    there: Sequence[ConnectedMember]
    found: Sequence[Assignment]


def _choose(tx: Transaction, queue: Queue, free: Sequence[ConnectedMember], size: int) -> _Page:
    """Decide who gets what of a page of `size` items; `free` are the first that have room."""
    choice = Policy(queue.policy)
    if choice is Policy.HASH:
        there = queue_members.connected(tx, queue.id)
        bound = queue_items.slot_owners(tx, queue.id)
        items = _heads_by_hash(tx, queue.id, [one.member for one in there], bound)
        return _Page(items, there, _assign(queue, items, there, bound))
    items = queue_items.next_ready(tx, queue.id, min(size, _room_of(free)))
    given_back = any(item.holder for item in items)
    plain = choice is Policy.LEAST_LOADED and not given_back
    there = list(free) if plain else queue_members.connected(tx, queue.id)
    found = _assign(queue, items, there)
    if len(found) == len(items) or not given_back:
        return _Page(items, there, found)
    items = queue_items.next_ready(
        tx, queue.id, LOOK
    )  # some wait for others: what comes behind need not
    found = _assign(queue, items, there)[:size]
    if not found and len(items) == LOOK:
        anybodys = [item._replace(holder=None) for item in items]
        found = _assign(queue, anybodys, there)[:size]
    return _Page(items, there, found)


def _assign(
    queue: Queue,
    items: Iterable[Item],
    there: Iterable[ConnectedMember],
    bound: Mapping[int, int] | None = None,
) -> list[Assignment]:
    waiting = [ReadyItem(item.row, item.publisher, item.holder) for item in items]
    members = [one.member for one in there]
    return rules.assign(waiting, members, Policy(queue.policy), queue.favourite, bound)


def _room_of(there: Iterable[ConnectedMember]) -> int:
    """Return how many items members take: one with several sessions counts once."""
    by_subscription = {one.member.subscription: one.member for one in there}
    return sum(max(0, m.capacity - m.in_flight) for m in by_subscription.values())


def _heads_by_hash(
    tx: Transaction, queue: int, members: Sequence[Member], bound: Mapping[int, int]
) -> list[Item]:
    """Return the first that wait of those slots whose members have room."""
    heads = []
    for number in rules.open_slots(queue_items.ready_slots(tx, queue), members, bound):
        heads += queue_items.next_ready_of_slot(tx, queue, number, OF_A_SLOT)
    found = (queue_items.get(tx, row) for _order, row in sorted(heads)[:PAGE])
    return [item for item in found if item is not None]


def _give_all(context: Context, tx: Transaction, queue: Queue, page: _Page) -> tuple[int, bool]:
    """Give items away; returns how many were, and whether to look again: somebody had no room in
    its outbox, or had enough bytes before it had enough items, or may not have what was meant for
    it."""
    _favour(tx, queue, page)
    by_row = {item.row: item for item in page.items}
    sessions = {(one.member.subscription, one.member.session): one for one in page.there}
    spent: set[int] = set()
    given, again = 0, False
    for row, member in page.found:
        if member.subscription in spent:
            again = True
            continue
        named = sessions[member.subscription, member.session]
        one, aside = admission.choose(context, tx, queue, by_row[row], named)
        if one is None and not aside and queue.policy == Policy.LEAST_LOADED.value:
            behind = _give_behind(context, tx, queue)
            return given + behind, behind > 0
        if one is None:
            again = again or aside
            continue
        if _send(context, tx, queue, by_row[row], one):
            given += 1
            if not _count(context, tx, queue, by_row[row], one):
                spent.add(one.member.subscription)
        else:
            again = True
            spent.add(one.member.subscription)
            _stall(tx, one)
        if one is not named:  # who has how much is not as it was when the page was decided
            return given, True
    return given, again


def _give_behind(context: Context, tx: Transaction, queue: Queue) -> int:
    """Give what is behind items that only members without room may have, since others need not wait
    for them; returns how many items. What was given back waits for who it is for."""
    busy: set[str] = set()  # nodes whose items nobody has room for
    given = 0
    for item in queue_items.next_ready(tx, queue.id, LOOK):
        if item.node in busy or item.holder is not None:
            continue
        there = queue_members.with_room(tx, queue.id, 1)
        one = admission.choose(context, tx, queue, item, there[0]).one if there else None
        if one is None:
            busy.add(item.node)
        elif _send(context, tx, queue, item, one):
            given += 1
            _count(context, tx, queue, item, one)
        else:
            _stall(tx, one)
    return given


def _stall(tx: Transaction, one: ConnectedMember) -> None:
    """Try a member again later, in whose outbox there was no room."""
    queue_members.set_stalled(tx, one.member.subscription)
    tx.wake_at(tx.now.service + STALLED)


def _favour(tx: Transaction, queue: Queue, page: _Page) -> None:
    """Note who is the favourite from now on, where the old one is not there."""
    there = {one.member.subscription for one in page.there}
    sticky = queue.policy == Policy.STICKY.value
    if sticky and page.found and queue.favourite not in there:
        queues.set_favourite(tx, queue.id, page.found[0].member.subscription)


def _send(
    context: Context, tx: Transaction, queue: Queue, item: Item, one: ConnectedMember
) -> bool:
    """Send an item to a session, and lock it; false if there is no room in an outbox."""
    member, until = one.member, None
    if queue.node is None:
        subscription = subscriptions.get(tx, member.subscription)
        if subscription is None or not sharing.give(context, tx, queue, item, member, subscription):
            return False
        locked = subscription.qos > 0
    else:
        locked, until = True, tx.now.service + queue.lock_timeout
        tx.wake_at(until)
        notifications.give(context, tx, item, one)
    if locked:
        queue_items.lock(tx, item.row, member.subscription, member.session, until)
    depth_events.count_delivery(tx, queue.id, again=item.deliveries > 0)
    return True


def _count(
    context: Context, tx: Transaction, queue: Queue, item: Item, one: ConnectedMember
) -> bool:
    """Count what a member was given; false if it has no room for more now."""
    most = context.limits.unacknowledged_bytes
    return queue_members.count_assignment(tx, queue.id, one, item.bytes, most)
