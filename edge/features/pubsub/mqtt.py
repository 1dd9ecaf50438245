"""Subscriptions to topic filters and shares, and the items of nodes as publications (MQTT 5.0,
sections 3.8 to 3.11).

Each filter is a subscription of the session's full address. A topic without wildcards is a filter
that matches one node, which need not exist.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from edge import topics
from edge.engine.dispatch import destinations
from edge.engine.dispatch.hooks import Context, Hooks, PartedWork, Work
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.errors import ServiceError
from edge.features.pubsub.rules.reasons import Reason as PubsubReason
from edge.features.pubsub.rules.subscription import QOS, DeliveryOptions, RetainHandling
from edge.features.pubsub.service import subscriptions
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.pubsub.service.subscriptions import Target
from edge.mqtt import PROTOCOL
from edge.mqtt.codec import encode_within
from edge.mqtt.packets import (
    Property,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from edge.mqtt.reasons import Reason
from edge.routing.mqtt import MqttHooks, Peer, answers, publications

SUBID_BYTES: Final = 8

REASONS: Final = {
    PubsubReason.INVALID_NODE_NAME: Reason.TOPIC_NAME_INVALID,
    PubsubReason.TOO_MANY_NODES: Reason.QUOTA_EXCEEDED,
    PubsubReason.LIMIT_EXCEEDED: Reason.QUOTA_EXCEEDED,
    PubsubReason.TOO_MANY_SUBSCRIPTIONS: Reason.QUOTA_EXCEEDED,
    PubsubReason.SHARES_DISABLED: Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    PubsubReason.INVALID_FILTER: Reason.TOPIC_FILTER_INVALID,
    PubsubReason.NODE_REQUIRED: Reason.TOPIC_FILTER_INVALID,
    PubsubReason.INVALID_PAYLOAD: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    PubsubReason.UNREADABLE_PAYLOAD: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    PubsubReason.PAYLOAD_REQUIRED: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    PubsubReason.ITEM_FORBIDDEN: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    PubsubReason.POLICY_CONFLICT: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    PubsubReason.INVALID_OPTIONS: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
}
"""The reason codes for reasons of `PubsubError`; all others concern rights."""


MAX_FILTERS: Final = 512
"""Maximum filters of a packet. Home Assistant sends 500 in a packet."""

PART: Final = 16
"""Maximum filters that one unit of work handles: some milliseconds, for which others wait. At most
255, because the number is a byte of the result."""

_WITHOUT_SUBSCRIPTION: Final = (PubsubReason.NOT_SUBSCRIBED, PubsubReason.SHARES_DISABLED)


def subscribe(context: Context, packet: Subscribe, peer: Peer) -> Work | PartedWork | bytes:
    """Subscribe a session to filters and shares; one that is refused does not affect the others.

    Filters beyond `MAX_FILTERS` and the number of subscriptions that an account may have are
    refused at once.
    """
    most = min(MAX_FILTERS, context.limits.subscriptions_per_account)
    identifier = packet.properties.get(Property.SUBSCRIPTION_ID, (0,))[0]
    accepted, excess = packet.subscriptions[:most], packet.subscriptions[most:]
    if any(one.no_local and topics.is_share(one.filter) for one in packet.subscriptions):
        return answers.end(Reason.PROTOCOL_ERROR)

    def part(begin: int, tx: Transaction, sender: Sender) -> bytes:
        reasons, text = [], ""
        for wanted in accepted[begin : begin + PART]:
            try:
                reasons.append(_subscribe(context, tx, sender, wanted, identifier))
            except ServiceError as error:
                reasons.append(answers.reason(context, error))
                text = text or error.text
        if excess and begin + PART >= most:
            refusals.log(context, tx, sender, "subscriptions_per_account", most)
            text = text or f"more than {most} filters at once"
        return _result(reasons, text)

    def answer(results: Sequence[bytes]) -> bytes:
        reasons, text = _join(results)
        reasons += (Reason.QUOTA_EXCEEDED,) * len(excess)
        return answers.explained(peer, SubAck(packet.id, reasons), text)

    return _in_parts(len(accepted), part, answer)


def _in_parts(
    count: int,
    part: Callable[[int, Transaction, Sender], bytes],
    answer: Callable[[Sequence[bytes]], bytes],
) -> Work | PartedWork:
    """Return the work for so many filters; `part` handles those from a number on, at most `PART`,
    and returns `_result`."""
    if count <= PART:
        return lambda tx, sender: answer((part(0, tx, sender),))
    return PartedWork([partial(part, begin) for begin in range(0, count, PART)], answer)


def _result(reasons: Sequence[int], text: str = "") -> bytes:
    return bytes((len(reasons), *reasons)) + text.encode()


def _join(results: Sequence[bytes]) -> tuple[tuple[int, ...], str]:
    """Return the reasons of several results, and the first text."""
    reasons, text = b"", b""
    for result in results:
        end = 1 + result[0]
        reasons += result[1:end]
        text = text or result[end:]
    return tuple(reasons), text.decode()


def _subscribe(
    context: Context, tx: Transaction, sender: Sender, wanted: Subscription, identifier: int
) -> int:
    if not access.may_use_services(sender, context.trusted_domains):
        raise PubsubError(PubsubReason.FORBIDDEN, destinations.UNTRUSTED)
    options = DeliveryOptions(
        wanted.no_local,
        wanted.retain_as_published,
        RetainHandling(wanted.retain_handling),
        True,
        identifier,
    )
    subscriptions.subscribe(
        context,
        tx,
        sender,
        _target(context, wanted.filter),
        sender.full,
        {QOS: [str(wanted.qos)]},
        secrets.token_hex(SUBID_BYTES),
        options,
    )
    return wanted.qos


def _target(context: Context, text: str) -> Target:
    found = subscriptions.parse_target(context, text)
    return found if found.filter is not None else subscriptions.filter_target(context, text)


def unsubscribe(context: Context, packet: Unsubscribe, peer: Peer) -> Work | PartedWork:
    """End subscriptions of a session; too many filters are refused as by `subscribe`."""
    most = min(MAX_FILTERS, context.limits.subscriptions_per_account)
    accepted, excess = packet.filters[:most], packet.filters[most:]

    def part(begin: int, tx: Transaction, sender: Sender) -> bytes:
        reasons: list[int] = []
        for filter in accepted[begin : begin + PART]:
            try:
                target = _target(context, filter)
                subscriptions.unsubscribe(context, tx, sender, target, sender.full)
                reasons.append(Reason.SUCCESS)
            except PubsubError as error:
                is_missing = error.reason in _WITHOUT_SUBSCRIPTION
                missing = Reason.NO_SUBSCRIPTION_EXISTED
                reasons.append(missing if is_missing else answers.reason(context, error))
        return _result(reasons)

    def answer(results: Sequence[bytes]) -> bytes:
        reasons, _text = _join(results)
        reasons += (Reason.IMPLEMENTATION_SPECIFIC_ERROR,) * len(excess)
        return encode_within(UnsubAck(packet.id, reasons), peer.version, peer.max_packet)

    return _in_parts(len(accepted), part, answer)


def item(context: Context, notification: Notification, now: Callable[[], float]) -> Publish | None:
    """Return the publication of an item, at QoS 0; `None` for other events of a node."""
    event = notification.event
    if not isinstance(event, ItemPublished):
        return None
    return publications.publication(
        context,
        event.node,
        event.payload,
        event.content_type,
        event.properties,
        event.expires,
        now,
        retain=event.retain,
        identifiers=notification.identifiers,
    )


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    mqtt = hooks.of(MqttHooks)
    mqtt.add(mqtt.handlers, Subscribe, subscribe)
    mqtt.add(mqtt.handlers, Unsubscribe, unsubscribe)
    mqtt.add(mqtt.packets, Notification, item)
    hooks.error_mapping(
        PROTOCOL, PubsubError, lambda error: REASONS.get(error.reason, Reason.NOT_AUTHORIZED)
    )
