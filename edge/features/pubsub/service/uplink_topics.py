"""Log the items of nodes that `[uplink] topics` selects, so that they are shipped.

An item of such a node is stored and delivered like any other. In the same transaction, the readings
and logs that its payload contains become events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit
from edge.features.eventlog import service as eventlog
from edge.features.pubsub.rules import topic


class ItemEvents(NamedTuple):
    """Events, with their lanes, that an item contains.

    If a message brought the item, `qos` is the message's level and `since` the service second from
    which it was in custody.
    """

    events: Sequence[tuple[str, NewEvent]] = ()
    qos: int | None = None
    since: float | None = None


NO_EVENTS: Final = ItemEvents()


def is_shipped(context: Context, node: str) -> bool:
    """Return whether items of a node are logged."""
    return bool(context.uplink_topics) and topic.matches_any(context.uplink_topics, node)


def exceeded_limit(context: Context, tx: Transaction, logged: ItemEvents) -> ExceededLimit | None:
    """Return the limit of the event log that the events of an item would exceed."""
    return eventlog.exceeded_limit(context, tx, logged.events) if logged.events else None


def exceeded_limit_unread(context: Context, tx: Transaction, node: str) -> ExceededLimit | None:
    """Return the limit of the event log that an item whose payload has not been read would
    exceed."""
    return eventlog.exceeded_limit_unread(context, tx) if is_shipped(context, node) else None


def log(tx: Transaction, sender: Sender, node: str, logged: ItemEvents) -> None:
    """Log the events of an item that is published in this transaction."""
    eventlog.write(tx, logged.events, sender.full, logged.qos, logged.since, node)
