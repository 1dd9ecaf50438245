"""Publishing: one road for what comes by iq and by message (XEP-0060, section 7.1).

An ordinary node keeps the item, tells its subscribers, and each share that matches gets it; a queue
node's item stands in line for one worker, and nobody else hears of it. What of an item goes to the
centre (`reported`) is logged with it. What is refused has changed nothing. How notifications travel
and how items are dealt out is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine import refusals, space
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit
from edge.features.pubsub import matching, nodes, notifying, rights, uplink_topics
from edge.features.pubsub.rules import node_config as rules
from edge.features.pubsub.rules.node_config import InvalidOption, NodeConfig
from edge.features.pubsub.rules.publication import DEFAULT_OPTIONS, ItemOptions
from edge.features.pubsub.store import items
from edge.features.pubsub.store import nodes as stored
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.uplink_topics import Report
from edge.features.queues.service.operations import SHARES_PART, enqueue, exceeded_limit
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queues import Queue
from edge.xmpp import pubsub
from edge.xmpp.errors import StanzaError

NOT_MADE: Final = 0
"""The number of a node that is made only by what is published to it."""

ITEM_LOCKED: Final = "item_locked"
"""The rule that refuses a queue's item whose ItemID somebody is working on."""

AROUND: Final = 512
"""Bytes of a notification beside the payload, in round figures."""

_DEFAULT: Final = NodeConfig()
_ANYTHING: Final[Mapping[str, Sequence[str]]] = {}


class NewItem(NamedTuple):
    """What is published: its ItemID, its payload, which stands alone, and is empty if it has none;
    and what of it goes to the centre."""

    id: str
    body: bytes = b""
    report: Report = uplink_topics.NOTHING


def target(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str,
    wanted: Mapping[str, Sequence[str]] = _ANYTHING,
) -> Node:
    """Return the node that somebody publishes to, as it would be made where it is not there yet.

    Args:
        context: what handlers know.
        tx: the transaction; nothing is changed in it.
        sender: who publishes.
        name: of the node.
        wanted: how it has to be configured, or is to be, if it is made.

    Raises:
        StanzaError: there is no such node, the sender may not publish to it, or it is configured
            in another way (XEP-0060, sections 7.1.3 and 7.1.5).
    """
    node = stored.get(tx, name)
    if node is None:
        if not nodes.may_auto_create(context, tx, sender, name):
            raise pubsub.refusal("item-not-found", text="there is no such node")
        config = _configured(context, _DEFAULT, wanted)
        return Node(NOT_MADE, name, sender.bare, config, 0, 0)
    rights.check_publish(context, tx, node, sender)
    if wanted and _configured(context, node.config, wanted) != node.config:
        raise _unmet("the node is configured in another way")
    return node


def _configured(
    context: Context, old: NodeConfig, wanted: Mapping[str, Sequence[str]]
) -> NodeConfig:
    try:
        return rules.apply_options(old, wanted, context.limits.items_per_node)
    except InvalidOption as error:
        raise _unmet(str(error)) from None


def _unmet(text: str) -> StanzaError:
    return pubsub.refusal("conflict", "precondition-not-met", text)


def publish(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    item: NewItem,
    options: ItemOptions = DEFAULT_OPTIONS,
) -> None:
    """Publish an item to a node that the sender may publish to.

    Raises:
        StanzaError: there is no room (`resource-constraint`), somebody is working on the item of
            that ItemID (`conflict`), or `options` are for queues alone.
    """
    if options != DEFAULT_OPTIONS and not node.config.queueing:
        raise _unmet("the node is no queue")
    over, lines = room(context, tx, sender, node, item)
    if not node.config.queueing:  # a line looks for that itself, and so does that of each share
        over = over or space.refuses(tx, _charge(sender, item), context.limits)
    if over is not None:
        refusals.log(context, tx, sender, over.rule, over.figure)
        if over.rule == ITEM_LOCKED:
            raise pubsub.refusal("conflict", text="somebody is working on the item of this ItemID")
        raise pubsub.refusal("resource-constraint", text=f"{over.rule} is {over.figure}")
    put(context, tx, sender, node, item, options, lines)


class Room(NamedTuple):
    """Which limit an item would exceed, if it would; and the queues that get it."""

    over: ExceededLimit | None
    lines: Sequence[Queue]


def room(context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem) -> Room:
    """Tell which limit an item would exceed: of the event log, of the node, or of a share.

    A share that is full holds back who publishes: so nothing is lost that it was promised.
    """
    lines = _lines(context, tx, node)
    if item.report.events and (over := uplink_topics.room(context, tx, item.report)):
        return Room(over, lines)
    if node.config.queueing:
        return Room(_room_in_line(context, tx, sender, item, lines), lines)
    over = _room_to_keep(context, tx, sender, node, item) if node.config.persist_items else None
    over = over or _room_to_tell(context, tx, node, item)
    return Room(over or _room_in_shares(context, tx, sender, item, lines), lines)


