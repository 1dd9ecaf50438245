"""Notify subscribers of events at a node (XEP-0060, sections 7.1.2, 7.2 and 8.2 to 8.5).

Each plain subscription (to a node or filter, not to a queue or share) gets one notification. If
several subscriptions of a JID match, each notification has a SubID; but those to items alone get
an item once, at the highest of their levels. At QoS 0 a notification is a
plain message. At QoS 1 and 2 it waits in the outbox of the subscriber's account, and is kept in
order with the others of its subscription. A subscription to a filter gets only events of nodes that
the subscriber may access; access is checked each time, so a withdrawn right has effect at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.encoding import pack
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.dispatch.item_attributes import ItemAttributes, Properties
from edge.engine.log.refusals import log_source
from edge.engine.rules.quota import ExceededLimit, charge
from edge.engine.sessions import sessions
from edge.engine.store import in_flight
from edge.engine.store.database import Receipt, Transaction
from edge.features.accounts import service as accounts
from edge.features.messages import rules
from edge.features.messages.rules import Outcome
from edge.features.messages.service import NOBODY_THERE, AccountMessage, deliver
from edge.features.outbox import service as outbox
from edge.features.outbox.service import OutgoingMessage
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.rules.subscription import DeliveryOptions
from edge.features.pubsub.service.access import access_check, may_cache_access, may_subscribe
from edge.features.pubsub.service.item_publisher import named_publisher
from edge.features.pubsub.store import affiliations, items, nodes, retained, subscriptions
from edge.features.pubsub.store import recipients as store
from edge.features.pubsub.store.items import StoredItem
from edge.features.pubsub.store.nodes import NEW_NODE, Node
from edge.features.pubsub.store.recipients import Readers
from edge.features.pubsub.store.subscriptions import Subscription
from edge.topics import matches, matches_any

LAST_ITEMS: Final = "last_items"
"""Name of the refusal of last items to a new subscription that matches too many nodes."""

BYTES_DIVISOR: Final = 4
"""Divisor of `limits.unacknowledged_bytes`: the quotient is the maximum size of the last items that
a new subscription gets at once, in bytes."""

RETAINED_RECEIPT: Final = "retained"
"""`Receipt.kind` of a last item sent at QoS 0; its number is the item's position."""


class ItemPublished(Struct, frozen=True, array_like=True, tag="published"):
    """An item was published.

    `item_id` is `None` if the node stores no items and sends no payloads, `payload` is empty if it
    sends none, and `publisher` is the bare JID that the item names as its publisher, or `None`. The
    item expires at the service second `expires`. `content_type` and `properties` are those of the
    publication (`ItemAttributes`). `retain` is whether the item is sent because it is kept or, if
    the subscription asks for that, whether the publication asked to retain it.
    """

    node: str
    item_id: str | None
    payload: bytes
    publisher: str | None = None
    content_type: str = ""
    expires: float | None = None
    properties: Properties = ()
    retain: bool = False


class ItemRetracted(Struct, frozen=True, array_like=True, tag="retracted"):
    """An item was deleted."""

    node: str
    item_id: str


class NodePurged(Struct, frozen=True, array_like=True, tag="purged"):
    """All items of a node were deleted."""

    node: str


class NodeDeleted(Struct, frozen=True, array_like=True, tag="deleted"):
    """A node was deleted; `redirect` is the URI of its replacement, empty if there is none."""

    node: str
    redirect: str


class NodeConfigured(Struct, frozen=True, array_like=True, tag="configured"):
    """The configuration of a node changed; `config` is the new one, `None` if it is not sent."""

    node: str
    config: NodeConfig | None


class SubscriptionChanged(Struct, frozen=True, array_like=True, tag="subscription"):
    """A subscription was begun or ended by somebody other than its subscriber."""

    node: str
    jid: str
    subid: str
    subscribed: bool


NodeEvent: TypeAlias = (
    ItemPublished | ItemRetracted | NodePurged | NodeDeleted | NodeConfigured | SubscriptionChanged
)
"""An event of a node. Rows store its fields behind its tag (`Hooks.store`)."""


