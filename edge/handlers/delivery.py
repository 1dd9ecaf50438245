"""Delivering a message to the gateway: its contents become events.

One road for all levels: a plain message, an acknowledged and an assured one all come here, after
their level has been seen to. Source: XEP QoS, "Generic implementation".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from edge.handlers.destinations import ALLOWED, NOT_ALLOWED, Contents, Place
from edge.handlers.feature import Feature, Unreadable
from edge.rules import access
from edge.rules.quota import Over
from edge.store import events
from edge.wire.errors import FragmentError
from edge.wire.stanza import parse_fragment

if TYPE_CHECKING:
    from edge.handlers.destinations import Message, Standing
    from edge.handlers.feature import House
    from edge.rules.access import Sender
    from edge.store.database import Transaction
    from edge.store.events import NewEvent
    from edge.wire.jid import Jid


REASON: Final = 200
"""Characters told of what cannot be read: the message itself is kept."""


def read(house: House, message: bytes) -> Contents:
    """Decode a `<message/>`; content that is not for the event log is passed over."""
    found: list[tuple[str, NewEvent]] = []
    try:
        for payload in parse_fragment(message):
            decoder = house.contents.get(payload.tag)
            if decoder is not None:
                found += decoder(payload)
    except (FragmentError, Unreadable) as error:
        return Contents([], str(error)[:REASON])
    return Contents(found, "" if found else "it holds neither a log event nor sensor data")


SPARE: Final = 15
"""Places that a message leaves free in a lane for each event it has beyond one: so that who sends
many in one message is asked to wait while who sends few still finds room. At most half the lane."""


def may_have_room(house: House, tx: Transaction) -> bool:
    """Tell whether a message whose contents are not known yet would find room."""
    return events.fullest(tx) < house.limits.unsealed_events


def has_room(house: House, tx: Transaction, contents: Contents) -> bool:
    """Tell whether the lanes of these events have room for them.

    What cannot be read becomes an event too, in the lane of the gateway's own.
    """
    lanes = Counter(lane for lane, _event in contents.events) or Counter([events.SYSTEM])
    limit = house.limits.unsealed_events
    return all(
        events.unsealed(tx, lane) + count + min(SPARE * (count - 1), limit // 2) <= limit
        for lane, count in lanes.items()
    )


def deliver(
    tx: Transaction, contents: Contents, sender: str, qos: int, since: float | None = None
) -> None:
    """Write the events of a message into the log.

    `sender` is the full JID it came from, `qos` its level, and `since` the service second from
    which it was in custody.
    """
    latency = 0 if since is None else max(0, round((tx.now.service - since) * 1000))
    for lane, event in contents.events:
        events.append(tx, lane, event._replace(source=sender, qos=qos, latency_ms=latency))


class EventLog:
    """The gateway itself as the destination of messages."""

    def standing(self, house: House, _tx: Transaction, sender: Sender, _to: Jid) -> Standing:
        """Trust who may use the services; it is always there."""
        allowed = access.may_use_services(sender, house.trusted_domains)
        return ALLOWED if allowed else NOT_ALLOWED

    def room_to_hold(self, house: House, tx: Transaction, _message: Message) -> Over | None:
        """Take nothing more where the log is full: what is not read yet has no size there."""
        return None if may_have_room(house, tx) else _full(house)

    def recipient(self, _to: Jid) -> str | None:
        """It is of no account."""
        return None

    def read(self, house: House, body: bytes) -> Contents:
        """Decode the events of a message."""
        return read(house, body)

    def room_now(
        self, house: House, tx: Transaction, _message: Message, contents: Contents
    ) -> Over | None:
        """Look whether the lanes have room for these events."""
        return None if has_room(house, tx, contents) else _full(house)

    def deliver(self, _house: House, tx: Transaction, message: Message, contents: Contents) -> None:
        """Write the events into the log."""
        deliver(tx, contents, message.sender.full, message.qos, message.since)


def _full(house: House) -> Over:
    return Over("unsealed_events", house.limits.unsealed_events)


FEATURE = Feature(destinations={Place.GATEWAY: EventLog()})
