"""Publish items that arrive in requests or in messages (XEP-0060, section 7.1).

A plain node stores the item, notifies its subscribers, and puts the item into the queue of each
share whose filter matches. A queue node puts the item into its own queue only. A publication that
leaves nothing to keep needs no node. If `[uplink] topics` or a table `[[readings]]` selects the
node, the readings and logs in the payload become events in the same transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from edge import topics
from edge.config.options import Readings
from edge.engine.dispatch.hooks import Contents, Context, Event
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes, charge
from edge.engine.log import refusals
from edge.engine.rules import quota
from edge.engine.rules.access import Sender, may_manage_nodes
from edge.engine.rules.quota import ExceededLimit, StoreUsage, Usage
from edge.engine.store import space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.eventlog import decoders
from edge.features.eventlog import service as eventlog
from edge.features.pubsub.rules import affiliation, node_config
from edge.features.pubsub.rules.node_config import InvalidOption, NodeConfig
from edge.features.pubsub.rules.publication import (
    DEFAULT_OPTIONS,
    DELAY,
    PRIORITY,
    TTL,
    ItemOptions,
    PublicationShape,
    find_fault,
)
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.replacement import Existing, ExistingItem, Outcome, decide
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import access, notifications, queueing, topic_rights
from edge.features.pubsub.service import nodes as node_service
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.notifications import NodePurged
from edge.features.pubsub.store import items, nodes, recipients
from edge.features.pubsub.store.nodes import NEW_NODE, Node

UNREADABLE: Final = "unreadable"
"""Name of the refusal of an item whose payload cannot be decoded into events."""

UNLOGGED: Final = "unlogged"
"""Name under which published items are counted from which no events could be read."""

ITEM_EXISTS: Final = "item_exists"
"""Name of the refusal of an item whose ItemID belongs to another item that may not be replaced."""

_NODE_LIMITS: Final = (quota.NODE_LIMITS.source[0], quota.NODE_LIMITS.total[0])

_PUBLISH: Final = Outcome.PUBLISH  # looking up a member of an Enum takes longer

_ITEM_ID_BYTES: Final = 8

_PREPARED_IDS: Final = 256
"""Random ItemIDs that are made at once, because a system call for each takes longer."""

_unused_ids: Final[list[str]] = []

NOTIFICATION_OVERHEAD: Final = 512
"""Approximate size of a notification without its payload, in bytes."""

MATCHES: Final = 2048
"""Maximum pairs of a filter of `[[readings]]` and a node for which it is remembered whether the
filter matches: each publication asks this twice."""

_NOT_LOGGED: Final = Contents([])
"""The events in an item that is not logged."""

_NO_PRECONDITIONS: Final[Mapping[str, Sequence[str]]] = {}


class ItemEvents(NamedTuple):
    """Events of an item's payload, as pairs of a lane and an event.

    If the item was sent in a message, `qos` is the message's quality of service and `since` the
    service second at which its custody began; otherwise both are `None`.
    """

    events: Sequence[tuple[str, NewEvent]] = ()
    qos: int | None = None
    since: float | None = None


NO_EVENTS: Final = ItemEvents()


class NewItem(NamedTuple):
    """Item to publish: ItemID, payload as bytes (empty if there is none), events to write to the
    event log (none if the node's items are not logged), and further attributes."""

    id: str
    payload: bytes = b""
    logged: ItemEvents = NO_EVENTS
    attributes: ItemAttributes = NO_ATTRIBUTES


class Publication(NamedTuple):
    """A request to publish an item.

    Attributes:
        preconditions: required values of the node's options, by registered name (`pubsub#...`); if
            the publication creates the node, the new node gets these values.
        unreadable: why the payload cannot be decoded into events; empty if it can be, or if the
            node's items are not logged.
    """

    node: str
    shape: PublicationShape
    item: NewItem
    options: ItemOptions = DEFAULT_OPTIONS
    preconditions: Mapping[str, Sequence[str]] = _NO_PRECONDITIONS
    unreadable: str = ""


def publish(context: Context, tx: Transaction, sender: Sender, request: Publication) -> None:
    """Publish an item. A refusal raises `PubsubError` and publishes nothing; it is logged if the
    payload is unreadable, a limit would be exceeded, or the ItemID belongs to another item."""
    try:
        node = find_target(context, tx, sender, request.node, request.preconditions)
    except PubsubError as error:
        if error.rule is not None:
            refusals.log(context, tx, sender, error.rule)
        raise
    fault = find_fault(request.shape, node.config, request.item.attributes)
    if fault is not None:
        raise PubsubError(fault.reason, fault.text)
    if request.unreadable:
        refusals.log(context, tx, sender, UNREADABLE)
        raise PubsubError(Reason.UNREADABLE_PAYLOAD, request.unreadable)
    if request.options != DEFAULT_OPTIONS and not node.config.queueing:
        raise PubsubError(
            Reason.PRECONDITION_NOT_MET,
            f"{PRIORITY}, {DELAY} and {TTL} require a queue node (pubsub#queueing)",
        )
    item = request.item
    try:
        if is_repeated(context, tx, sender, node, item):
            return
    except PubsubError:
        refusals.log(context, tx, sender, ITEM_EXISTS)
        raise
    room = check_room(context, tx, sender, node, item)
    exceeded = room.exceeded
    if exceeded is None and not node.config.queueing:  # the check of a queue has the database
        exceeded = space.reserve(tx, room.size, context.limits)
    if exceeded is not None:
        refusals.log(context, tx, sender, exceeded.name, exceeded.value)
        is_of_nodes = exceeded.name in _NODE_LIMITS
        reason = Reason.TOO_MANY_NODES if is_of_nodes else Reason.LIMIT_EXCEEDED
        raise PubsubError(reason, exceeded.text)
    put(context, tx, sender, node, item, request.options, room)


def is_shipped(context: Context, node: str) -> bool:
    """Return whether `[uplink] topics` or a table `[[readings]]` selects a node, by name, so that
    its items are logged."""
    return _is_uplink_topic(context, node) or has_reading_rule(context, node)


def has_reading_rule(context: Context, node: str) -> bool:
    """Return whether a table `[[readings]]` selects a node, by name."""
    return _reading_rule(context, node) is not None


def _is_uplink_topic(context: Context, node: str) -> bool:
    filters = context.uplink.topics  # usually none
    return bool(filters) and topics.matches_any(filters, node)


def _reading_rule(context: Context, node: str) -> Readings | None:
    for rule in context.readings:
        if _matches(rule.filter, node):
            return rule
    return None


_matches: Final = lru_cache(maxsize=MATCHES)(topics.matches)


def read_events(context: Context, node: str, payload: bytes, content_type: str) -> Contents:
    """Return the events in a payload that is no XML, or why it cannot be decoded; nothing if it is
    empty, or the node's items are not logged."""
    if not payload:
        return _NOT_LOGGED
    rule = _reading_rule(context, node)
    if rule is not None:
        return decoders.decode_by_rule(rule, node, payload)
    if _is_uplink_topic(context, node):
        return decoders.decode(payload, content_type)
    return _NOT_LOGGED


def log_unlogged(context: Context, tx: Transaction, sender: Sender, node: str, reason: str) -> None:
    """Log that no events could be read from a published item; if this happens often, log the first
    reason and count the others."""
    refusals.log(context, tx, sender, UNLOGGED, text=f"{node}: {reason}")


def new_item_id() -> str:
    """Return a random ItemID."""
    try:
        return _unused_ids.pop()
    except IndexError:
        size, text = 2 * _ITEM_ID_BYTES, secrets.token_hex(_ITEM_ID_BYTES * _PREPARED_IDS)
        _unused_ids.extend(text[at : at + size] for at in range(size, len(text), size))
        return text[:size]


def find_target(
    context: Context,
    tx: Transaction,
    sender: Sender,
    name: str,
    preconditions: Mapping[str, Sequence[str]] = _NO_PRECONDITIONS,
) -> Node:
    """Return the node to publish to; if it does not exist and may be created, its `id` is
    `NEW_NODE`.

    Args:
        preconditions: required values of the node's options, by registered name (`pubsub#...`).

    Raises:
        PubsubError: the node does not exist, the sender may not publish to it, or a precondition is
            not met (sections 7.1.3 and 7.1.5). The refusal by a rule is to be logged by the caller,
            under the error's `rule`.
    """
    known: Node | None = None if preconditions else recipients.target(tx, name, sender.full)
    if known is not None and known.id == NEW_NODE:
        return known
    node = nodes.get(tx, name)
    if node is not None and known is not None:
        return node
    topic_rights.check(context, tx, sender, Right.PUBLISH, name)
    if node is None:
        config = node_service.auto_created(context, sender, name)
        if config is None:
            raise PubsubError(Reason.NODE_NOT_FOUND)
        node_service.check_new(context, name, sender.bare)
        node = Node(NEW_NODE, name, sender.bare, config, 0, 0)
    else:
        access.check_publish(tx, node, sender)
    if preconditions:
        config = _apply_preconditions(context, node.config, preconditions)
        if node.id == NEW_NODE:
            return node._replace(config=config)
        if config != node.config:
            raise PubsubError(Reason.PRECONDITION_NOT_MET)
    recipients.keep_target(tx, node.id, name, sender.full, node)
    return node


def _apply_preconditions(
    context: Context, config: NodeConfig, preconditions: Mapping[str, Sequence[str]]
) -> NodeConfig:
    try:
        return node_config.apply_options(config, preconditions, context.limits.items_per_node)
    except InvalidOption as error:
        raise PubsubError(Reason.PRECONDITION_NOT_MET, str(error)) from None


def is_repeated(
    context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem
) -> bool:
    """Return whether an item is a repetition, which changes nothing: its queue has the same item of
    the same publisher, and this item waits or is locked.

    Args:
        node: the node, from `find_target`.

    Raises:
        PubsubError: the ItemID belongs to an item that the sender may not replace.
    """
    outcome = _outcome(context, tx, sender, node, item)
    if outcome is _PUBLISH:
        return False
    if outcome is Outcome.CONFLICT:
        raise PubsubError(Reason.ITEM_EXISTS, rule=ITEM_EXISTS)
    if outcome is Outcome.FORBIDDEN:
        text = "you may not replace the item with this ItemID"
        raise PubsubError(Reason.FORBIDDEN, text, ITEM_EXISTS)
    return outcome is Outcome.UNCHANGED


def _outcome(
    context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem
) -> Outcome:
    found: ExistingItem | None = None
    if node.id == NEW_NODE:
        return _PUBLISH
    if node.config.queueing:
        found = queueing.of(context).existing_item(
            tx, sender, node, item.id, item.payload, item.attributes.content_type
        )
    elif node.items and (author := items.author(tx, node.id, item.id)) is not None:
        found = ExistingItem(Existing.STORED, author == sender.bare)
    if found is None:
        return _PUBLISH
    may_delete = may_manage_nodes(sender) or affiliation.may_delete_item(
        access.affiliation_of(tx, node, sender.bare), own=found.is_own
    )
    return decide(found.state, may_delete=may_delete, same=found.is_same)


class Room(NamedTuple):
    """Result of `check_room`: the limit that an item would exceed, if any, the queue numbers of the
    shares that get the item, and the bytes charged for it if the node is not a queue."""

    exceeded: ExceededLimit | None
    shares: Sequence[int]
    size: int = 0


def check_room(
    context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem
) -> Room:
    """Return which limit an item would exceed (of the event log, of nodes, of stored items, of
    notifications, or of a queue), and the shares that get the item.

    If the queue of one matching share is full, nothing is published, so that no share misses items.
    """
    config, exceeded, size = node.config, None, 0
    is_queue = config.queueing
    shares = () if is_queue else notifications.matching_shares(context, tx, node)
    if item.logged.events:
        exceeded = eventlog.exceeded_limit(context, tx, item.logged.events)
    if exceeded is None and node.id == NEW_NODE and _needs_node(config, item):
        exceeded = node_service.exceeded_limit(context, tx, sender.bare)
    if exceeded is None and not is_queue:
        size = _stored_size(sender, item)
        if _is_kept(config, item.payload, item.attributes):
            exceeded = _exceeded_storage_limit(context, tx, sender, node, item, size)
        if exceeded is None and config.deliver_payloads:
            exceeded = _exceeded_notification_limit(context, tx, node, size)
    if exceeded is None and (is_queue or shares):
        exceeded = queueing.of(context).exceeded_limit(
            context, tx, sender, node, item.id, item.payload, item.attributes, shares
        )
    return Room(exceeded, shares, size)


def _stored_size(sender: Sender, item: NewItem) -> int:
    id, payload, _events, attributes = item
    return charge(items.OVERHEAD, id, sender.full, payload, attributes)


def _exceeded_storage_limit(
    context: Context, tx: Transaction, sender: Sender, node: Node, item: NewItem, size: int
) -> ExceededLimit | None:
    limits, total = context.limits, items.total(tx)
    number, used = total
    if quota.has_room_for_all(
        number + 1, limits.items_per_source, limits.items
    ) and quota.has_room_for_all(used + size, limits.items_bytes_per_source, limits.items_bytes):
        return None
    most = StoreUsage(
        Usage(limits.items_per_source, limits.items_bytes_per_source),
        Usage(limits.items, limits.items_bytes),
    )
    added = Usage(1, size)
    known, growth = StoreUsage(items.usage_of(tx, sender.bare), total), StoreUsage(added, added)
    if quota.exceeded_store_limit(quota.ITEM_LIMITS, growth, known, most) is None:
        return None
    most_items = _max_items(context, node, item.attributes)
    own, all_ = items.usage_replaced(tx, node.id, item.id, most_items, sender.bare)
    growth = StoreUsage(
        Usage(1 - own.messages, size - own.bytes), Usage(1 - all_.messages, size - all_.bytes)
    )
    return quota.exceeded_store_limit(quota.ITEM_LIMITS, growth, known, most)


def _exceeded_notification_limit(
    context: Context, tx: Transaction, node: Node, size: int
) -> ExceededLimit | None:
    """Return the memory limit that all notifications of an item of `size` bytes together would
    exceed, or `None`. Recipients are counted only if the largest permitted number of them would
    exceed the limit."""
    limits = context.limits
    maximum = limits.unacknowledged_total_bytes
    size += NOTIFICATION_OVERHEAD
    if size * limits.subscriptions <= maximum:
        return None
    if size * len(notifications.recipients(context, tx, node)) <= maximum:
        return None
    return ExceededLimit("unacknowledged_total_bytes", maximum)


def _is_kept(config: NodeConfig, payload: bytes, attributes: ItemAttributes) -> bool:
    """Return whether a node that is not a queue keeps an item: if it keeps items, and the
    publication leaves that to the node, or asks to retain the item and has a payload."""
    if attributes is NO_ATTRIBUTES or not config.persist_items:
        return config.persist_items
    return attributes.retain is None or (attributes.retain and bool(payload))


def _needs_node(config: NodeConfig, item: NewItem) -> bool:
    """Return whether a publication creates its node if that does not exist. One that says that its
    item is not to be retained, or deletes the retained item, needs none."""
    return item.attributes.retain is None or _is_kept(config, item.payload, item.attributes)


def _max_items(context: Context, node: Node, attributes: ItemAttributes) -> int:
    """Return how many items a node keeps with an item: a retained item replaces all others."""
    if attributes is not NO_ATTRIBUTES and attributes.retain:
        return 1
    return min(node.config.max_items, context.limits.items_per_node)


ITEM_PUBLISHED: Final = Event[
    [Context, Transaction, Node, Sender, NewItem, ItemOptions, Sequence[int]]
]()
"""Event of a published item, with its options and the queue numbers of the shares that get it; its
handlers run in the transaction of the publication."""


def put(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    item: NewItem,
    options: ItemOptions = DEFAULT_OPTIONS,
    room: Room | None = None,
) -> None:
    """Publish an item that has passed the checks of rights, node configuration and limits.

    Args:
        node: the node, from `find_target`.
        room: what `check_room` has found; if `None`, it is looked up.
    """
    if node.id == NEW_NODE and _needs_node(node.config, item):
        node = node_service.create(context, tx, node.name, sender.bare, node.config)
        room = None
    config, shares = node.config, () if room is None else room.shares
    if item.logged.events:
        logged, qos, since = item.logged
        eventlog.write(tx, logged, sender.full, qos, since, node.name)
    if not config.queueing:
        id, payload, _events, attributes = item
        _content_type, _qos, retain, expiry, _properties = attributes
        publisher, expires = sender.full, None
        if config.item_expire or expiry is not None:
            expires = _expires(tx, config.item_expire, expiry)
        if _is_kept(config, payload, attributes):
            size = _stored_size(sender, item) if room is None else room.size
            excess = node.items + 1 - _max_items(context, node, attributes)
            items.put(tx, node.id, id, publisher, payload, size, expires, excess, attributes)
        notifications.announce_item(context, tx, node, id, payload, publisher, attributes, expires)
        if retain and not payload and node.items and items.purge(tx, node.id):
            notifications.announce(context, tx, node, NodePurged(node.name))
        if room is None:
            shares = notifications.matching_shares(context, tx, node)
    context.hooks.trigger(ITEM_PUBLISHED, context, tx, node, sender, item, options, shares)


def _expires(tx: Transaction, ttl: int, expiry: float | None) -> float:
    """Return the service second at which an item expires: by its node, unless `ttl` is 0, or by its
    publication, unless `expiry` is `None`."""
    return tx.now.service + (ttl if expiry is None else min(ttl or expiry, expiry))
