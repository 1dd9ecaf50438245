"""Topics to which the gateway itself publishes from memory, such as figures for monitors.

Their names are reserved (`topics.RESERVED`), and nothing of them is stored. A subscription to a
filter gets the present values when it begins, and new values while its session is connected. It
belongs to a full address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from edge import content_types, topics
from edge.engine.dispatch.hooks import Context, Event
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.subscription import DeliveryOptions
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import topic_rights
from edge.features.pubsub.service.notifications import ItemPublished, Notification, identifiers
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.subscriptions import Subscription

SUBSCRIBED: Final = Event[[Transaction, Subscription, bool]]()
"""Event of a subscription to such topics, and of whether it gets the present values; its handlers
run in the transaction of the subscription."""


class Value(NamedTuple):
    """The present value of a topic."""

    payload: bytes
    content_type: str = content_types.UNKNOWN


def note_subscribed(
    context: Context, tx: Transaction, subscription: Subscription, *, wants_values: bool
) -> None:
    """Trigger `SUBSCRIBED` if a subscription is to a filter that can match such topics: no wildcard
    matches their first level."""
    if subscription.filter is not None and topics.is_reserved(subscription.filter):
        context.hooks.trigger(SUBSCRIBED, tx, subscription, wants_values)


def find_subscribed(tx: Transaction, names: Iterable[str]) -> set[str]:
    """Return the topics to which there are subscriptions."""
    return {name for name in names if subscriptions.plain_matching(tx, name)}


def publish(
    context: Context,
    tx: Transaction,
    values: Mapping[str, Value],
    only: Collection[int] | None = None,
) -> None:
    """Send the values of topics to the connected sessions that subscribe to them, at QoS 0.

    Args:
        only: the numbers of subscriptions that have begun, which get their first values as retained
            messages; `None` sends new values to all subscriptions.
    """
    for topic, (payload, content_type) in values.items():
        for jid, options in _recipients(context, tx, topic, only).items():
            session = sessions.find(tx, jid)
            if session is not None:
                retain = only is not None or any(one.retain_as_published for one in options)
                event = ItemPublished(topic, "current", payload, None, content_type, retain=retain)
                notification = Notification(event, jid, identifiers=identifiers(options))
                tx.send(session.generation, notification)


def _recipients(
    context: Context, tx: Transaction, topic: str, only: Collection[int] | None
) -> dict[str, list[DeliveryOptions]]:
    """Return the addresses that get the value of a topic, each once, with the options of their
    subscriptions."""
    found: dict[str, list[DeliveryOptions]] = {}
    for one in subscriptions.plain_matching(tx, topic):
        is_wanted = one.options.deliver and (only is None or one.id in only)
        if is_wanted and topic_rights.is_allowed(context, tx, one.jid, Right.SUBSCRIBE, topic):
            found.setdefault(one.jid, []).append(one.options.delivery)
    return found
