"""Members of queues: joining, leaving, sessions, timers, and changes by other processes.

A session that becomes able to get items is assigned ready items; items are taken back from a
session that ends.
`edge.features.pubsub` decides which subscriptions end with a session. Source: XEP-0254,
"Implementation Notes"; MQTT-234, as completed in docs/reference/protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules.access import Sender
from edge.engine.sessions import durable_sessions, sessions
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.outbox import service as outbox
from edge.features.outbox.rules import TERMINAL, Input, State
from edge.features.outbox.service import DeliveryFailure, FailureReason, OutboxRow
from edge.features.presence.service.presence import PUBSUB_UNAVAILABLE
from edge.features.pubsub.rules.subscription import SubscriptionEnd
from edge.features.pubsub.service import queries
from edge.features.pubsub.service.queries import Node, Subscription
from edge.features.pubsub.service.subscriptions import AVAILABLE_AGAIN
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.service import notifications, operations, share_delivery
from edge.features.queues.service.dispatch import STALL, dispatch, dispatch_all
from edge.features.queues.store import notifications as stored_notifications
from edge.features.queues.store import queue_items, queue_members, queues
from edge.features.queues.store.queue_items import BATCH, QueuedItem

ORPHAN_BATCHES: Final = 160
"""Maximum number of batches of items that one unit of work takes back from removed accounts; a
batch has `BATCH` items."""

_END_LOSSES: Final = {
    SubscriptionEnd.UNAVAILABLE: Loss.UNAVAILABLE,
    SubscriptionEnd.SESSION_ENDED: Loss.CONNECTION,
    # the session may return later and still hold items, so it has to be notified
    SubscriptionEnd.NOT_RETURNED: Loss.UNAVAILABLE,
}
"""Loss of the items of a subscription that ends; for all other reasons the loss is
`UNSUBSCRIBED`."""

_QOS_1_LOSSES: Final = {Input.FINAL_ERROR: Loss.REFUSED, Input.SESSION_LOST: Loss.CONNECTION}
"""Loss of an item at QoS 1, by the outbox `Input` that ended the item's message; after all other
inputs the loss is `TIMEOUT`."""

_IN_DOUBT: Final = (State.RELEASED, State.PLAIN)
"""States in which a message at QoS 2 was possibly delivered, but the member has not confirmed
that."""


# Subscriptions


def join(context: Context, tx: Transaction, subscription: Subscription) -> None:
    """Add a subscription to its queue's members, or apply its changed options; assign items."""
    queue_members.add_subscription(tx, subscription.id, context.limits.unacknowledged_bytes)
    if subscription.queue is not None:
        notifications.flush_jid(tx, subscription.jid)
        queue_items.release_withheld(tx, subscription.queue)
        dispatch(context, tx, subscription.queue)
        unknown = queue_members.with_unknown_qos(tx, subscription=subscription.id)
        share_delivery.learn_qos(context, tx, unknown)


def end_membership(
    context: Context, tx: Transaction, subscription: Subscription, reason: SubscriptionEnd
) -> None:
    """Remove a subscription from its queue's members, with the share if no member is left."""
    leave(context, tx, subscription, _END_LOSSES.get(reason, Loss.UNSUBSCRIBED))
    queries.remove_subscription(tx, subscription)
    queues.forget(tx)  # another member may hold the share now
    queue = subscription.queue
    if queue is not None and subscription.share is not None and not queries.has_members(tx, queue):
        _end_share(tx, queue)


def leave(context: Context, tx: Transaction, subscription: Subscription, loss: Loss) -> None:
    """Take back the items of a subscription that is about to be removed.

    An item stays with a session that was sent it and may know it by an id, until it is answered or
    the session, at QoS 2 its state, ends (MQTT 5.0, section 3.10.4).
    """
    queue_members.remove_subscription(tx, subscription.id)
    if loss is Loss.CONNECTION:  # the sessions have ended and get no items of other queues either
        max_bytes = context.limits.unacknowledged_bytes
        queue_members.remove_sessions_of(tx, subscription.jid, max_bytes)
    for item in queue_items.locked_by(tx, subscription.jid):
        if item.subscription == subscription.id and not _is_being_sent(tx, item):
            _take_from_subscription(context, tx, item, _loss_of(tx, item, loss))
    if subscription.queue is not None:
        dispatch(context, tx, subscription.queue)


