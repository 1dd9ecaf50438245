"""Lines of clients to the features' services, and messages to clients as lines.

The names of the steps are the same in both directions: `publish` at level 1 is answered by
`acknowledged`, at level 2 by `received`, `release` and `completed`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from edge.engine.dispatch import destinations
from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.encoding import unpack
from edge.engine.dispatch.hooks import Context, Hooks, Message, Work
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import MessageBytes, SentMessage, Transaction
from edge.errors import ServiceError
from edge.features.custody import service as custody
from edge.features.custody.service import CustodyError
from edge.features.messages import service as messages
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage, StoredMessage
from edge.features.outbox import rules
from edge.features.outbox import service as outbox
from edge.features.outbox.service import FailureReport, OutboxError, QosRequest, RequestKind
from edge.features.pubsub.rules.subscription import QOS, DeliveryOptions
from edge.features.pubsub.service import subscriptions
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.queues.service.messages import ItemDelivery
from edge.jid import AddressError
from tests.toy.codec import encode

PROTOCOL: Final = "toy"
IDS: Final = 3
DECLARED: Final = Declaration(
    PROTOCOL, adopts=False, resends=False, ordered=True, window=2, ids=IDS
)
"""The declaration of all sessions. Few ids are soon used again."""

_Act = Callable[[Transaction, Sender], bytes]


def _publish(
    context: Context, id: str, qos: str, to: str, content_type: str, payload: bytes
) -> _Act:
    content_type = content_type or "application/octet-stream"  # "" is checked XML (`MessageBytes`)
    attributes = ItemAttributes(content_type, int(qos))
    destination, address = target = destinations.find(context, to)
    request = custody.request(target, payload, None, id if qos == "2" else "", b"", attributes)

    def act(tx: Transaction, sender: Sender) -> bytes:
        if qos == "2":
            custody.offer(context, tx, sender, request)
            return encode("received", id)
        if qos == "1":
            custody.acknowledge(context, tx, sender, request)
            return encode("acknowledged", id)
        refused: destinations.Rejection | messages.Refusal | None
        if address.local:
            content = MessageBytes(payload, "", content_type)
            message = AccountMessage(
                content, sender.full, address.full, MessageType.CHAT, storable=True
            )
            refused = messages.send(context, tx, sender, address, message)
        else:
            published = Message(sender, address, payload, len(payload), 0, attributes=attributes)
            refused = destinations.hand_over(context, tx, destination, published)
        return b"" if refused is None else encode("refused", "publish", id, refused.rule)

    return act


def _release(context: Context, id: str) -> _Act:
    def act(tx: Transaction, sender: Sender) -> bytes:
        custody.deliver(context, tx, sender, id)
        return encode("completed", id)

    return act


def _answer(request: RequestKind, context: Context, id: str) -> _Act:
    number = int(id)

    def act(tx: Transaction, sender: Sender) -> bytes:
        outbox.handle_answer_by_id(context, tx, sender, request, number)
        return b""

    return act


def _subscribe(context: Context, target: str, qos: str) -> _Act:
    subid = secrets.token_hex(8)

    def act(tx: Transaction, sender: Sender) -> bytes:
        if not access.may_use_services(sender, context.trusted_domains):
            return encode("refused", "subscribe", target, destinations.UNTRUSTED)
        to, delivery = subscriptions.parse_target(context, target), DeliveryOptions(only_items=True)
        values = {QOS: [qos]}
        subscriptions.subscribe(context, tx, sender, to, sender.full, values, subid, delivery)
        return encode("subscribed", target)

    return act


def _unsubscribe(context: Context, target: str) -> _Act:
    def act(tx: Transaction, sender: Sender) -> bytes:
        to = subscriptions.parse_target(context, target)
        subscriptions.unsubscribe(context, tx, sender, to, sender.full)
        return encode("unsubscribed", target)

    return act


_HANDLERS: Final[Mapping[str, Callable[..., _Act]]] = {
    "publish": _publish,
    "release": _release,
    "acknowledged": partial(_answer, RequestKind.ACKNOWLEDGED),
    "received": partial(_answer, RequestKind.ASSURED),
    "completed": partial(_answer, RequestKind.DELIVER),
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
}


def work(context: Context, words: list[bytes]) -> Work:
    """Return the unit of work of a line; raises `KeyError`, `TypeError` or `ValueError` if the line
    is malformed."""
    name, id, *rest = (word.decode() for word in words[:5])
    act = _HANDLERS[name](context, id, *rest, *words[5:])

    def run(tx: Transaction, sender: Sender) -> bytes:
        try:
            return act(tx, sender)
        except ServiceError as error:
            mapped = context.hooks.error_mappings[PROTOCOL, type(error)]
            return encode("refused", name, id, mapped(error))

    return run


def become_available(context: Context, tx: Transaction, sender: Sender) -> bytes:
    """Let a session accept the messages of its account; the work of a session that begins."""
    sessions.set_available(context, tx, sender, accepts=True)
    return b""


def _line(
    context: Context, message: SentMessage, sender: str = "", id: int = 0, qos: int = 0
) -> bytes:
    """Return the line of a message; empty if there is none for its type."""
    if isinstance(message, AccountMessage | StoredMessage):
        return _line(context, message.content, message.sender, id, qos)
    if isinstance(message, MessageBytes) and message.kind:
        return _line(context, unpack(context, message), sender, id, qos)
    if isinstance(message, MessageBytes):
        return encode("publish", id, qos, sender, message.content_type, message.body)
    if isinstance(message, FailureReport):
        return encode("report", message.msg_id or "", message.destination, str(message.failure))
    item = message.event if isinstance(message, Notification) else message
    if not isinstance(item, ItemPublished | ItemDelivery):
        return b""
    node = f"{pubsub_service(context.domain)}/{item.node}"
    payload = item.payload if isinstance(item, ItemPublished) else item.body
    return encode("publish", id, qos, node, item.content_type, payload)


def _request(context: Context, request: QosRequest) -> bytes:
    id = rules.message_id(request.row, IDS)
    if request.content is None:
        return encode("release", id)
    qos = 2 if request.request is RequestKind.ASSURED else 1
    line = _line(context, request.content, request.sender, id, qos)
    return line or encode("publish", id, qos, request.sender, "", b"")  # it must be answered


def register(hooks: Hooks) -> None:
    """Register how messages are encoded and errors are answered."""
    for error in (AddressError, CustodyError, OutboxError, PubsubError):
        hooks.error_mapping(PROTOCOL, error, lambda error: error.reason.name)
    for message in (AccountMessage, FailureReport, ItemDelivery, Notification, StoredMessage):
        hooks.encode(PROTOCOL, message, _line)
    hooks.encode(PROTOCOL, QosRequest, _request)