class Recipient(NamedTuple):
    """A subscription to notify, or several of a JID that get an item once.

    Attributes:
        subscription: of several, the first with the highest quality of service.
        subid: is set if several subscriptions of the JID are notified, each for itself.
        identifiers, retain_as_published: of all (`DeliveryOptions`).
        no_local: whether `own` takes its place if the JID itself publishes; `None` is nobody.
    """

    subscription: Subscription
    subid: str | None
    identifiers: tuple[int, ...]
    retain_as_published: bool
    no_local: bool
    own: Recipient | None

    @property
    def size(self) -> int:
        """Return its size in the cache."""
        return 1 + len(self.identifiers) // 16 + (0 if self.own is None else self.own.size)


class Notification(NamedTuple):
    """A message that notifies one subscription of an event.

    Attributes:
        to: the JID of the recipient; `None` if the outbox adds the address later.
        type: the type of the message; `None` means `normal`.
        subid: the SubID, if the JID has several subscriptions that get the notification.
        published: the time of publication (ms since 1970) if an older item is sent to a new
            subscription.
        identifiers: those of the subscriptions that get it (`DeliveryOptions`).
    """

    event: NodeEvent
    to: str | None
    type: str | None = None
    subid: str | None = None
    published: int | None = None
    identifiers: tuple[int, ...] = ()


def is_notified(config: NodeConfig, event: NodeEvent) -> bool:
    """Return whether a node's configuration enables notifications of an event."""
    if isinstance(event, NodeConfigured):
        return config.notify_config
    if isinstance(event, NodeDeleted):
        return config.notify_delete
    return config.notify_retract


def recipients(context: Context, tx: Transaction, node: Node) -> Sequence[Recipient]:
    """Return the subscriptions, not of shares, to a node or to a matching filter that get the
    node's events: `deliver` is set, and the subscriber may subscribe to the node."""
    found = store.get(tx, node.name)
    if found is None:
        of_node = store.readers(tx, node.name) or _readers(tx, node)
        matching = subscriptions.bundles_matching(tx, node.name)
        by_jid = _notified(context, tx, node, of_node, matching.subscriptions)
        found = _recipients(by_jid.values())
        if may_cache_access(node):
            size = sum(one.size for one in found)
            store.keep(tx, node.id, node.name, of_node, matching, found, size)
    return found


def _readers(tx: Transaction, node: Node) -> Readers:
    if node.id == NEW_NODE:
        return Readers((), {})
    subscribed = subscriptions.plain_of_node(tx, node.id)
    return Readers(subscribed, affiliations.of_node(tx, node.id))


def _notified(
    context: Context,
    tx: Transaction,
    node: Node,
    of_node: Readers,
    matching: Sequence[Subscription],
) -> Mapping[str, Sequence[Subscription]]:
    """Return, by JID, the subscriptions to the node and to filters (`matching`) that get the node's
    events."""
    found: dict[str, list[Subscription]] = {}
    for subscribed in (of_node.subscriptions, matching):
        for one in subscribed:
            if one.options.deliver:
                found.setdefault(one.jid, []).append(one)
    if not found:
        return found
    has_access = access_check(context, tx, node, of_node.affiliations)
    return {jid: subscribed for jid, subscribed in found.items() if has_access(jid)}


def _recipients(by_jid: Iterable[Sequence[Subscription]]) -> Sequence[Recipient]:
    found: list[Recipient] = []
    for subscribed in by_jid:
        if len(subscribed) == 1:
            found.append(_recipient(subscribed, None))
            continue
        apart = [one for one in subscribed if not one.options.delivery.only_items]
        found += [_recipient((one,), one.subid) for one in apart]
        if len(apart) < len(subscribed):
            together = [one for one in subscribed if one.options.delivery.only_items]
            found.append(_recipient(together, None))
    return found


def _recipient(found: Sequence[Subscription], subid: str | None) -> Recipient:
    """Return the recipient for a subscription, or for several of a JID together."""
    kinds = {id(one.options): one for one in reversed(found)}  # the first of each, last first
    options = [one.options.delivery for one in kinds.values()]
    first = max(kinds.values(), key=lambda one: (one.options.qos, -one.id))
    as_published = any(one.retain_as_published for one in options)
    no_local, own = any(one.no_local for one in options), None
    if no_local and (others := [one for one in found if not one.options.delivery.no_local]):
        own = _recipient(others, subid)
    numbers: tuple[int, ...] = ()
    if any(one.identifier for one in options):
        numbers = identifiers([one.options.delivery for one in found])
    return Recipient(first, subid, numbers, as_published, no_local, own)


