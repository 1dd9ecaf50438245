"""Delivering a message to the gateway: its contents become events.

One road for all levels: a plain message, an acknowledged and an assured one all come here, after
their level has been seen to. Source: XEP QoS, "Generic implementation".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.handlers.feature import Unreadable
from edge.store import events
from edge.wire.errors import FragmentError
from edge.wire.stanza import parse_fragment

if TYPE_CHECKING:
    from edge.handlers.feature import House
    from edge.store.database import Transaction
    from edge.store.events import NewEvent


REASON: Final = 200
"""Characters told of what cannot be read: the message itself is kept."""


class Contents(NamedTuple):
    """What a message holds for the event log, or why it holds nothing."""

    events: list[tuple[str, NewEvent]]
    unreadable: str = ""


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
