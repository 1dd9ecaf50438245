"""Write events of messages and items to the event log, and notify people of events.

A notification is a plain message, written in the transaction of its event. It causes no further
notification. After `log.notify_most` notifications in a minute, further events are only counted,
and one more notification reports their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from edge.config.options import Log
from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.log import refusals
from edge.engine.rules.quota import ExceededLimit
from edge.engine.sessions import sessions
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.accounts import service as accounts
from edge.features.eventlog.messages import EventNotification
from edge.features.eventlog.rules.levels import INFORMATIONAL, RANKS
from edge.features.eventlog.store import notices
from edge.features.eventlog.store.epochs import epoch_of_row as epoch_of_row
from edge.features.messages import rules as routing
from edge.features.messages import service as messages
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage

SPARE_ROOM: Final = 15
"""Free room, in events, that a lane must keep per event of a message, the first event excepted.

A message with many events is refused earlier than one with few, so that senders of few events still
find room. At most half the lane is kept free.
"""

NOTICES_RULE: Final = "notices"
"""Name of the limit on notifications of events, and of the event that counts the refused ones."""

_NEVER_NOTIFIED: Final = frozenset({"heartbeat"})


# Writing


def exceeded_limit_unread(context: Context, tx: Transaction) -> ExceededLimit | None:
    """Return the limit that a message whose contents are not decoded yet would exceed, if any."""
    limit = context.limits.unsealed_events
    return (
        None if events.fullest_message_lane(tx) < limit else ExceededLimit("unsealed_events", limit)
    )


def exceeded_limit(
    context: Context, tx: Transaction, found: Sequence[tuple[str, NewEvent]]
) -> ExceededLimit | None:
    """Return the limit that the events of a message would exceed, if any.

    `found` has the events with their lanes. If it is empty, because the message is unreadable, the
    lane `system` needs room for the event that reports this.
    """
    limit = context.limits.unsealed_events
    if len(found) <= 1:
        lane = found[0][0] if found else events.SYSTEM
        full = events.unsealed(tx, lane) >= limit
        return ExceededLimit("unsealed_events", limit) if full else None
    for lane, count in Counter(lane for lane, _event in found).items():
        spare = min(SPARE_ROOM * (count - 1), limit // 2)
        if events.unsealed(tx, lane) + count + spare > limit:
            return ExceededLimit("unsealed_events", limit)
    return None


def write(
    tx: Transaction,
    found: Sequence[tuple[str, NewEvent]],
    sender: str,
    qos: int | None,
    since: float | None = None,
    topic: str | None = None,
) -> None:
    """Write the events of a message or an item to the log.

    Args:
        found: the events with their lanes.
        sender: the full JID of the sender.
        qos: the QoS level of the message, or `None` for an item, whose events get no latency.
        since: the service second at which the message was taken into custody, if it was.
        topic: the node to which the item was published.
    """
    latency = None if qos is None else 0
    if since is not None:
        latency = max(0, round((tx.now.service - since) * 1000))
    for lane, event in found:
        events.append_received(tx, lane, event, sender, topic, qos, latency)


# Notifying


def notifier(context: Context, log: Log) -> Callable[[Transaction], None]:
    """Return a hook that notifies people of the events in a transaction, just before its commit."""
    return partial(_notify, context, log)


def _notify(context: Context, log: Log, tx: Transaction) -> None:
    for number, event in events.logged(tx):  # refused notifications log further ones
        if event.source == context.domain:  # it reports refused notifications
            if event.name == NOTICES_RULE:
                _send(context, log, tx, number, event)
        elif not _is_notified(log, event):
            continue
        elif notices.count(tx) <= log.notify_most:
            _send(context, log, tx, number, event)
        else:
            refusals.log_source(context, tx, context.domain, NOTICES_RULE, log.notify_most)


def _is_notified(log: Log, event: NewEvent) -> bool:
    rank = RANKS[event.level or INFORMATIONAL]
    return rank >= RANKS[log.notify_level] and event.name not in _NEVER_NOTIFIED


def _send(context: Context, log: Log, tx: Transaction, number: int, event: NewEvent) -> None:
    id = f"{meta.epoch(tx)}-{number}-log"
    for to in log.notify:
        notification = EventNotification(to, id, event, tx.now.wall)
        if context.has_accounts:
            _deliver(context, tx, notification)
        else:
            tx.send(sessions.WITHOUT_SESSION, notification)


def _deliver(context: Context, tx: Transaction, notification: EventNotification) -> None:
    to = notification.to
    account = to.partition("@")[0]
    exists = accounts.is_active(tx, account)
    bound = sessions.of_account(tx, to) if exists else ()
    route = routing.route(MessageType.NORMAL, bound, None, exists=exists)
    message = AccountMessage(notification, context.domain, to, MessageType.NORMAL, storable=True)
    refusal = messages.deliver(context, tx, message, route)
    if refusal is not None:
        refusals.log_source(context, tx, context.domain, refusal.rule, refusal.figure)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.store("event notification", EventNotification)