def _is_being_sent(tx: Transaction, item: QueuedItem) -> bool:
    """Return whether an item was sent to a session that may know it by an id and is not gone."""
    row = outbox.find(tx, item.outbox or 0)
    return row is not None and row.turn > 0 and durable_sessions.exists(tx, item.holder or "")


def _loss_of(tx: Transaction, item: QueuedItem, loss: Loss) -> Loss:
    """Return the loss of one item of a subscription that ends for the reason `loss`.

    If the reason is `CONNECTION`, but the item's session has been away since a restart, the loss is
    `UNAVAILABLE`: that session may return and must be notified that it no longer has the item.
    """
    if loss is not Loss.CONNECTION or item.holder is None:
        return loss
    return Loss.UNAVAILABLE if sessions.find(tx, item.holder) is None else loss


def _take_from_subscription(
    context: Context, tx: Transaction, item: QueuedItem, loss: Loss
) -> None:
    """Take an item from a subscription that ends, even if the item is still in the outbox.

    An item in doubt becomes a dead letter and leaves its queue.
    """
    queue = queues.get(tx, item.queue)
    if queue is None or queue.node is not None:
        operations.handle_loss(context, tx, item, loss)
        return
    row = outbox.find(tx, item.outbox or 0)
    if row is not None and row.qos == 2 and row.state in _IN_DOUBT:
        text = "the member left the shared subscription"
        failure = DeliveryFailure(FailureReason.SESSIONS_LOST, text)
        outbox.give_up(context, tx, row, State.IN_DOUBT, failure)
        queue_items.delete(tx, item)
        operations.count_removal(context, tx, item)
        return
    if row is not None:
        outbox.remove(tx, row)
    if row is not None and row.state == State.QUEUED:
        operations.make_ready_unsent(context, tx, item)
    else:  # the end of the subscription counts, whatever the end of its session means
        qos = None if row is None else row.qos
        operations.handle_loss(context, tx, item, Loss.UNSUBSCRIBED, qos)


def _end_share(tx: Transaction, queue_id: int) -> None:
    """Remove a shared subscription without members, and all its items (MQTT-234)."""
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
        text="the last member of a shared subscription left; the subscription's items were deleted",
        tags={"share": queue.share or ""},
    )
    events.append(tx, events.SYSTEM, event)


def release_withheld(context: Context, tx: Transaction, node: Node) -> None:
    """Make withheld items of shares ready and assign them, after the access to a node changed."""
    for queue in queries.shares_matching(tx, node.name):
        if queue_items.release_withheld(tx, queue):
            dispatch(context, tx, queue)


def release_all_withheld(context: Context, tx: Transaction) -> None:
    """Make all withheld items ready and assign them, after the rules of access changed."""
    for queue in queue_items.queues_with_withheld(tx):
        queue_items.release_withheld(tx, queue)
        dispatch(context, tx, queue)


# Sessions


def on_session_bound(context: Context, tx: Transaction, sender: Sender) -> None:
    """Add a new session to its queues' members; it gets items after the answer to its bind."""
    is_member = _add_session(context, tx, sender)
    if is_member or stored_notifications.waiting(tx, sender.account, sender.full):
        tx.wake_at(tx.now.service)


def on_accepting(context: Context, tx: Transaction, sender: Sender) -> None:
    """Send a session its waiting notifications, and assign items to it."""
    notifications.flush(tx, sender)
    if _add_session(context, tx, sender):
        on_ready(context, tx, sender)


def on_ready(context: Context, tx: Transaction, sender: Sender) -> None:
    """Assign items to a session that is connected again or whose QoS support is now known.

    If the session is a member of a share that requires QoS support, and it is unknown whether the
    session has it, this is queried now, even if no item is ready.
    """
    found = queue_members.queues_of(tx, sender.generation)
    for queue in found:
        queue_items.release_withheld(tx, queue)
    dispatch_all(context, tx, found)
    if found:
        unknown = queue_members.with_unknown_qos(tx, generation=sender.generation)
        share_delivery.learn_qos(context, tx, unknown)


def on_detached(context: Context, tx: Transaction, sender: Sender) -> None:
    """Assign ready items to others when a resumable session disconnects; it keeps its own items."""
    dispatch_all(context, tx, queue_members.queues_of(tx, sender.generation))


