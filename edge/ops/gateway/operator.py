"""Perform requests of the operator: send messages, manage nodes, take items of queues.

The gateway performs each request of `operator_requests` as one unit of work in the name of the
operator (`access.operator`). A message at level 1 or 2 is not taken into custody, because it
reaches its destination in the transaction of the request.
"""

from __future__ import annotations

from typing import Final

from edge import jid, topics
from edge.engine.dispatch import addresses, destinations
from edge.engine.dispatch.destinations import NO_DESTINATION, Rejection
from edge.engine.dispatch.hooks import Context, Message, UnreadablePayload
from edge.engine.log import refusals
from edge.engine.rules import access, quota, space_rules
from edge.engine.store import events, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.errors import ServiceError
from edge.features.accounts import service as accounts
from edge.features.messages import service as messages
from edge.features.messages.rules import MessageType
from edge.features.messages.service import NO_ROOM, NOBODY_THERE, AccountMessage
from edge.features.pubsub.rules import publication
from edge.features.pubsub.rules.node_config import DEFAULT
from edge.features.pubsub.rules.publication import PublicationShape
from edge.features.pubsub.service import nodes, publishing
from edge.features.pubsub.service.publishing import ItemEvents, NewItem, Publication
from edge.features.queues.service import admin
from edge.features.queues.store import overview
from edge.features.queues.store.overview import Overview
from edge.ops import component_mode
from edge.ops.gateway.operator_requests import (
    Answer,
    ConfigureNode,
    CreateNode,
    DeleteNode,
    FinishItem,
    ItemReport,
    Listen,
    RequestRefused,
    SendMessage,
    TakeItem,
    Work,
)
from edge.topics import InvalidFilter

_ACCOUNT: Final = addresses.AddressKind.ACCOUNT

_DONE: Final = Answer()

_UNREACHABLE: Final = {
    NOBODY_THERE: "it has no available session, and the message is not stored",
    NO_ROOM: "its session has too many unacknowledged messages; try again later",
}
"""Error texts for refused plain messages, by the rule that refused. Other rules are limits."""


def check_listen(context: Context, request: Listen) -> tuple[str, ...]:
    """Return the filters of a request; raises `RequestRefused` if one is invalid, or if the gateway
    is a component."""
    _check_offered(context, "listen")
    for text in request.filters:
        try:
            topics.check_filter(text)
        except InvalidFilter as error:
            raise RequestRefused(f"{text}: {error}") from None
    return tuple(request.filters)


def _check_offered(context: Context, command: str) -> None:
    if not context.has_accounts:
        raise RequestRefused(component_mode.refusal(command))


def perform(context: Context, tx: Transaction, request: Work) -> Answer:
    """Perform a request. If it is refused, return the reason; an event that logs this is kept."""
    try:
        if isinstance(request, SendMessage):
            _send(context, tx, request)
            return _DONE
        _check_offered(context, "queue" if isinstance(request, TakeItem | FinishItem) else "node")
        if isinstance(request, TakeItem):
            return _take(tx, request)
        if isinstance(request, FinishItem):
            admin.finish(context, tx, _queue(tx, request.node), request.item)
        else:
            _manage_node(context, tx, request)
    except (ServiceError, RequestRefused, UnreadablePayload) as error:
        return Answer(str(error))
    return _DONE


# Messages


def _send(context: Context, tx: Transaction, request: SendMessage) -> None:
    if request.to != context.domain:
        service = addresses.pubsub_service(context.domain)
        at_service = request.to.partition("/")[0] == service
        _check_offered(context, "send --node" if at_service else "send --to")
    body = request.message.encode()
    if request.qos not in (0, 1, 2):
        raise RequestRefused(f"{request.qos} is not a level of quality of service: 0, 1 or 2")
    if len(body) > context.limits.stanza_bytes:
        raise RequestRefused(
            f"the message has {len(body)} bytes; limits.stanza_bytes is"
            f" {context.limits.stanza_bytes}"
        )
    read = context.hooks.operator_messages.get(request.protocol)
    if read is None:
        raise RequestRefused(
            f"the gateway does not read messages of the protocol {request.protocol}"
        )
    kind = addresses.classify(context.domain, request.to, "")
    is_plain = request.qos == 0 and kind not in addresses.SERVICES and not request.options
    to = jid.parse(request.to).full if is_plain else request.to
    message: AccountMessage = read(body, access.operator(context.domain).full, to)
    if request.options:
        _publish(context, tx, request, body)
    elif is_plain:
        _send_plain(context, tx, message)
    else:
        _hand_over(context, tx, request, body)


def _find_fault(tx: Transaction, name: str) -> str:
    """Return why an account gets no messages; other senders are not told whether it exists."""
    if accounts.status(tx, name) is None:
        return "there is no such account; `fieldpost device list` lists all"
    return "the account is revoked; a new password or certificate restores it"


