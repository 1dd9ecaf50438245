"""Nodes whose items go to the centre: readings and logs that are published to them become events.

Which nodes those are is `[uplink] topics`: what is published there by iq and by message, to an
ordinary node and to a queue, is kept and dealt out as elsewhere, and logged in the same
transaction. An item that holds neither sensor data nor a log nor a JSON container is none of this
file's business. How such contents are read is `delivery`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Contents, Context
from edge.engine.quota import ExceededLimit
from edge.features.eventlog import destination
from edge.features.pubsub.rules import topic
from edge.features.pubsub.rules.topic import Filter
from edge.xmpp.errors import FragmentError
from edge.xmpp.stanza import parse_fragment


class Report(NamedTuple):
    """What of an item goes to the centre: events with their lanes; and of the message that brought
    it, if one did, the level, and the service second from which it was in custody."""

    events: Sequence[tuple[str, NewEvent]] = ()
    qos: int | None = None
    since: float | None = None


NOTHING: Final = Report()
_NONE: Final = Contents([])


def wanted(context: Context, node: str) -> bool:
    """Tell whether what is published to a node goes to the centre."""
    return any(topic.matches(filter, node) for filter in _filters(context.uplink_topics))


@lru_cache(maxsize=8)
def _filters(texts: tuple[str, ...]) -> tuple[Filter, ...]:
    return tuple(map(topic.parse_filter, texts))


def read(context: Context, node: str, payload: bytes) -> Contents:
    """Read what of an item goes to the centre, if its node is one of those: events, or why it
    cannot be read. `payload` stands alone; it is empty where the item has none."""
    if not context.uplink_topics or not payload or not wanted(context, node):
        return _NONE
    try:
        return destination.decode(context, (parse_fragment(payload),))
    except FragmentError as error:
        return Contents([], str(error)[: destination.REASON])


def room(context: Context, tx: Transaction, report: Report) -> ExceededLimit | None:
    """Tell which limit the events of an item would exceed."""
    if not report.events or destination.has_room(context, tx, report.events):
        return None
    return destination.full(context)


def room_to_hold(context: Context, tx: Transaction, node: str) -> ExceededLimit | None:
    """Tell the same of an item that is not read yet."""
    if not wanted(context, node) or destination.may_have_room(context, tx):
        return None
    return destination.full(context)


def write(tx: Transaction, sender: Sender, node: str, report: Report) -> None:
    """Write the events of an item that is published in this transaction."""
    destination.deliver(tx, report.events, sender.full, report.qos, report.since, node)
