"""Delivering a message to the gateway: its contents become events.

One road for all levels: a plain message, an acknowledged and an assured one all come here, after
their level has been seen to; and what is published to nodes whose items are logged (`reported`).
Source: XEP QoS, "Generic implementation".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from xml.etree.ElementTree import Element

from edge.engine import access, events
from edge.engine.access import Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import (
    ALLOWED,
    NOT_ALLOWED,
    Contents,
    Context,
    Hooks,
    Message,
    Standing,
    UnreadablePayload,
)
from edge.engine.quota import ExceededLimit
from edge.features.eventlog.rules.json_readings import MAX_READINGS
from edge.xmpp.errors import FragmentError
from edge.xmpp.jid import Jid
from edge.xmpp.stanza import parse_fragment

if TYPE_CHECKING:
    Logged: TypeAlias = Sequence[tuple[str, NewEvent]]


REASON: Final = 200
"""Characters told of what cannot be read: the message itself is kept."""

MOST_EVENTS: Final = MAX_READINGS
"""Events of one message, or of one item, whatever holds them: a few bytes of JSON make one."""

NOTHING: Final = "it holds no log event, no sensor data and no JSON container"


def read(context: Context, message: bytes) -> Contents:
    """Decode a `<message/>`; content that is not for the event log is passed over."""
    try:
        payloads = parse_fragment(message)
    except FragmentError as error:
        return Contents([], str(error)[:REASON])
    found = decode(context, payloads)
    return found if found.events or found.unreadable else Contents([], NOTHING)


def decode(context: Context, payloads: Iterable[Element]) -> Contents:
    """Decode what of these is for the event log, perhaps nothing; the rest is passed over."""
    found: list[tuple[str, NewEvent]] = []
    try:
        for payload in payloads:
            decoder = context.hooks.event_payloads.get(payload.tag)
            if decoder is not None:
                found += decoder(payload)
            if len(found) > MOST_EVENTS:
                raise UnreadablePayload(f"it holds more than {MOST_EVENTS} events")
    except UnreadablePayload as error:
        return Contents([], str(error)[:REASON])
    return Contents(found)


SPARE: Final = 15
"""Places that a message leaves free in a lane for each event it has beyond one: so that who sends
many in one message is asked to wait while who sends few still finds room. At most half the lane."""


def may_have_room(context: Context, tx: Transaction) -> bool:
    """Tell whether a message whose contents are not known yet would find room."""
    return events.fullest_message_lane(tx) < context.limits.unsealed_events


def has_room(context: Context, tx: Transaction, found: Logged) -> bool:
    """Tell whether the lanes of these events have room for them.

    What cannot be read becomes an event too, in the lane of the gateway's own.
    """
    lanes = Counter(lane for lane, _event in found) or Counter([events.SYSTEM])
    limit = context.limits.unsealed_events
    return all(
        events.unsealed(tx, lane) + count + min(SPARE * (count - 1), limit // 2) <= limit
        for lane, count in lanes.items()
    )


def deliver(
    tx: Transaction,
    found: Logged,
    sender: str,
    qos: int | None,
    since: float | None = None,
    topic: str | None = None,
) -> None:
    """Write the events of a message, or of an item, into the log.

    Args:
        tx: the transaction.
        found: the events, with their lanes.
        sender: the full JID they came from.
        qos: the message's level; `None` for what did not come by message, which has no latency.
        since: the service second from which the message was in custody, if it was.
        topic: the node that the item was published to.
    """
    latency = None if qos is None else 0
    if since is not None:
        latency = max(0, round((tx.now.service - since) * 1000))
    for lane, event in found:
        told = event._replace(source=sender, topic=topic, qos=qos, latency_ms=latency)
        events.append(tx, lane, told)


class EventLog:
    """The gateway itself as the destination of messages."""

    def standing(self, context: Context, _tx: Transaction, sender: Sender, _to: Jid) -> Standing:
        """Trust who may use the services; it is always there."""
        allowed = access.may_use_services(sender, context.trusted_domains)
        return ALLOWED if allowed else NOT_ALLOWED

    def room_to_hold(
        self, context: Context, tx: Transaction, _message: Message
    ) -> ExceededLimit | None:
        """Take nothing more where the log is full: what is not read yet has no size there."""
        return None if may_have_room(context, tx) else full(context)

    def recipient(self, _to: Jid) -> str | None:
        """It is of no account."""
        return None

    def read(self, context: Context, body: bytes, _to: Jid) -> Contents:
        """Decode the events of a message."""
        return read(context, body)

    def room_now(
        self, context: Context, tx: Transaction, _message: Message, contents: Contents
    ) -> ExceededLimit | None:
        """Look whether the lanes have room for these events."""
        return None if has_room(context, tx, contents.events) else full(context)

    def deliver(
        self, _context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> None:
        """Write the events into the log."""
        deliver(tx, contents.events, message.sender.full, message.qos, message.since)


def full(context: Context) -> ExceededLimit:
    """Return the limit of what waits in a lane to be sealed."""
    return ExceededLimit("unsealed_events", context.limits.unsealed_events)


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.destination(AddressKind.GATEWAY, EventLog())