def _send_plain(context: Context, tx: Transaction, message: AccountMessage) -> None:
    if message.kind is MessageType.ERROR:
        raise RequestRefused("a message of type error is an answer and cannot be sent")
    sender, address = access.operator(context.domain), jid.parse(message.to)
    refusal = messages.send(context, tx, sender, address, message)
    if refusal is not None:
        refusals.log(context, tx, sender, refusal.rule, refusal.figure)
        reason = _UNREACHABLE.get(refusal.rule, "")
        if refusal.rule == NO_DESTINATION:
            reason = _find_fault(tx, address.local)
        elif not reason:
            reason = _limit(context, tx, refusal.rule, refusal.figure)
        raise RequestRefused(f"{address.full} cannot be reached: {reason}")


def _hand_over(context: Context, tx: Transaction, request: SendMessage, body: bytes) -> None:
    destination, to = destinations.find(context, request.to, jid.parse)
    sender = access.operator(context.domain)
    message = Message(sender, to, body, quota.charge("", body), request.qos)
    rejection = destinations.hand_over(context, tx, destination, message)
    if rejection is not None:
        refusals.log(context, tx, sender, rejection.rule, rejection.figure)
        is_account = addresses.kind_of(context.domain, to) is _ACCOUNT
        if rejection.rule == NO_DESTINATION and is_account:
            raise RequestRefused(f"{request.to}: {_find_fault(tx, to.local)}")
        raise RequestRefused(f"{request.to}: {_reason(context, tx, rejection)}")


def _publish(context: Context, tx: Transaction, request: SendMessage, body: bytes) -> None:
    sender = access.operator(context.domain)
    destination, to = destinations.find(context, request.to, jid.parse)
    message = Message(sender, to, body, len(body), request.qos)
    contents = destinations.read(context, destination, message)
    if contents.item is None:
        raise RequestRefused(contents.unreadable or "options of an item require a queue node")
    try:
        options, _ = publication.split_options({n: [v] for n, v in request.options.items()})
    except publication.InvalidItemOption as error:
        raise RequestRefused(str(error)) from None
    item = contents.item
    shape = PublicationShape(1, 1 if item.payload else 0, item.namespace)
    id = item.id or publishing.new_item_id()
    new = NewItem(id, item.payload, ItemEvents(contents.events), item.attributes)
    publishing.publish(context, tx, sender, Publication(to.resource, shape, new, options))


def _reason(context: Context, tx: Transaction, rejection: Rejection) -> str:
    if rejection.error is not None:
        return str(rejection.error)
    if rejection.figure is not None:
        return _limit(context, tx, rejection.rule, rejection.figure)
    return rejection.text or rejection.rule


def _limit(context: Context, tx: Transaction, rule: str, figure: int | None) -> str:
    """Return which limit is reached; for a full disk or database, also how far, and the remedy."""
    over = space.exceeded_limit(tx, space_rules.MESSAGE_ROOM, context.limits)
    if over is not None and over.name == rule:
        bounds = space.space_limits(context.limits)
        return "; ".join(space_rules.shortage(space.measure(tx), bounds, over))
    return f"the limit {rule} = {figure} is reached"


# Nodes


def _manage_node(
    context: Context, tx: Transaction, request: CreateNode | ConfigureNode | DeleteNode
) -> None:
    sender = access.operator(context.domain)
    if isinstance(request, CreateNode):
        owner = _owner(context, tx, request.owner) if request.owner else context.domain
        config = nodes.apply_options(context, DEFAULT, request.options)
        nodes.create(context, tx, request.node, owner, config)
        event = NewEvent("node", topic=request.node, name="created", level="Notice")
        events.append(tx, events.SYSTEM, event)
    elif isinstance(request, ConfigureNode):
        nodes.configure(context, tx, sender, request.node, request.options)
    else:
        nodes.delete(context, tx, sender, request.node)


def _owner(context: Context, tx: Transaction, owner: str) -> str:
    """Return the bare JID of a node's owner; raises `RequestRefused` if there is none."""
    try:
        address = jid.parse(owner)
        if addresses.kind_of(context.domain, address) is not _ACCOUNT:
            raise RequestRefused(f"owner {owner} is not the address of a device")
    except jid.AddressError as error:
        raise RequestRefused(f"owner {owner}: {error}") from None
    if accounts.status(tx, address.local) is None:
        raise RequestRefused(f"owner {owner}: there is no such account")
    return address.bare


# Items of queues


def _queue(tx: Transaction, node: str) -> Overview:
    found = overview.of_node(tx, node)
    if found is None:
        raise RequestRefused(f"there is no queue node {node}; see `fieldpost queue list`")
    return found


def _take(tx: Transaction, request: TakeItem) -> Answer:
    found = admin.take(tx, _queue(tx, request.node))
    if found is None:
        return _DONE
    item, body, content_type = found
    report = ItemReport(item.node, item.item, item.publisher, body, item.deliveries, content_type)
    return Answer(item=report)
