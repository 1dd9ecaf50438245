"""Dispatch: assign the ready items of a queue to connected members that have room.

Items of a shared subscription may come from nodes with different access rights, and the rules of
`[[access]]` may change. An item goes only to a member that may subscribe to its node. If no such
member is connected, the item is withheld until a member joins or rights change, so that it does not
block other items. Source: docs/reference/protocol.md, on shared subscriptions.

Theory of operation

Items are assigned in pages. `_plan_page` reads the first ready items and the members, and `rules`
plans who gets which item, from loads and limits alone. `_assign_page` carries out the plan, and
finds what the rules cannot know. Then the plan no longer holds, and this decides how it goes on:

- The planned member may not subscribe to the item's node: the item goes to the least loaded member
  that may. This changes the loads, so the page ends and another one is planned.
- Such members exist, but none has room: under the policy `least-loaded`, only items of other nodes
  behind this one are assigned (`_assign_behind`); under another policy, the item is skipped.
- No connected member may subscribe to the node: its items are withheld, and another page is
  planned.
- A member reaches its limit of bytes, or its outbox is full: it gets nothing more in this page, and
  another page is planned. A full outbox also excludes it from later pages (`_stall`).

Each page that asks for another one has assigned or withheld an item, or excluded a member, so
dispatch ends; `PAGES` bounds the work of one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.dispatch.hooks import Context
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service.access import may_subscribe
from edge.features.pubsub.service.queries import find_node, find_subscription
from edge.features.pubsub.service.topic_rights import is_allowed
from edge.features.queues.rules import assignment as rules
from edge.features.queues.rules.assignment import Assignment, Member, ReadyItem
from edge.features.queues.service import notifications, share_delivery
from edge.features.queues.store import depth_events, queue_items, queue_members, queues
from edge.features.queues.store.queue_items import Lock, NewQueuedItem, QueuedItem
from edge.features.queues.store.queue_members import ConnectedMember
from edge.features.queues.store.queues import Queue

FIRST_PAGE: Final = 4
"""Maximum number of items in a dispatch's first page: the items whose assignment is planned
together. The first page is small because usually only one item can be assigned."""

PAGE: Final = 32
"""Maximum number of items in each later page of a dispatch (see `FIRST_PAGE`)."""

PAGES: Final = 8
"""Maximum number of pages of items that one unit of work assigns; the next unit continues."""

LOOKAHEAD: Final = 128
"""Maximum number of ready items to examine if no member with room may get the first ones. If none
of so many can be assigned, members may get again the items that they gave back."""

PER_SLOT: Final = 8
"""Maximum items of one slot (a group of publishers, see `rules.SLOTS`) in a page."""

STALL: Final = 15.0
"""Seconds without assignments for a member whose outbox was full."""


def dispatch(context: Context, tx: Transaction, queue_id: int, queue: Queue | None = None) -> None:
    """Assign ready items of the queue with the number `queue_id` to connected members that have
    room; a caller that has already read the queue passes it as `queue`."""
    queue = queue or queues.get(tx, queue_id)
    if queue is None or queue_items.is_drained(tx, queue_id):
        return
    for number in range(PAGES):
        if not _dispatch_page(context, tx, queue, PAGE if number else FIRST_PAGE):
            return
        if queue.policy == QueuePolicy.STICKY:  # the page may have changed the favourite
            queue = queues.get(tx, queue_id) or queue
    tx.wake_at(tx.now.service)


def assign_new(context: Context, tx: Transaction, queue: Queue, new: NewQueuedItem) -> bool:
    """Enqueue an item of a queue node and assign it at once; return whether that was possible.

    This is a faster form of enqueuing the item and dispatching the queue. It is impossible, and
    changes nothing, if no worker is free, if another item may be ready, or if the policy is not
    least-loaded.
    """
    now = tx.now.service
    simple = queue.node is not None and queue.policy == QueuePolicy.LEAST_LOADED
    if not simple or not queue_items.is_drained(tx, queue.id):
        return False
    if new.expires is not None and new.expires <= now:
        return False
    free = queue_members.with_room(tx, queue.id, 1)
    if not free:
        return False
    if not is_allowed(context, tx, free[0].member.full, Right.SUBSCRIBE, new.node):
        return False
    to, until = free[0], now + queue.lock_timeout
    tx.wake_at(until)
    lock = Lock(to.member.subscription, to.member.full, until)
    item = queue_items.enqueue(tx, queue, new, lock)
    notifications.deliver(tx, item._replace(deliveries=0), to, new.body, new.attributes)
    depth_events.count_delivery(tx, queue.id, again=False)
    _count(context, tx, queue, item, to)
    return True


def dispatch_all(context: Context, tx: Transaction, queue_ids: Iterable[int]) -> None:
    """Assign ready items of several queues; a repeated queue is dispatched once."""
    for queue in dict.fromkeys(queue_ids):
        dispatch(context, tx, queue)


def _dispatch_page(context: Context, tx: Transaction, queue: Queue, size: int) -> bool:
    """Assign up to `size` items; return whether further items may be assignable."""
    free = queue_members.with_room(tx, queue.id, size + 1)
    if not free:
        return False
    page = _plan_page(tx, queue, free, size)
    assigned, again = _assign_page(context, tx, queue, page)
    by_hash = queue.policy == QueuePolicy.HASH
    return assigned == size or again or (by_hash and assigned > 0)


class _Page(NamedTuple):
    items: Sequence[QueuedItem]
    members: Sequence[ConnectedMember]
    assignments: Sequence[Assignment]


def _plan_page(tx: Transaction, queue: Queue, free: Sequence[ConnectedMember], size: int) -> _Page:
    """Plan the assignment of up to `size` items; `free` are the least loaded members with room."""
    policy = QueuePolicy(queue.policy)
    if policy is QueuePolicy.HASH:
        members = queue_members.connected(tx, queue.id)
        owners = queue_items.slot_owners(tx, queue.id)
        items = _ready_by_slot(tx, queue.id, [one.member for one in members], owners)
        return _Page(items, members, _plan(queue, items, members, owners))
    items = queue_items.next_ready(tx, queue.id, min(size, _room_of(free)))
    any_given_back = any(item.holder for item in items)
    simple = policy is QueuePolicy.LEAST_LOADED and not any_given_back
    members = list(free) if simple else queue_members.connected(tx, queue.id)
    plan = _plan(queue, items, members)
    if len(plan) == len(items) or not any_given_back:
        return _Page(items, members, plan)
    # An item that was given back waits for another member. The items behind it need not wait.
    items = queue_items.next_ready(tx, queue.id, LOOKAHEAD)
    plan = _plan(queue, items, members)[:size]
    if not plan and len(items) == LOOKAHEAD:
        for_anyone = [item._replace(holder=None) for item in items]
        plan = _plan(queue, for_anyone, members)[:size]
    return _Page(items, members, plan)


def _plan(
    queue: Queue,
    items: Iterable[QueuedItem],
    members: Iterable[ConnectedMember],
    slot_owners: Mapping[int, int] | None = None,
) -> list[Assignment]:
    ready = [ReadyItem(item.row, item.publisher, item.holder) for item in items]
    candidates = [one.member for one in members]
    return rules.assign(ready, candidates, QueuePolicy(queue.policy), queue.favourite, slot_owners)


def _room_of(members: Iterable[ConnectedMember]) -> int:
    """Return how many more items members accept together; the sessions of one subscription count
    once."""
    by_subscription = {one.member.subscription: one.member for one in members}
    return sum(max(0, m.capacity - m.in_flight) for m in by_subscription.values())


def _ready_by_slot(
    tx: Transaction, queue: int, members: Sequence[Member], owners: Mapping[int, int]
) -> list[QueuedItem]:
    """Return the first ready items of the slots that members with room serve."""
    keys = []
    for slot in rules.open_slots(queue_items.ready_slots(tx, queue), members, owners):
        keys += queue_items.next_ready_of_slot(tx, queue, slot, PER_SLOT)
    found = (queue_items.get(tx, row) for _priority, row in sorted(keys)[:PAGE])
    return [item for item in found if item is not None]


def _assign_page(context: Context, tx: Transaction, queue: Queue, page: _Page) -> tuple[int, bool]:
    """Carry out the planned assignments of a page.

    Returns:
        The number of assigned items, and whether to plan another page because not all assignments
        were possible: an outbox was full, or a member reached its limit of bytes or lacks access.
    """
    _update_favourite(tx, queue, page)
    items = {item.row: item for item in page.items}
    members = {(one.member.subscription, one.member.full): one for one in page.members}
    without_room: set[int] = set()
    assigned, again = 0, False
    for row, planned in page.assignments:
        if planned.subscription in without_room:
            again = True
            continue
        item, first_choice = items[row], members[planned.subscription, planned.full]
        chosen, is_withheld = _choose_eligible(context, tx, queue, item, first_choice)
        if chosen is None and not is_withheld and queue.policy == QueuePolicy.LEAST_LOADED:
            behind = _assign_behind(context, tx, queue)
            return assigned + behind, behind > 0
        if chosen is None:
            again = again or is_withheld
            continue
        if _assign(context, tx, queue, item, chosen):
            assigned += 1
            if not _count(context, tx, queue, item, chosen):
                without_room.add(chosen.member.subscription)
        else:
            again = True
            without_room.add(chosen.member.subscription)
            _stall(tx, chosen)
        if chosen is not first_choice:  # the loads on which the plan is based have changed
            return assigned, True
    return assigned, again


def _assign_behind(context: Context, tx: Transaction, queue: Queue) -> int:
    """Assign the ready items to whose nodes a member with room may subscribe, except items that
    were given back; return the number of assigned items."""
    blocked_nodes: set[str] = set()
    assigned = 0
    for item in queue_items.next_ready(tx, queue.id, LOOKAHEAD):
        if item.node in blocked_nodes or item.holder is not None:
            continue
        free = queue_members.with_room(tx, queue.id, 1)
        chosen = _choose_eligible(context, tx, queue, item, free[0]).member if free else None
        if chosen is None:
            blocked_nodes.add(item.node)
        elif _assign(context, tx, queue, item, chosen):
            assigned += 1
            _count(context, tx, queue, item, chosen)
        else:
            _stall(tx, chosen)
    return assigned


class _Choice(NamedTuple):
    """Member that gets an item, if any; `is_withheld` is whether the item was withheld instead."""

    member: ConnectedMember | None
    is_withheld: bool = False


def _choose_eligible(
    context: Context, tx: Transaction, queue: Queue, item: QueuedItem, first_choice: ConnectedMember
) -> _Choice:
    """Return the first choice if that member may subscribe to the item's node; otherwise the least
    loaded member with room that may. If no connected member may, withhold the items of the node."""
    node = find_node(tx, item.node) if queue.node is None else None

    def is_eligible(one: ConnectedMember) -> bool:
        if node is None:  # affiliations are checked when a member joins the queue of a node
            return is_allowed(context, tx, one.member.full, Right.SUBSCRIBE, item.node)
        return may_subscribe(context, tx, node, one.member.full)

    if is_eligible(first_choice):
        return _Choice(first_choice)
    eligible = [one for one in queue_members.connected(tx, queue.id) if is_eligible(one)]
    if not eligible:
        queue_items.withhold(tx, queue.id, item.node)
        return _Choice(None, is_withheld=True)
    free = [one for one in eligible if one.member.has_room]
    return _Choice(min(free, key=lambda one: one.member.in_flight) if free else None)


def _stall(tx: Transaction, connected: ConnectedMember) -> None:
    queue_members.set_stalled(tx, connected.member.subscription)
    tx.wake_at(tx.now.service + STALL)


def _update_favourite(tx: Transaction, queue: Queue, page: _Page) -> None:
    """Record the new favourite of a sticky queue if the old favourite is not connected."""
    connected = {one.member.subscription for one in page.members}
    sticky = queue.policy == QueuePolicy.STICKY
    if sticky and page.assignments and queue.favourite not in connected:
        queues.set_favourite(tx, queue.id, page.assignments[0].member.subscription)


def _assign(
    context: Context, tx: Transaction, queue: Queue, item: QueuedItem, to: ConnectedMember
) -> bool:
    """Deliver an item to a session and, unless it leaves the queue at QoS 0, lock it; return false
    if the member's outbox is full."""
    member, until = to.member, None
    if queue.node is None:
        subscription = find_subscription(tx, member.subscription)
        if subscription is None or not share_delivery.deliver(
            context, tx, queue, item, member, subscription
        ):
            return False
        locked = share_delivery.level(item, subscription) > 0
    else:
        locked, until = True, tx.now.service + queue.lock_timeout
        tx.wake_at(until)
        notifications.deliver(tx, item, to, *queue_items.body(tx, item.row))
    if locked:
        queue_items.lock(tx, queue, item, Lock(member.subscription, member.full, until))
    depth_events.count_delivery(tx, queue.id, again=item.deliveries > 0)
    return True


def _count(
    context: Context, tx: Transaction, queue: Queue, item: QueuedItem, to: ConnectedMember
) -> bool:
    """Count an item as assigned to a member; return whether the member has room for more."""
    max_bytes = context.limits.unacknowledged_bytes
    return queue_members.count_assignment(tx, queue.id, to, item.bytes, max_bytes)
