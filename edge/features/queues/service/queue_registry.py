"""Implement the operations on queues that publish-subscribe performs (`Queues`): create, configure
and remove queues of nodes and shared subscriptions, and publish items to them within their limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.config.limits import Limits
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.item_attributes import ItemAttributes, charge
from edge.engine.rules import quota
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit, StoreUsage, Usage
from edge.engine.store import events, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.publication import ItemOptions
from edge.features.pubsub.rules.replacement import Existing, ExistingItem, author_of
from edge.features.pubsub.service.access import access_check
from edge.features.pubsub.service.publishing import NewItem
from edge.features.pubsub.service.queries import Node, member_jids, members, shares_matching
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.service import membership, operations
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.service.membership import end_membership as end_membership
from edge.features.queues.service.membership import join as join
from edge.features.queues.service.membership import release_all_withheld as release_all_withheld
from edge.features.queues.service.membership import release_withheld as release_withheld
from edge.features.queues.service.operations import delete_item as delete_item
from edge.features.queues.store import queue_items, queue_members, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.features.queues.store.queues import Queue
from edge.features.queues.store.queues import add_for_share as add_for_share
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
            by_hash = config.queue_policy == QueuePolicy.HASH
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


def existing_item(
    tx: Transaction, sender: Sender, node: Node, item_id: str, payload: bytes, content_type: str
) -> ExistingItem | None:
    """Return the item of a queue node that has the ItemID of an item from `sender`. An item that
    waited longer than its time to live counts as dead, although its timer has not run yet."""
    queue = queues.of_node(tx, node.id)
    found = None if queue is None else queue_items.find(tx, queue.id, item_id)
    if found is None:
        return None
    if found.state == "locked":
        state = Existing.LOCKED
    elif found.state == "dead" or (found.expires is not None and found.expires <= tx.now.service):
        state = Existing.DEAD
    else:
        state = Existing.WAITING
    if author_of(found.author, found.publisher) != sender.bare:
        return ExistingItem(state, is_own=False)
    body, attributes = queue_items.body(tx, found.row)
    return ExistingItem(state, True, (body, attributes.content_type) == (payload, content_type))


def enqueue(
    context: Context,
    tx: Transaction,
    node: Node,
    sender: Sender,
    item: NewItem,
    options: ItemOptions,
    shares: Sequence[int],
) -> None:
    """Put a published item into the queue of its node if this is a queue node, else into those of
    shares (given by number)."""
    if not (node.config.queueing or shares):
        return
    config, now, (priority, delay, ttl) = node.config, tx.now.service, options
    body, attributes = item.payload, item.attributes
    if ttl is None:
        ttl = attributes.expiry
    if not (config.queueing or config.deliver_payloads):
        body, attributes = b"", ItemAttributes(qos=attributes.qos)
    due, expires = now + delay if delay else None, None if ttl is None else now + ttl
    new = NewQueuedItem(node.name, item.id, sender.full, body, priority, due, expires, attributes)
    for queue in _queues(tx, node, shares):
        operations.enqueue(context, tx, queue, new)


def _queues(tx: Transaction, node: Node, shares: Sequence[int]) -> list[Queue]:
    is_queue = node.config.queueing
    found = [queues.of_node(tx, node.id)] if is_queue else [queues.get(tx, one) for one in shares]
    return [queue for queue in found if queue is not None]


# Limits


def exceeded_limit(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    item_id: str,
    payload: bytes,
    attributes: ItemAttributes,
    shares: Sequence[int],
) -> ExceededLimit | None:
    """Return the limit that an item would exceed, or `None`: of the queue of its node if this is a
    queue node, else of the queues of shares (given by number)."""
    size = charge(queue_items.OVERHEAD, item_id, sender.full, payload, attributes)
    if node.config.queueing:
        return _exceeded_node_limit(context, tx, sender.bare, node, item_id, size)
    growth: dict[str, Usage] = {}
    total = Usage()
    for queue in _queues(tx, node, shares):
        source = queue.owner or ""
        before = growth.get(source, Usage())
        growth[source] = Usage(before.messages + 1, before.bytes + size)
        total = Usage(total.messages + 1, total.bytes + size)
        exceeded = _exceeded_limit(context, tx, queue, source, total, growth[source])
        if exceeded is not None:
            return exceeded
    return None


def _exceeded_node_limit(
    context: Context, tx: Transaction, source: str, node: Node, item_id: str, size: int
) -> ExceededLimit | None:
    """Return the limit that an item published to a queue node would exceed, or `None`. A dead item
    with the same ItemID makes room."""
    queue = queues.of_node(tx, node.id)
    if queue is None:  # the publication will create the node and its queue
        return _exceeded_total(context, tx, source, Usage(1, size))
    exceeded = _exceeded_limit(context, tx, queue, source, Usage(1, size))
    old = None if exceeded is None else queue_items.find(tx, queue.id, item_id)
    if old is None:
        return exceeded
    growth = Usage(0, size - old.bytes)
    is_own = author_of(old.author, old.publisher) == source
    own = growth if is_own else Usage(1, size)
    return _exceeded_limit(context, tx, queue, source, growth, own)


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
    limits = context.limits
    count = min(growth.messages, 1)
    size = growth.bytes // max(growth.messages, 1)  # all items of one publication are equal
    exceeded = exceeded_of_queue(limits, queue.items, queue.bytes, count, size)
    if exceeded is not None:
        return exceeded
    part = 1 if queue.share is None else SHARES_PART
    exceeded = _exceeded_total(context, tx, source, growth, own, part)
    return exceeded or (space.reserve(tx, size, limits) if size > 0 else None)


def exceeded_of_queue(
    limits: Limits, items: int, size: int, new_items: int, new_bytes: int
) -> ExceededLimit | None:
    """Return the limit of one queue, with this number and size of items, that new ones would
    exceed, or `None`."""
    if items + new_items > limits.items_per_queue:
        return ExceededLimit("items_per_queue", limits.items_per_queue)
    if new_bytes > 0 and size + new_bytes > limits.queue_bytes_per_queue:
        return ExceededLimit("queue_bytes_per_queue", limits.queue_bytes_per_queue)
    return None


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