def matching_shares(context: Context, tx: Transaction, node: Node) -> list[int]:
    """Return the queue numbers of the shares that get items of a node: the filter of the share
    matches the node's name, and at least one member may subscribe to the node."""
    return [
        queue
        for queue in subscriptions.shares_matching(tx, node.name)
        if any(may_subscribe(context, tx, node, m) for m in subscriptions.member_jids(tx, queue))
    ]


def announce(
    context: Context, tx: Transaction, node: Node, event: NodeEvent, *, always: bool = False
) -> None:
    """Send a node's event that is no published item to `recipients`, if the node's configuration or
    `always` enables that."""
    if not (always or is_notified(node.config, event)):
        return
    type_ = _message_type(node.config)
    for recipient in recipients(context, tx, node):
        subscription, subid = recipient.subscription, recipient.subid
        if subscription.options.delivery.only_items:
            continue
        send(context, tx, subscription, Notification(event, subscription.jid, type_, subid))


def announce_item(
    context: Context,
    tx: Transaction,
    node: Node,
    item_id: str,
    payload: bytes,
    publisher: str,
    attributes: ItemAttributes,
    expires: float | None,
) -> None:
    """Send a published item to `recipients`, if the node's configuration enables that, each at the
    quality of service of the subscription, but at most at that of the publication.

    Args:
        publisher: the full JID that published the item.
        expires: the service second at which the item expires, if it does.
    """
    found = recipients(context, tx, node) if node.config.deliver_notifications else ()
    if not found:
        return
    event = published(tx, node, item_id, payload, publisher, attributes, expires)
    qos, retain, type_ = attributes.qos, bool(attributes.retain), _message_type(node.config)
    if any(one.subscription.options.delivery.only_items for one in found):
        _send_retained_before(context, tx, node)
    as_retained = replace(event, retain=True) if retain else event
    publishers = publisher, publisher.partition("/")[0]
    for each in found:
        jid = each.subscription.jid
        recipient = each.own if each.no_local and jid in publishers else each
        if recipient is None:
            continue
        subscription, subid, own_identifiers, as_published, _no_local, _own = recipient
        sent = as_retained if as_published else event
        notification = Notification(sent, jid, type_, subid, None, own_identifiers)
        send(context, tx, subscription, notification, qos)


def identifiers(options: Sequence[DeliveryOptions]) -> tuple[int, ...]:
    """Return the identifiers of subscriptions that have one."""
    return tuple([one.identifier for one in options if one.identifier])


def _is_excluded(subscription: Subscription, publisher: str) -> bool:
    """Return whether a subscription does not get an item because the subscriber published it."""
    if not subscription.options.delivery.no_local:
        return False
    return subscription.jid in (publisher, publisher.partition("/")[0])


def notify_changed(
    context: Context, tx: Transaction, subscription: Subscription, node: str, *, subscribed: bool
) -> None:
    """Notify a subscriber that somebody else began or ended its subscription."""
    if subscription.options.delivery.only_items:
        return
    event = SubscriptionChanged(node, subscription.jid, subscription.subid, subscribed)
    send(context, tx, subscription, Notification(event, subscription.jid))


