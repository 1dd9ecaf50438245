"""Create, configure and remove queues of nodes and shared subscriptions, and check their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine import events, quota, space
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit, StoreUsage, Usage
from edge.features.pubsub.rules.replacement import Existing, author_of
from edge.features.pubsub.service.access import access_check
from edge.features.pubsub.service.queries import Node, member_jids, members, shares_matching
from edge.features.queues.rules.assignment import Policy
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.service import membership
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.store import queue_items, queue_members, queues
from edge.features.queues.store.queue_items import NewItem as NewItem
from edge.features.queues.store.queues import Queue as Queue
from edge.features.queues.store.queues import add_for_share as add_for_share
from edge.features.queues.store.queues import forget as forget
from edge.features.queues.store.queues import get as get
from edge.features.queues.store.queues import of_node as of_node
from edge.features.queues.store.queues import of_share as of_share

SHARES_PART: Final = 2
"""Divisor of `limits.queue_items` and `limits.queue_bytes` for shared subscriptions: they may use
half. Any subscriber can create a share; unprocessed shares must leave room for queue nodes."""


# Queues of nodes


def configure_node(context: Context, tx: Transaction, node: Node) -> None:
    """Create, change or remove the queue of a node according to the node's configuration.

    A change to or from the hash policy writes the rows of all items of the queue.
    """
    config, queue = node.config, queues.of_node(tx, node.id)
    options = config.queue_policy, config.queue_lock_timeout, config.queue_max_deliveries
    if not config.queueing:
        if queue is not None:
            queues.remove(tx, queue.id)
    elif queue is None:
        queues.add_for_node(tx, node.id, *options)
    else:
        queues.configure(tx, queue.id, *options)
        if config.queue_policy != queue.policy:
            by_hash = config.queue_policy == Policy.HASH.value
            queue_items.assign_slots(tx, queue.id, by_hash=by_hash)
        dispatch(context, tx, queue.id)


def purge_node(context: Context, tx: Transaction, node: Node) -> int:
    """Delete all items of a queue node, including locked ones; return the number of items."""
    queue = queues.of_node(tx, node.id)
    if queue is None:
        return 0
    count = queue_items.delete_all(tx, queue.id)
    queue_members.recount_queue(tx, queue.id, context.limits.unacknowledged_bytes)
    return count


def remove_node(context: Context, tx: Transaction, node: Node) -> None:
    """Remove the queue of a node that is about to be deleted.

    The node's items in a share become dead if a member of the share has no access to the node.
    """
    queue = queues.of_node(tx, node.id)
    if queue is not None:
        for member in members(tx, queue.id):
            membership.leave(context, tx, member, Loss.UNSUBSCRIBED)
        queues.remove(tx, queue.id)
    # After the deletion, access cannot be checked.
    may_subscribe = access_check(context, tx, node)
    for share in shares_matching(tx, node.name):
        if all(map(may_subscribe, member_jids(tx, share))):
            continue
        count = queue_items.dead_letter_node(tx, share, node.name, "the node was deleted")
        if count:
            event = NewEvent(
                "message",
                topic=node.name,
                name="share_items_dead",
                value=float(count),
                level="Warning",
                text="a node was deleted, so its items in a shared subscription are dead",
                tags={"queue": str(share)},
            )
            events.append(tx, events.SYSTEM, event)


# Items


class ExistingItem(NamedTuple):
    """An item of a queue node: its state, the bare JID that has its publisher's rights ("" if none
    has), and its row number."""

    existing: Existing
    author: str
    row: int

    def payload(self, tx: Transaction) -> bytes:
        """Return the item's payload; empty if it has none."""
        return queue_items.body(tx, self.row)


def existing_item(tx: Transaction, node: int, item_id: str) -> ExistingItem | None:
    """Return the item of a queue node with this ItemID. An item that waited longer than its time to
    live counts as dead, although its timer has not run yet."""
    queue = queues.of_node(tx, node)
    item = None if queue is None else queue_items.find(tx, queue.id, item_id)
    if item is None:
        return None
    if item.state == "locked":
        existing = Existing.LOCKED
    elif item.state == "dead" or (item.expires is not None and item.expires <= tx.now.service):
        existing = Existing.DEAD
    else:
        existing = Existing.WAITING
    return ExistingItem(existing, author_of(item.author, item.publisher), item.row)


