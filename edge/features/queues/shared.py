"""What comes of items of shares that were sent to members: how they end, and come back.

One at level 0 is over by being sent. At levels 1 and 2 the end of its message in the outbox is the
item's: it is done, another's, or dead, by `rules.queue`. A session that goes, or was there before
the gateway was restarted, gives back what it had at level 1, and what it was never sent. How items
are sent is `sharing`'s. Source: MQTT-234, as the project's protocol decisions complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine import events
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context, Hooks
from edge.features.outbox import undelivered
from edge.features.outbox.rules import TERMINAL, Input, State
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutboxRow
from edge.features.outbox.undelivered import ITEM_MESSAGE_ENDED
from edge.features.queues import operations
from edge.features.queues.dispatch import pump_all
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.sharing import PLAIN
from edge.features.queues.store import queue_items, queue_members
from edge.features.queues.store.queue_items import Item
from edge.xmpp.errors import StanzaError

_LOSSES: Final = {Input.FINAL_ERROR: Loss.REFUSED, Input.SESSION_LOST: Loss.CONNECTION}
"""How an item at level 1 and its member parted; all else is a matter of time."""


def handed(
    context: Context,
    tx: Transaction,
    row: OutboxRow,
    event: Input,
    state: State,
    error: StanzaError,
) -> None:
    """Take the end of the message by which an item was sent: the item is done, another's or dead.

    Args:
        context: what handlers know.
        tx: the transaction.
        row: the message in the outbox, which is taken out of it here.
        event: what has ended it, or parted it from its session at level 1.
        state: what it has become.
        error: why, if it was not delivered.
    """
    item = queue_items.get(tx, row.queue_item or 0)
    if item is None or item.outbox != row.row:
        outbox.remove(tx, row)
    elif state is State.DONE:
        outbox.remove(tx, row)
        operations.done(context, tx, item)
    elif row.qos == 1:
        outbox.remove(tx, row)
        operations.give_back(context, tx, item, _LOSSES.get(event, Loss.TIMEOUT), row.qos)
    elif state is State.IN_DOUBT:
        undelivered.give_up(context, tx, row, state, error)
        operations.done(context, tx, item)
    elif state in TERMINAL:
        outbox.remove(tx, row)
        operations.bury(context, tx, item, str(error))


def lost(_context: Context, tx: Transaction, _sender: Sender | None, rows: Sequence[int]) -> None:
    """Log how many items at level 0 a session ended without: nobody else gets them."""
    text = "items of shares at level 0 were lost with a session"
    count = float(len(rows))
    event = NewEvent("message", name="share_lost", value=count, level="Notice", text=text)
    events.append(tx, events.SYSTEM, event)


def leaves(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take back what a session has that is over, but for what is bound to its member."""
    _part(context, tx, sender, Loss.CONNECTION)


def away(context: Context, tx: Transaction, sender: Sender) -> None:
    """Take that back from a session that says that it goes."""
    _part(context, tx, sender, Loss.UNAVAILABLE)


def _part(context: Context, tx: Transaction, sender: Sender, loss: Loss) -> None:
    queue_members.remove_session(tx, sender.generation)
    _take_back(context, tx, queue_items.reassignable(tx, sender.full), loss)


def _take_back(context: Context, tx: Transaction, items: Sequence[Item], loss: Loss) -> None:
    """Let items wait again that are at level 1, or were never sent: then nobody has them yet."""
    for item in items:
        row = outbox.find(tx, item.outbox or 0)
        if row is not None:
            outbox.remove(tx, row)
        if row is not None and row.state == State.QUEUED.value and not row.attempts:
            operations.unsent(context, tx, item)
        else:
            operations.lose(context, tx, item, loss, qos=1)
    pump_all(context, tx, (item.queue for item in items))


def due(context: Context, tx: Transaction) -> None:
    """After a start, take back what the sessions of before had: nobody is there then."""
    if queue_items.is_restart_handled(tx):
        return
    found = queue_items.reassignable_after_restart(tx)
    _take_back(context, tx, found, Loss.RESTART)
    if len(found) < queue_items.BATCH:
        queue_items.set_restart_handled(tx)
    else:
        tx.wake_at(tx.now.service)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.on(ITEM_MESSAGE_ENDED, handed)
    hooks.on_unacknowledged(PLAIN, lost)
    hooks.on_session_end(leaves)
    hooks.on_unavailable(away)
    hooks.on_timer(due)
