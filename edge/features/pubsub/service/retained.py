"""Send a new subscription the retained items of all nodes that its filter matches, as its session
has room for them (MQTT 5.0, section 3.3.1.3).

The nodes are read in the order of their names. A part of the items is sent at a time: the next one
follows when the session has read those of QoS 0, and few messages wait for it in the outbox. The
progress of a subscription is stored, so that a durable session gets the rest when it returns. An
item is sent if it is the last one of its node, and not newer than the subscription; newer ones are
sent when they are published. If another item is published to a node before its retained one has
been sent, the retained one is sent first (`notifications.announce_item`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import Usage
from edge.engine.sessions import sessions
from edge.engine.store import in_flight
from edge.engine.store.database import Transaction
from edge.features.outbox import service as outbox
from edge.features.pubsub.service import notifications
from edge.features.pubsub.service.access import may_subscribe
from edge.features.pubsub.service.notifications import BYTES_DIVISOR, RETAINED_RECEIPT
from edge.features.pubsub.store import nodes, retained, subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from edge.topics import fixed_levels, is_filter, matches

SCANNED: Final = 100
"""Maximum nodes that are read at once for a session, or for all sessions when the timer fires:
about a millisecond."""

REFILL_DIVISOR: Final = 2
"""Divisor of the size of a part: if more than the quotient waits for the session in the outbox, no
part is sent."""

RETRY: Final = 30.0
"""Service seconds until the next attempt if the outbox is full of other messages."""


class _Room:
    """Room that is left in one part: items, their bytes, and nodes to read."""

    def __init__(self, part: Usage, nodes: int) -> None:
        self.items, self.bytes = part
        self.nodes = nodes


def begin(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Begin to send a subscription the retained items, or begin again; those of the session's other
    subscriptions come first."""
    first = "/".join(fixed_levels(subscription.filter or ""))
    has_others = retained.is_session_pending(tx, subscription.jid)
    retained.begin(tx, subscription.jid, subscription.id, first)
    if not has_others:
        proceed(context, tx, subscription.jid, SCANNED)


def proceed(context: Context, tx: Transaction, full: str, nodes: int) -> int:
    """Send a session the next part of the retained items, if there are any and it has room.

    At most `nodes` nodes are read. Returns how many of them are left.
    """
    account, limits = full.partition("@")[0], context.limits
    of_account = retained.of_account(tx, account)
    session = sessions.find(tx, full) if of_account else None
    if session is None or in_flight.has_rows(tx, RETAINED_RECEIPT, session.generation):
        return nodes
    part = Usage(limits.last_items, limits.unacknowledged_bytes // BYTES_DIVISOR)
    waiting = outbox.find_of_session(tx, account, full)
    most = part.divided_by(REFILL_DIVISOR)
    if len(waiting) > most.messages or sum(row.bytes for row in waiting) > most.bytes:
        return nodes
    room = _Room(part, nodes)
    for number in [number for jid, number in of_account if jid == full]:
        subscription = subscriptions.get(tx, number)
        if subscription is not None and not _send_part(context, tx, subscription, room):
            break
    return room.nodes


def _send_part(context: Context, tx: Transaction, subscription: Subscription, room: _Room) -> bool:
    """Send retained items to a subscription; return whether it has got all."""
    number, filter = subscription.id, subscription.filter or ""
    progress = retained.get(tx, number)
    if progress is None:
        return True
    below = "".join(f"{level}/" for level in fixed_levels(filter))
    sent = retained.sent(tx, number)
    count = room.nodes + 1 if is_filter(filter) else 1
    for node in nodes.with_items_from(tx, progress.next, count):
        if node.name > below and not node.name.startswith(below):
            break  # no later name matches
        if room.items <= 0 or room.bytes <= 0 or room.nodes <= 0:
            retained.save(tx, number, node.name)
            if room.nodes <= 0:
                tx.wake_at(tx.now.service)
            return False
        room.nodes -= 1
        if not matches(filter, node.name):
            continue
        item = notifications.find_last_item(tx, subscription, node)
        if item is None or item.position > progress.last or item.position in sent:
            continue
        if not may_subscribe(context, tx, node, subscription.jid):
            continue
        if notifications.send_last_item(context, tx, subscription, node, item) is not None:
            retained.save(tx, number, node.name)
            tx.wake_at(tx.now.service + RETRY)
            return False
        room.items -= 1
        room.bytes -= item.size
    retained.end(tx, subscription.jid, number)
    return True


def on_ready(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session that has a connection again the rest."""
    proceed(context, tx, sender.full, SCANNED)


def on_read(
    context: Context, tx: Transaction, sender: Sender | None, _items: Sequence[int]
) -> None:
    """Send a session the next part, because it has read items of QoS 0."""
    if sender is not None:
        proceed(context, tx, sender.full, SCANNED)


def on_unread(
    _context: Context, _tx: Transaction, _sender: Sender | None, _items: Sequence[int]
) -> None:
    """Do nothing: items of QoS 0 that a session has not read are lost with its connection."""


def on_answered(context: Context, tx: Transaction, account: str) -> None:
    """Send the sessions of an account the next part, because one has answered a message."""
    for full in _sessions(tx, account):
        proceed(context, tx, full, SCANNED)


def _sessions(tx: Transaction, account: str) -> list[str]:
    """Return the full JIDs of an account's subscriptions in progress."""
    return list(dict.fromkeys(jid for jid, _number in retained.of_account(tx, account)))


def on_timer(context: Context, tx: Transaction) -> None:
    """Continue what was interrupted: there was much to read, or the outbox was full. The accounts
    take turns."""
    nodes = SCANNED
    for account in retained.accounts(tx):
        retained.put_last(tx, account)
        for full in _sessions(tx, account):
            nodes = proceed(context, tx, full, nodes)
            if nodes <= 0:
                tx.wake_at(tx.now.service)
                return


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.images.append(retained.load)
    hooks.on_qos_known.append(on_ready)
    hooks.on(outbox.ANSWERED, on_answered)
    hooks.add(hooks.on_acknowledged, RETAINED_RECEIPT, on_read)
    hooks.add(hooks.on_unacknowledged, RETAINED_RECEIPT, on_unread)
    hooks.on_timer.append(on_timer)
