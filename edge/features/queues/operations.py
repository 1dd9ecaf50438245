"""Queues at work: items stand in line, are done with, and come back.

The one road of queue nodes and shares. What a loss makes of an item is decided in `rules.queue`;
here it is written down in the unit that it follows from. How items go to members is `giving`'s,
what sessions and time bring about is `turns`', and what workers ask for is `working`'s. Source:
XEP-0254; MQTT-234, as the project's protocol decisions complete them.
"""

from __future__ import annotations

from typing import Final

from edge.engine import events, sessions, space
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.engine.quota import ExceededLimit
from edge.features.outbox.store import outbox
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.queues import notifications, sharing
from edge.features.queues.dispatch import pump
from edge.features.queues.rules import transitions
from edge.features.queues.rules.assignment import Policy
from edge.features.queues.rules.transitions import NOTIFIED, Kind, Loss, Outcome
from edge.features.queues.sharing import Parted
from edge.features.queues.store import (
    depth_events,
    queue_items,
    queue_members,
    queues,
)
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queues import Queue
from edge.xmpp import pubsub

SHARES_PART: Final = 2
"""Shares take one part in so many of what all queues may have: whoever may subscribe can make a
share that nobody serves, and must not fill up what is queue nodes'."""

# Items come


def room(
    context: Context, tx: Transaction, queue: Queue, size: int, count: int = 1
) -> ExceededLimit | None:
    """Tell which limit one more item of `size` bytes (`queues.charge`) would exceed; `count` is 0
    where it takes the place of another, and `size` is what it has more."""
    limits, part = context.limits, 1 if queue.share is None else SHARES_PART
    here, total = queues.usage(tx, queue.id)
    for used, most, rule in (
        (here.messages + count, limits.items_per_queue, "items_per_queue"),
        (here.bytes + size, limits.queue_bytes_per_queue, "queue_bytes_per_queue"),
        (total.messages + count, limits.queue_items // part, "queue_items"),
        (total.bytes + size, limits.queue_bytes // part, "queue_bytes"),
    ):
        if used > most:
            return ExceededLimit(rule, most)
    return space.refuses(tx, size, limits)


def enqueue(
    context: Context,
    tx: Transaction,
    queue: Queue,
    node_name: str,
    item_id: str,
    publisher_full: str,
    body: bytes,
    *,
    priority: int = 0,
    delay: float | None = None,
    ttl: float | None = None,
) -> None:
    """Put an item in line, for which there is `room`, and give it away if somebody takes it.

    Of a queue node, an item of the same ItemID that waits gets this payload and keeps its place,
    and a dead one makes way.

    Args:
        context: what handlers know.
        tx: the transaction.
        queue: where it goes.
        node_name: the node that it was published to.
        item_id: its ItemID.
        publisher_full: the full JID of who published it.
        body: its payload, which stands alone; empty if it has none.
        priority: the highest goes first.
        delay: seconds until it may go to anybody.
        ttl: seconds until it is too late for it: it is dead then.

    Raises:
        StanzaError: the item of this ItemID is in work (`conflict`).
    """
    now = tx.now.service
    due = now + delay if delay else None
    expires = None if ttl is None else now + ttl
    for moment in (due, expires):
        if moment is not None:
            tx.wake_at(moment)
    if queue.node is not None and (old := queue_items.find(tx, queue.id, item_id)) is not None:
        if old.state == "locked":
            raise pubsub.refusal("conflict", text="a subscriber is working on this item")
        if old.state != "dead":
            queue_items.replace(tx, queue, old, publisher_full, body, expires)
            pump(context, tx, queue.id, queue)  # it may have been too late for it before
            return
        queue_items.delete(tx, old.row)
    queue_items.enqueue(
        tx, queue, node_name, item_id, publisher_full, body,
        priority=priority, due=due, expires=expires,
    )  # fmt: skip
    if due is None:
        pump(context, tx, queue.id, queue)


# Items are done with, or come back


def done(context: Context, tx: Transaction, item: Item) -> None:
    """Remove an item that its member has dealt with, and give it the next."""
    delete(context, tx, item)
    pump(context, tx, item.queue)


def delete(context: Context, tx: Transaction, item: Item) -> None:
    """Remove an item, whoever has it."""
    queue_items.delete(tx, item.row)
    _free(context, tx, item)


def _free(context: Context, tx: Transaction, item: Item) -> None:
    """Count an item no more that a member had."""
    if item.state == "locked" and item.subscription is not None:
        most, holder = context.limits.unacknowledged_bytes, item.holder or ""
        queue_members.count_removal(tx, item.subscription, holder, item.bytes, most)


def give_back(context: Context, tx: Transaction, item: Item, loss: Loss, qos: int) -> None:
    """Take an item of a share from the member that has it; it has left the outbox, and `qos` is the
    level at which it was sent."""
    if item.state == "locked":
        lose(context, tx, item, loss, qos)
        pump(context, tx, item.queue)


def bury(context: Context, tx: Transaction, item: Item, reason: str) -> None:
    """Keep an item as dead, for people to look at, and requeue; and give its member the next."""
    bury_item(context, tx, item, reason)
    pump(context, tx, item.queue)


def bury_item(context: Context, tx: Transaction, item: Item, reason: str) -> None:
    """Keep an item as dead, and give nothing away yet."""
    queue_items.dead_letter(tx, item.row, reason)
    _free(context, tx, item)
    tags = {"item": item.item, "deliveries": str(item.deliveries)}
    event = NewEvent(
        "message", item.publisher, item.node, "queue_dead", level="Warning", text=reason, tags=tags
    )
    events.append(tx, events.SYSTEM, event)


def lose(context: Context, tx: Transaction, item: Item, loss: Loss, qos: int | None = None) -> bool:
    """Do what a loss makes of an item that is locked; false if it stays with its member.

    Its worker is told where it is there to be told; nothing is given away yet. `qos` is the level
    at which an item of a share was sent, where that is known.
    """
    queue = queues.get(tx, item.queue)
    if queue is None:
        return False
    kind = _kind(tx, queue, item) if qos is None else transitions.kind(qos)
    fate = transitions.outcome(kind, loss, item.deliveries - item.spared, queue.max_deliveries)
    if fate is Outcome.STAYS:
        return False
    if loss is Loss.TIMEOUT:
        depth_events.count_timeout(tx, queue.id)
    if fate is Outcome.DEAD:
        bury_item(context, tx, item, f"{loss.value}, after {item.deliveries} deliveries")
    else:
        avoid = item.holder if fate is Outcome.READY_FOR_ANOTHER else None
        _unlock(context, tx, item, avoid)
    if kind is Kind.NODE and loss in NOTIFIED and item.holder is not None:
        notifications.unlocked(context, tx, item, item.holder)
    return True


def unsent(context: Context, tx: Transaction, item: Item) -> None:
    """Let an item of a share wait again that its member was never sent: that was no delivery."""
    queue_items.unlock(tx, item.row, delivered=False)
    _free(context, tx, item)


def _unlock(context: Context, tx: Transaction, item: Item, avoid: str | None) -> None:
    queue_items.unlock(tx, item.row, avoid)
    _free(context, tx, item)
    if item.expires is not None:
        tx.wake_at(item.expires)


def _kind(tx: Transaction, queue: Queue, item: Item) -> Kind:
    """Return the kind of an item that is locked; at level 2 it is, if its member has gone and left
    no other trace."""
    if queue.node is not None:
        return Kind.NODE
    member = subscriptions.get(tx, item.subscription or 0)
    sent = outbox.find(tx, item.outbox or 0) if member is None else None
    if member is not None:
        return transitions.kind(member.qos)
    return Kind.SHARE_2 if sent is None else transitions.kind(sent.qos)


# Members come and go


def joined(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Give a new member what waits, or one whose options have changed."""
    queue_members.add_subscription(tx, subscription.id, context.limits.unacknowledged_bytes)
    if subscription.queue is not None:
        notifications.flush_jid(context, tx, subscription.jid)
        queue_items.release_held(tx, subscription.queue)
        pump(context, tx, subscription.queue)


def left(context: Context, tx: Transaction, subscription: Subscription, loss: Loss) -> None:
    """Take back what a member has, whose subscription is about to be removed."""
    queue_members.remove_subscription(tx, subscription.id)
    if loss is Loss.CONNECTION:  # its sessions are over: they get nothing for others either
        queue_members.remove_sessions_of(tx, subscription.jid)
    for item in queue_items.locked_by(tx, subscription.jid):
        if item.subscription == subscription.id:
            part(context, tx, item, _loss_of(tx, item, loss))
    if subscription.queue is not None:
        pump(context, tx, subscription.queue, ask=False)  # its row is there still: none may join


def _loss_of(tx: Transaction, item: Item, loss: Loss) -> Loss:
    """Whose session was before the start may come back, and believe to have its item: it is told,
    though the last one of its account that was there is over."""
    if loss is not Loss.CONNECTION or item.holder is None:
        return loss
    return Loss.UNAVAILABLE if sessions.holder(tx, item.holder) is None else loss


def part(context: Context, tx: Transaction, item: Item, loss: Loss) -> None:
    """Take an item from a member whose subscription ends, also where it is on its way."""
    queue = queues.get(tx, item.queue)
    if queue is None or queue.node is not None:
        lose(context, tx, item, loss)
        return
    sent = outbox.find(tx, item.outbox or 0)
    parted = sharing.withdraw(context, tx, item)
    if parted is Parted.IN_DOUBT:
        _free(context, tx, item)
    elif parted is Parted.UNSENT:
        unsent(context, tx, item)
    else:  # whatever its session's end means, its subscription's is this
        qos = None if sent is None else sent.qos
        lose(context, tx, item, Loss.UNSUBSCRIBED, qos)


def end_share(context: Context, tx: Transaction, queue_id: int) -> None:
    """Remove a share that has no member any more, with all that waits in it (MQTT-234)."""
    queue = queues.get(tx, queue_id)
    if queue is None:
        return
    count = queue.items
    queues.remove(tx, queue_id)
    event = NewEvent(
        "message",
        topic=queue.filter,
        name="share_ended",
        value=float(count),
        unit="items",
        level="Warning" if count else "Notice",
        text="the last member of a share has gone, and what waited in it is deleted",
        tags={"share": queue.share or ""},
    )
    events.append(tx, events.SYSTEM, event)


def configure(
    tx: Transaction, queue: Queue, policy: str, lock_timeout: float, max_deliveries: int
) -> None:
    """Change the options of a queue; a change to or from the hash policy writes all its items."""
    queues.configure(tx, queue.id, policy, lock_timeout, max_deliveries)
    if policy != queue.policy:
        queue_items.assign_slots(tx, queue.id, by_hash=policy == Policy.HASH.value)


def purge(context: Context, tx: Transaction, queue: Queue) -> int:
    """Remove all items of a queue node, whoever has them; returns how many they were."""
    count = queue_items.delete_all(tx, queue.id)
    queue_members.recount_queue(tx, queue.id, context.limits.unacknowledged_bytes)
    return count
