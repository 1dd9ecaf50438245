"""Create, configure and remove queues of nodes and shared subscriptions, and check their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine import events, space
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit, Usage
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
from edge.features.queues.store.queues import get as get
from edge.features.queues.store.queues import of_node as of_node
from edge.features.queues.store.queues import of_share as of_share

SHARES_PART: Final = 2
"""Divisor of `limits.queue_items` and `limits.queue_bytes` for shared subscriptions: they may use
half. Any subscriber can create a share; unprocessed shares must leave room for queue nodes."""

_NO_QUEUE: Final = 0
"""Queue number that no queue has, to look up only the usage of all queues together."""


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
    size = new.charge
    if queue is None:
        return _exceeded_total(context, queues.usage(tx, _NO_QUEUE)[1], 1, size)
    old = queue_items.find(tx, queue.id, new.item)
    growth = size if old is None else size - old.bytes
    count = 1 if old is None else 0
    return _exceeded_limit(context, tx, queue, growth, count) if growth > 0 else None


def exceeded_share_limit(
    context: Context, tx: Transaction, shares: Sequence[Queue], new: NewItem
) -> ExceededLimit | None:
    """Return the limit that adding an item to all queues in `shares` would exceed, or `None`."""
    size, count = new.charge, len(shares)
    for queue in shares:
        exceeded = _exceeded_limit(context, tx, queue, size)
        if exceeded is not None:
            return exceeded
    if count < 2:
        return None
    total = queues.usage(tx, shares[0].id)[1]
    return _exceeded_total(context, total, count, count * size, SHARES_PART)


def _exceeded_limit(
    context: Context, tx: Transaction, queue: Queue, size: int, count: int = 1
) -> ExceededLimit | None:
    """Return the limit of the queue, of all queues or of the database that `count` more items with
    `size` bytes in total would exceed, or `None`."""
    limits, (own, total) = context.limits, queues.usage(tx, queue.id)
    if own.messages + count > limits.items_per_queue:
        return ExceededLimit("items_per_queue", limits.items_per_queue)
    if own.bytes + size > limits.queue_bytes_per_queue:
        return ExceededLimit("queue_bytes_per_queue", limits.queue_bytes_per_queue)
    part = 1 if queue.share is None else SHARES_PART
    exceeded = _exceeded_total(context, total, count, size, part)
    return exceeded or space.reserve(tx, size, limits)


def _exceeded_total(
    context: Context, total: Usage, count: int, size: int, part: int = 1
) -> ExceededLimit | None:
    """Return the limit of all queues together that `count` more items with `size` bytes in total
    would exceed, or `None`; each limit is divided by `part`."""
    limits = context.limits
    if total.messages + count > limits.queue_items // part:
        return ExceededLimit("queue_items", limits.queue_items // part)
    if total.bytes + size > limits.queue_bytes // part:
        return ExceededLimit("queue_bytes", limits.queue_bytes // part)
    return None
