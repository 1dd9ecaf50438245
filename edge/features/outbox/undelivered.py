"""What becomes of a message that cannot be handed on: kept as dead, logged, and its sender is told.

The sender gets a message of type error from the destination, which names what it had sent. Who is
away finds it among the stored messages; where those are at their limit, the event is what is left.
Source: XEP QoS, "Assured service": the sender is made aware.
"""

from __future__ import annotations

from typing import Final

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Event
from edge.engine.quota import Usage
from edge.features.messages import rules
from edge.features.messages import service as messages
from edge.features.messages.rules import MessageType
from edge.features.messages.service import AccountMessage
from edge.features.outbox import qos_stanzas
from edge.features.outbox.rules import Input, State
from edge.features.outbox.store import dead_letters, outbox
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.features.outbox.store.outbox import OutboxRow
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import QOS

ITEM_MESSAGE_ENDED: Final = Event[[Context, Transaction, OutboxRow, Input, State, StanzaError]](
    "item-message-ended"
)
"""Triggered when the message that carries an item of a queue has ended or left its session.

The hook is given the message, the input that ended it, its new state, and the error if it was not
delivered; it removes the message from the outbox.
"""


def give_up(
    context: Context, tx: Transaction, row: OutboxRow, state: State, error: StanzaError
) -> None:
    """Take a message out of the line that has failed, or is in doubt, and tell of it.

    Of a notification nobody is told: its sender is a node. The letter and its event are what is
    left of it.
    """
    destination = row.only_session or f"{row.recipient}@{context.domain}"
    has_it = row.session if row.state == State.RELEASED.value else None
    letter = DeadLetter(
        row.sender,
        row.msg_id,
        destination,
        row.qos,
        outbox.body(tx, row.row),
        str(error),
        state=state.value,
        recipient=row.recipient,
        outbox=row.row,
        session=has_it,
    )
    dead_letters.add(tx, letter, Usage(context.limits.dead_messages, context.limits.dead_bytes))
    outbox.remove(tx, row)
    if qos_stanzas.author(context, row) != row.sender:
        return
    if state is State.IN_DOUBT:
        text = f"in doubt, it may have been delivered: {error.text or error.condition}"
        error = StanzaError(error.condition, text, type=error.type)
    _report(context, tx, row, destination, error)


def _report(
    context: Context, tx: Transaction, row: OutboxRow, destination: str, error: StanzaError
) -> None:
    name = "assured" if row.qos == 2 else "acknowledged"
    content = serialize.tag(name, {"msgId": row.msg_id}, xmlns=QOS) + serialize.stanza_error(error)
    own, account = sessions.find(tx, row.sender), row.source.partition("@")[0]
    session = own or rules.best_session(sessions.of_account(tx, row.source))
    to = row.sender if session is None else session.full
    stanza = serialize.message("error", destination, to, content)
    kept = False
    if messages.is_store_enabled(context.xmpp) and (
        own is None or rules.best_session((own,)) is not None
    ):
        delayed = serialize.delay(context.domain, tx.now.wall)
        stored = serialize.message("error", destination, to, content + delayed)
        # of the limits for stored messages it takes from its own sender's
        message = AccountMessage(stored, row.sender, account, MessageType.ERROR, True, delayed=True)
        kept = messages.store(context, tx, message) is None
    if session is None:
        return
    if not kept:
        tx.send(session.generation, stanza)
    elif (sender := sessions.sender(tx, session.generation)) is not None:
        messages.flush(context, tx, sender)