# Limits


def exceeded_node_limit(
    context: Context, tx: Transaction, queue: Queue | None, new: NewItem
) -> ExceededLimit | None:
    """Return the limit that an item published to a queue node would exceed, or `None`.

    A dead item with the same ItemID makes room. `queue` is `None` if the publication will create
    the node and its queue.
    """
    source, size = author_of(None, new.publisher), new.charge
    if queue is None:
        return _exceeded_total(context, tx, source, Usage(1, size))
    old = queue_items.find(tx, queue.id, new.item)
    if old is None:
        return _exceeded_limit(context, tx, queue, source, Usage(1, size))
    growth = Usage(0, size - old.bytes)
    is_own = author_of(old.author, old.publisher) == source
    own = growth if is_own else Usage(1, size)
    return _exceeded_limit(context, tx, queue, source, growth, own)


def exceeded_share_limit(
    context: Context, tx: Transaction, shares: Sequence[Queue], new: NewItem
) -> ExceededLimit | None:
    """Return the limit that adding an item to all queues in `shares` would exceed, or `None`."""
    size = new.charge
    growth: dict[str, Usage] = {}
    total = Usage()
    for queue in shares:
        source = queue.owner or ""
        before = growth.get(source, Usage())
        growth[source] = Usage(before.messages + 1, before.bytes + size)
        total = Usage(total.messages + 1, total.bytes + size)
        exceeded = _exceeded_limit(context, tx, queue, source, total, growth[source])
        if exceeded is not None:
            return exceeded
    return None


def _exceeded_limit(
    context: Context,
    tx: Transaction,
    queue: Queue,
    source: str,
    growth: Usage,
    own: Usage | None = None,
) -> ExceededLimit | None:
    """Return the limit of a queue, of a source, of all queues or of the database that a further
    item would exceed, or `None`.

    Args:
        growth: the growth of all queues together; the queue grows by at most one item.
        own: the growth of the items that count for the source, if it differs.
    """
    limits, used = context.limits, queues.get(tx, queue.id) or queue
    count = min(growth.messages, 1)
    size = growth.bytes // max(growth.messages, 1)  # all items of one publication are equal
    if used.items + count > limits.items_per_queue:
        return ExceededLimit("items_per_queue", limits.items_per_queue)
    if size > 0 and used.bytes + size > limits.queue_bytes_per_queue:
        return ExceededLimit("queue_bytes_per_queue", limits.queue_bytes_per_queue)
    part = 1 if queue.share is None else SHARES_PART
    exceeded = _exceeded_total(context, tx, source, growth, own, part)
    return exceeded or (space.reserve(tx, size, limits) if size > 0 else None)


def _exceeded_total(
    context: Context,
    tx: Transaction,
    source: str,
    growth: Usage,
    own: Usage | None = None,
    part: int = 1,
) -> ExceededLimit | None:
    """Return the limit of all queues together, or of a source in them, that growth would exceed, or
    `None`; each limit is divided by `part`."""
    limits, total = context.limits, queues.total(tx)
    of_source, items = limits.queue_items_per_source // part, limits.queue_items // part
    bytes_of_source, size = limits.queue_bytes_per_source // part, limits.queue_bytes // part
    if quota.has_room_for_all(
        total.messages + growth.messages, of_source, items
    ) and quota.has_room_for_all(total.bytes + growth.bytes, bytes_of_source, size):
        return None
    most = StoreUsage(Usage(of_source, bytes_of_source), Usage(items, size))
    used = StoreUsage(queues.usage_of(tx, source), total)
    grows = StoreUsage(growth if own is None else own, growth)
    return quota.exceeded_store_limit(quota.QUEUE_LIMITS, grows, used, most)