def _lines(context: Context, tx: Transaction, node: Node) -> list[Queue]:
    """Return the queues that get what is published to a node: its own, or those of shares."""
    if node.config.queueing:
        found = [queues.of_node(tx, node.id)]
    else:
        found = [queues.get(tx, share) for share in matching.shares(context, tx, node)]
    return [queue for queue in found if queue is not None]


def _charge(sender: Sender, item: NewItem) -> int:
    return items.charge(item.id, sender.full, item.body)


def _room_in_line(
    context: Context, tx: Transaction, sender: Sender, item: NewItem, lines: Sequence[Queue]
) -> ExceededLimit | None:
    size = queue_items.charge(item.id, sender.full, item.body)
    if not lines:  # it is made with the node
        return _over_all(context, tx, NOT_MADE, 1, size)
    (queue,) = lines
    there = queue_items.find(tx, queue.id, item.id)
    if there is not None and there.state == "locked":
        return ExceededLimit(ITEM_LOCKED, 1)
    more = size if there is None else size - there.bytes
    count = 1 if there is None else 0
    return exceeded_limit(context, tx, queue, more, count) if more > 0 else None


def _room_in_shares(
    context: Context, tx: Transaction, sender: Sender, item: NewItem, shares: Sequence[Queue]
) -> ExceededLimit | None:
    size = queue_items.charge(item.id, sender.full, item.body)
    for queue in shares:
        over = exceeded_limit(context, tx, queue, size)
        if over is not None:
            return over
    more = len(shares)
    if more < 2:
        return None
    return _over_all(context, tx, shares[0].id, more, more * size, SHARES_PART)


def _over_all(
    context: Context, tx: Transaction, queue: int, more: int, size: int, part: int = 1
) -> ExceededLimit | None:
    """Tell which limit of all queues together so many items more would exceed; they may have one
    `part` of it."""
    limits, (_here, total) = context.limits, queues.usage(tx, queue)
    for used, most, rule in (
        (total.messages + more, limits.queue_items // part, "queue_items"),
        (total.bytes + size, limits.queue_bytes // part, "queue_bytes"),
    ):
        if used > most:
            return ExceededLimit(rule, most)
    return None


def _room_to_keep(
    context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem
) -> ExceededLimit | None:
    limits, used, size = context.limits, items.total(tx), _charge(sender, item)
    if used.messages < limits.items and used.bytes + size <= limits.items_bytes:
        return None
    leaving = items.usage_replaced(tx, node.id, item.id, _most(context, node))
    if used.messages - leaving.messages + 1 > limits.items:
        return ExceededLimit("items", limits.items)
    if used.bytes - leaving.bytes + size > limits.items_bytes:
        return ExceededLimit("items_bytes", limits.items_bytes)
    return None


def _room_to_tell(
    context: Context, tx: Transaction, node: Node, item: NewItem
) -> ExceededLimit | None:
    """Tell whether all notifications of an item together are more than all sessions may have: they
    are memory, all at once. Who is subscribed is counted for large items alone."""
    limits = context.limits
    most = limits.unacknowledged_total_bytes
    size = len(item.body) + AROUND
    if not node.config.deliver_payloads or size * limits.subscriptions <= most:
        return None
    if size * len(matching.plain(context, tx, node)) <= most:
        return None
    return ExceededLimit("unacknowledged_total_bytes", most)


def _most(context: Context, node: Node) -> int:
    return min(node.config.max_items, context.limits.items_per_node)


def put(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    item: NewItem,
    options: ItemOptions = DEFAULT_OPTIONS,
    lines: Sequence[Queue] | None = None,
) -> None:
    """Do what `publish` does, for what there is room for; `lines` are those that `room` told."""
    if node.id == NOT_MADE:
        node, lines = nodes.create(context, tx, node.name, sender.bare, node.config), None
    config, body = node.config, item.body
    if item.report.events:
        uplink_topics.write(tx, sender, node.name, item.report)
    if not config.queueing:
        if config.persist_items:
            _keep(context, tx, sender, node, item)
        named = item.id if config.persist_items or config.deliver_payloads else None
        notifying.announce(context, tx, node, notifying.published(node, named, body))
        body = body if config.deliver_payloads else b""
    priority, delay, ttl = options.priority, options.delay, options.ttl
    for queue in _lines(context, tx, node) if lines is None else lines:
        enqueue(
            context, tx, queue, node.name, item.id, sender.full, body,
            priority=priority, delay=delay, ttl=ttl,
        )  # fmt: skip


def _keep(context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem) -> None:
    """Keep an item, and forget the oldest where there are too many (`max_items`)."""
    lasts, most = node.config.item_expire, _most(context, node)
    expires = tx.now.service + lasts if lasts else None
    size = _charge(sender, item)
    items.put(tx, node.id, item.id, sender.full, item.body, size, expires)
    if node.items >= most:
        items.trim(tx, node.id, most)