def on_unavailable(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back the items of a session that is no longer available."""
    touched = queue_members.queues_of(tx, sender.generation)
    queue_members.remove_session(tx, sender.generation, context.limits.unacknowledged_bytes)
    touched += _take_share_items(
        context, tx, queue_items.reassignable(tx, sender.full), Loss.UNAVAILABLE
    )
    touched += _take_node_items(context, tx, sender, Loss.UNAVAILABLE)
    dispatch_all(context, tx, touched)


def on_session_lost(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back the items of queue nodes from a session that ends while the gateway runs."""
    touched = queue_members.queues_of(tx, sender.generation)
    queue_members.remove_session(tx, sender.generation, context.limits.unacknowledged_bytes)
    touched += _take_node_items(context, tx, sender, Loss.CONNECTION)
    dispatch_all(context, tx, touched)


def on_session_end(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back the items of shared subscriptions, except those sent at QoS 2, from a session that
    ends for any reason."""
    queue_members.remove_session(tx, sender.generation, context.limits.unacknowledged_bytes)
    items = queue_items.reassignable(tx, sender.full)
    dispatch_all(context, tx, _take_share_items(context, tx, items, Loss.CONNECTION))


def on_state_end(context: Context, tx: Transaction, full: str) -> None:
    """Take back the items that a session keeps although it left their shares."""
    for row in outbox.find_of_session(tx, full.partition("@")[0], full):
        item = queue_items.get(tx, row.queue_item or 0)
        if item is not None:
            _take_from_subscription(context, tx, item, Loss.UNSUBSCRIBED)
        elif row.queue_item is not None:  # its share has ended
            outbox.remove(tx, row)


def on_shutdown(_context: Context, tx: Transaction, _sender: Sender) -> None:
    """Remove all members when the gateway stops, so that items of ending sessions are not assigned
    to the remaining sessions."""
    queue_members.remove_all(tx)


def _add_session(context: Context, tx: Transaction, sender: Sender) -> bool:
    max_bytes = context.limits.unacknowledged_bytes
    return queue_members.add_session(tx, sender.generation, sender.full, max_bytes)


def _take_node_items(context: Context, tx: Transaction, sender: Sender, loss: Loss) -> list[int]:
    """Return the numbers of the items' queues."""
    touched = []
    for item in queue_items.locked_by(tx, sender.full):
        if item.until is not None:
            operations.handle_loss(context, tx, item, loss)
            touched.append(item.queue)
    return touched


def _take_share_items(
    context: Context, tx: Transaction, items: Iterable[QueuedItem], loss: Loss
) -> list[int]:
    """Take back `items` of shared subscriptions, which are at QoS 1, or at QoS 2 and never sent;
    return the numbers of their queues."""
    touched = []
    for item in items:
        row = outbox.find(tx, item.outbox or 0)
        if row is not None:
            outbox.remove(tx, row)
        if row is not None and row.state == State.QUEUED and not row.attempts:
            operations.make_ready_unsent(context, tx, item)
        else:
            operations.handle_loss(context, tx, item, loss, qos=1)
        touched.append(item.queue)
    return touched


# Deliveries to members of shared subscriptions


def on_qos_0_acknowledged(
    context: Context, tx: Transaction, sender: Sender | None, _rows: Sequence[int]
) -> None:
    """Assign more items to a session after it acknowledged items at QoS 0."""
    if sender is not None:
        queue_members.count_sent(tx, sender.generation, context.limits.unacknowledged_bytes)
        dispatch_all(context, tx, queue_members.queues_of(tx, sender.generation))


def on_qos_0_unacknowledged(
    _context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]
) -> None:
    """Log the number of items at QoS 0 that were lost because their session ended."""
    text = "items of shared subscriptions at QoS 0 were lost because their session ended"
    count = float(len(rows))
    event = NewEvent("message", name="share_lost", value=count, level="Notice", text=text)
    events.append(tx, events.SYSTEM, event)


def on_message_ended(
    context: Context,
    tx: Transaction,
    row: OutboxRow,
    event: Input,
    state: State,
    failure: DeliveryFailure,
) -> None:
    """Complete, reassign or dead-letter an item when its message in the outbox ends.

    Args:
        row: the message; it is removed from the outbox.
        event: the outbox `Input` that ended the message or, at QoS 1, took it from its session.
        state: the new state of the message.
        failure: why the message was not delivered; ignored if it was.
    """
    item = queue_items.get(tx, row.queue_item or 0)
    if item is None or item.outbox != row.row:
        outbox.remove(tx, row)
    elif state is State.DONE:
        outbox.remove(tx, row)
        operations.complete(context, tx, item)
    elif row.qos == 1 and not failure.is_final:
        outbox.remove(tx, row)
        if item.state == "locked":
            loss = _QOS_1_LOSSES.get(event, Loss.TIMEOUT)
            operations.handle_loss(context, tx, item, loss, row.qos)
            dispatch(context, tx, item.queue)
    elif state is State.IN_DOUBT:
        outbox.give_up(context, tx, row, state, failure)
        operations.complete(context, tx, item)
    elif state in TERMINAL:
        outbox.remove(tx, row)
        operations.dead_letter(context, tx, item, failure.text)
        dispatch(context, tx, item.queue)


# Time, restarts and other processes


def on_timer(context: Context, tx: Transaction) -> None:
    """Handle ended locks, delays and times to live, and waiting notifications; then assign items,
    also to members whose outbox was full."""
    _take_back_after_restart(context, tx)
    notifications.on_timer(context, tx)  # before an item is assigned again
    timed_out, expired = queue_items.lock_timeouts(tx), queue_items.expired(tx)
    for item in timed_out:
        operations.handle_loss(context, tx, item, Loss.TIMEOUT)
    for item in expired:
        operations.dead_letter(context, tx, item, "expired")
    released = queue_items.release_delayed(tx)
    queue_members.clear_stalls(tx, context.limits.unacknowledged_bytes)
    dispatch_all(context, tx, queue_members.dispatchable(tx))
    share_delivery.learn_qos(context, tx, queue_members.with_unknown_qos(tx))
    if BATCH in (len(timed_out), len(expired), released):
        tx.wake_at(tx.now.service)
    next_timer = queue_items.next_timer(tx)
    if next_timer is not None:
        tx.wake_at(next_timer)
    if queue_members.has_stalled(tx):
        tx.wake_at(tx.now.service + STALL)


def _take_back_after_restart(context: Context, tx: Transaction) -> None:
    """Take back items of shared subscriptions from sessions that ended with the last process."""
    if queue_items.is_restart_handled(tx):
        return
    found = queue_items.reassignable_after_restart(tx)
    dispatch_all(context, tx, _take_share_items(context, tx, found, Loss.RESTART))
    if len(found) < BATCH:
        queue_items.set_restart_handled(tx)
    else:
        tx.wake_at(tx.now.service)


def on_external_change(context: Context, tx: Transaction) -> None:
    """Handle items that another process unlocked or requeued, and accounts that it removed."""
    for queue in queues.shares_without_members(tx):
        _end_share(tx, queue)
        queries.invalidate_filters(tx)
    for _batch in range(ORPHAN_BATCHES):
        found = queue_items.orphaned(tx)
        for item in found:
            _take_from_subscription(context, tx, item, Loss.UNSUBSCRIBED)
        if len(found) < BATCH:
            break
    queue_members.recount_locking(tx, context.limits.unacknowledged_bytes)
    on_timer(context, tx)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_session_bound.append(on_session_bound)
    hooks.on_accepting.append(on_accepting)
    hooks.on_qos_known.append(on_ready)
    hooks.on_detached.append(on_detached)
    hooks.on_resumed.append(on_ready)
    hooks.on_unavailable.append(on_unavailable)
    hooks.on_session_lost.append(on_session_lost)
    hooks.on_session_end.append(on_session_end)
    hooks.on_state_end.append(on_state_end)
    hooks.on_shutdown.append(on_shutdown)
    hooks.add(hooks.on_acknowledged, stored_notifications.KIND, notifications.on_acknowledged)
    hooks.add(hooks.on_unacknowledged, stored_notifications.KIND, notifications.on_unacknowledged)
    hooks.add(hooks.on_acknowledged, share_delivery.QOS_0, on_qos_0_acknowledged)
    hooks.add(hooks.on_unacknowledged, share_delivery.QOS_0, on_qos_0_unacknowledged)
    hooks.on(AVAILABLE_AGAIN, on_accepting)
    hooks.on(PUBSUB_UNAVAILABLE, on_unavailable)
    hooks.on(outbox.ITEM_MESSAGE_ENDED, on_message_ended)
    hooks.on_timer.append(on_timer)
    hooks.on_external_change.append(on_external_change)