def send_last_items(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Send the last kept item of a node, or of each node that a filter matches, to a subscription
    (section 6.1.7), in the order of publication.

    A node whose configuration disables that, or to which the subscriber may not subscribe, is left
    out. A filter gets the newest `limits.last_items` items, or fewer if they exceed a part of the
    session's buffer; a refusal is logged if that leaves nodes out.
    """
    if not subscription.options.deliver:
        return
    others = [
        one
        for one in subscriptions.of_account(tx, subscription.account)
        if one.queue is None and one.jid == subscription.jid and one.id != subscription.id
    ]
    for node in reversed(_nodes_with_last_items(context, tx, subscription)):
        item = find_last_item(tx, subscription, node)
        if item is not None:
            subid = subscription.subid if any(_is_to(one, node) for one in others) else None
            notification = _last_item(tx, subscription, node, item, subid)
            send(context, tx, subscription, notification, item.attributes.qos)


def find_last_item(tx: Transaction, subscription: Subscription, node: Node) -> StoredItem | None:
    """Return the last item of a node if a subscription may get it at first."""
    item = _last_kept(tx, node)
    return None if item is None or _is_excluded(subscription, item.publisher) else item


def _last_kept(tx: Transaction, node: Node) -> StoredItem | None:
    item = items.last(tx, node.id) if _sends_last_item(node.config) else None
    if item is None or (item.expires is not None and item.expires <= tx.now.service):
        return None
    return item


def _last_item(
    tx: Transaction, subscription: Subscription, node: Node, item: StoredItem, subid: str | None
) -> Notification:
    id, payload, publisher, attributes = item.id, item.payload, item.publisher, item.attributes
    event = published(tx, node, id, payload, publisher, attributes, item.expires)
    event = replace(event, retain=True)
    to, type_ = subscription.jid, _message_type(node.config)
    own = identifiers((subscription.options.delivery,))
    return Notification(event, to, type_, subid, item.published, own)


def send_last_item(
    context: Context, tx: Transaction, subscription: Subscription, node: Node, item: StoredItem
) -> ExceededLimit | None:
    """Send the last item of a node to the session of a subscription. If the outbox has no room for
    it, send nothing and return the exceeded limit."""
    notification = _last_item(tx, subscription, node, item, None)
    qos = min(subscription.options.qos, item.attributes.qos)
    if qos:
        return _enqueue(context, tx, subscription, notification, qos)
    session = sessions.find(tx, subscription.jid)
    if session is not None:
        receipt = Receipt(RETAINED_RECEIPT, item.position)
        in_flight.begin(tx, receipt, session.generation)
        tx.send(session.generation, notification, receipt)
    return None


def _send_retained_before(context: Context, tx: Transaction, node: Node) -> None:
    """Send the retained item of a node to the subscriptions that are still to get it, before a
    newer item of the node. If the newer one is kept, nobody gets the older one."""
    item = _last_kept(tx, node) if retained.is_any_pending(tx) else None
    if item is None or not (waiting := retained.waiting_for(tx, node.name, item.position)):
        return
    of_node = store.readers(tx, node.name) or _readers(tx, node)
    matching = subscriptions.plain_matching(tx, node.name)
    found = _notified(context, tx, node, of_node, matching)
    for subscription in chain.from_iterable(found.values()):
        if subscription.id not in waiting or _is_excluded(subscription, item.publisher):
            continue
        may_wait = bool(subscription.options.qos and item.attributes.qos)  # for its session
        if not may_wait and sessions.find(tx, subscription.jid) is None:
            continue
        if send_last_item(context, tx, subscription, node, item) is None:
            retained.mark_sent(tx, subscription.id, item.position)


def _nodes_with_last_items(
    context: Context, tx: Transaction, subscription: Subscription
) -> list[Node]:
    """Return the nodes whose last items a new subscription gets, newest item first."""
    limits, filter = context.limits, subscription.filter
    room = limits.unacknowledged_bytes // BYTES_DIVISOR
    found: list[Node] = []
    for name, size in items.newest_of_nodes(tx, subscription.node):
        if filter is not None and not matches(filter, name):
            continue
        node = nodes.get(tx, name)
        if node is None or not _sends_last_item(node.config):
            continue
        if filter is not None and not may_subscribe(context, tx, node, subscription.jid):
            continue
        room -= size
        if found and (room < 0 or len(found) >= limits.last_items):
            log_source(context, tx, subscription.bare, LAST_ITEMS, limits.last_items)
            break
        found.append(node)
    return found


def _sends_last_item(config: NodeConfig) -> bool:
    never = config.send_last_published_item == "never"
    return config.persist_items and not (never or config.queueing)


def _is_to(subscription: Subscription, node: Node) -> bool:
    if subscription.filter is None:
        return subscription.node == node.id
    return matches(subscription.filter, node.name)


def published(
    tx: Transaction,
    node: Node,
    item_id: str,
    payload: bytes,
    publisher: str,
    attributes: ItemAttributes,
    expires: float | None,
) -> ItemPublished:
    """Return the event of a published item, with the payload and the publisher's name only if the
    node's configuration includes them; `publisher` is a full JID."""
    name, config = named_publisher(tx, node, publisher), node.config
    if not config.deliver_payloads:
        id = item_id if config.persist_items else None
        return ItemPublished(node.name, id, b"", name, "", expires)
    content_type, _qos, _retain, _expiry, properties = attributes
    return ItemPublished(node.name, item_id, payload, name, content_type, expires, properties)


def _message_type(config: NodeConfig) -> str | None:
    return None if config.notification_type == "normal" else config.notification_type


# Delivery


def send(
    context: Context,
    tx: Transaction,
    subscription: Subscription,
    notification: Notification,
    max_qos: int = 2,
) -> None:
    """Send a notification to a subscription, at the subscription's quality of service, but at most
    at `max_qos`.

    If the subscriber's outbox is full, the notification is dropped and logged as a refusal; the
    operation that caused the notification succeeds nevertheless.
    """
    qos = subscription.options.qos
    if not (qos and max_qos):
        _send_plain(context, tx, subscription, notification)
        return
    exceeded = _enqueue(context, tx, subscription, notification, min(qos, max_qos))
    if exceeded is not None:
        log_source(context, tx, subscription.bare, exceeded.name, exceeded.value)


def _enqueue(
    context: Context,
    tx: Transaction,
    subscription: Subscription,
    notification: Notification,
    qos: int,
) -> ExceededLimit | None:
    """Add a notification to the outbox; if that has no room, do nothing and return the limit."""
    content = pack(context, notification._replace(to=None))
    only = subscription.jid if "/" in subscription.jid else None
    account, size = subscription.account, charge(only or "", content.body)
    exceeded = outbox.exceeded_limit(context, tx, account, None, size)
    if exceeded is not None:
        return exceeded
    sender = f"{pubsub_service(context.domain)}/{notification.event.node}"
    source = _outbox_source(context, subscription)
    message = OutgoingMessage(source, sender, None, qos, content, size, only)
    outbox.enqueue(context, tx, account, message)
    return None


def _send_plain(
    context: Context, tx: Transaction, subscription: Subscription, notification: Notification
) -> None:
    """Send a notification as a plain message: to the session with the subscribed full JID, or to
    the sessions or offline storage of a bare JID (RFC 6121, section 8)."""
    to = subscription.jid
    if "/" in to:
        session = sessions.find(tx, to)
        if session is None:
            log_source(context, tx, to.partition("/")[0], NOBODY_THERE)
        else:
            tx.send(session.generation, notification)
        return
    available, type_ = sessions.of_account(tx, to), rules.parse_type(notification.type)
    exists = bool(available) or accounts.is_active(tx, subscription.account)
    route = rules.route(type_, available, None, exists=exists)
    if route.outcome is Outcome.ALL:  # headlines
        for one in route.sessions:
            tx.send(one.generation, notification)
        return
    message = as_account_message(context, notification)
    refusal = deliver(context, tx, message, route)
    if refusal is not None:
        log_source(context, tx, to, refusal.rule, refusal.figure)


def as_account_message(context: Context, notification: Notification) -> AccountMessage:
    """Return a notification as a message from the publish-subscribe service to the account."""
    return AccountMessage(
        notification,
        pubsub_service(context.domain),
        notification.to or "",
        rules.parse_type(notification.type),
        storable=True,
        delayed=notification.published is not None,
    )


def _outbox_source(context: Context, subscription: Subscription) -> str:
    """Return the source of a subscription's messages in the outbox. Messages of one source are kept
    in order; those of different sources, and so of different subscriptions, do not delay each
    other."""
    return f"{pubsub_service(context.domain)}/{subscription.subid}"


def drop_waiting(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Drop the waiting notifications of a subscription that has ended, and log their number.

    Notifications in flight are kept until they are acknowledged. If the subscription has the option
    `presence`, only those are kept that its session has received but not completed, or knows by an
    id. An item that was to be sent once for several subscriptions is kept for the others.
    """
    dropped, others = 0, list[str]()
    waiting = outbox.find_by_source(tx, _outbox_source(context, subscription))
    if waiting and subscription.options.delivery.only_items:
        others = _other_filters(tx, subscription)
    for row in waiting:
        is_sent = outbox.is_in_flight(tx, row) and not subscription.options.presence
        is_wanted = others and matches_any(others, row.sender.partition("/")[2])
        if not (row.is_bound or is_sent or is_wanted):
            outbox.remove(tx, row)
            dropped += 1
    text, tags = (
        "Notifications were dropped because their subscription ended.",
        {"subscription": subscription.subid},
    )
    outbox.log_dropped(tx, subscription.jid, dropped, text, tags)


def _other_filters(tx: Transaction, subscription: Subscription) -> list[str]:
    """Return the filters of the JID's other subscriptions to items alone."""
    return [
        one.filter
        for one in subscriptions.of_account(tx, subscription.account)
        if one.filter and one.queue is None and one.options.delivery.only_items
        if one.jid == subscription.jid and one.id != subscription.id
    ]


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.store("notification", Notification)
    hooks.add(hooks.returned, Notification, as_account_message)
