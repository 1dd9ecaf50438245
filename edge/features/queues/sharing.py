"""Shares: how an item of a share travels to the member that it was given to.

At level 0 it is a plain message, and has left its queue by being sent: whoever loses it, it is
never given again. At levels 1 and 2 it waits in the outbox of the member's account until it is
over. At level 1 the session that was chosen alone may have it, and when they part it is another's.
At level 2 it is its member's for good: it waits for it, through connections and restarts; where
its session has received it and never said what it did, it is in doubt, and kept with the dead
letters, by which that session alone is told again. Who is chosen is `line`'s, and what the end of
such a message means is `shared`'s. Source: MQTT-234, as the project's protocol decisions complete
it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from edge.engine import in_flight, quota, sessions
from edge.engine.addresses import pubsub_service
from edge.engine.database import Receipt, Transaction
from edge.engine.hooks import Context
from edge.features.discovery import capabilities
from edge.features.outbox import undelivered
from edge.features.outbox import xmpp as handing
from edge.features.outbox.rules import State
from edge.features.outbox.store import outbox
from edge.features.pubsub import notifying, sending
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.queues import notifications
from edge.features.queues.rules.assignment import Member, Policy
from edge.features.queues.store import queue_items, queue_members
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queues import Queue
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError

PLAIN: Final = "share"
"""The kind of receipt of an item that was sent at level 0: it has no row any more, and its session
is given more when it has it (`turns`)."""


_IN_DOUBT: Final = (State.RELEASED.value, State.PLAIN.value)
"""From where on nobody knows whether a message at level 2 was delivered, until it is answered."""


class Parted(Enum):
    """How far an item had come when it and its member part."""

    UNSENT = "its member was never sent it"
    SENT = "its member may have been sent it"
    IN_DOUBT = "its member may have it for good: it is with the dead letters, and in no queue"


def give(
    context: Context,
    tx: Transaction,
    queue: Queue,
    item: Item,
    member: Member,
    subscription: Subscription,
) -> bool:
    """Send an item to the member that it was given to; false if there is no room in the outbox of
    its account just now: nothing has changed then.

    Args:
        context: what handlers know.
        tx: the transaction.
        queue: the share's.
        item: at level 0 it leaves the queue here; at levels 1 and 2 it is locked by the member.
        member: the session that was chosen.
        subscription: the member's: its level, and whose it is.
    """
    if subscription.qos == 0:
        _send_plainly(context, tx, item, member, subscription)
        return True
    body = serialize.message(None, None, None, _content(tx, item, subscription))
    account, size = subscription.account, quota.charge("", body)
    if sending.room(context, tx, account, size) is not None:
        return False
    service, full = pubsub_service(context.domain), "/" in subscription.jid
    row = outbox.add(
        tx,
        account,
        f"{service}/{_line(queue, item)}",
        f"{service}/{item.node}",
        None,
        subscription.qos,
        body,
        size,
        only_session=member.session if full or subscription.qos == 1 else None,
        session=member.session,
        queue_item=item.row,
    )
    if row is None:
        return False
    queue_items.set_outbox_row(tx, item.row, row)
    tx.wake_at(tx.now.service + context.limits.outbox_ttl)
    handing.pump(context, tx, account, ask=False)  # no item goes anywhere else meanwhile
    return True


def _line(queue: Queue, item: Item) -> str:
    """Name what an item keeps its order in on its way: of each publisher where one member gets all
    of that one's items; where members share them, none waits for another."""
    if queue.policy == Policy.LEAST_LOADED.value:
        return f"{queue.id}/{item.row}"
    return f"{queue.id}/{item.publisher.partition('/')[0]}"


def _content(tx: Transaction, item: Item, subscription: Subscription) -> bytes:
    """Make the contents of the message: the item, and by which subscription it comes."""
    return notifications.content(tx, item) + notifying.subid(subscription)


def _send_plainly(
    context: Context, tx: Transaction, item: Item, member: Member, subscription: Subscription
) -> None:
    session, content = sessions.at(tx, member.session), _content(tx, item, subscription)
    queue_items.delete(tx, item.row)
    if session is not None:
        stanza = serialize.message(None, pubsub_service(context.domain), session.full, content)
        receipt = Receipt(PLAIN, item.row)
        in_flight.begin(tx, receipt, session.generation)
        tx.send(session.generation, stanza, receipt)


def ask(context: Context, tx: Transaction, queue: int) -> None:
    """Find out whether members of a share that are there take quality of service, where something
    waits for them: those that do are given it then."""
    for full in queue_members.with_unknown_qos(tx, queue):
        session = sessions.at(tx, full)
        if session is not None and session.qos is None:
            capabilities.learn(context, tx, session)


def withdraw(context: Context, tx: Transaction, item: Item) -> Parted:
    """Take an item that a member has, and is to have no more, out of the outbox; what becomes of
    the item is the caller's, but where it is in doubt."""
    row = None if item.outbox is None else outbox.find(tx, item.outbox)
    if row is None:
        return Parted.SENT
    if row.qos == 2 and row.state in _IN_DOUBT:
        error = StanzaError("recipient-unavailable", "the member of the share has gone")
        undelivered.give_up(context, tx, row, State.IN_DOUBT, error)
        queue_items.delete(tx, item.row)
        return Parted.IN_DOUBT
    outbox.remove(tx, row)
    return Parted.UNSENT if row.state == State.QUEUED.value else Parted.SENT
