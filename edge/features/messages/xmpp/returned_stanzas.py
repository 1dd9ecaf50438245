"""Re-route stanzas that a session did not receive and that are not stored in a table.

A session can end without acknowledging its stanzas (XEP-0198, section 5), or stay bound and have no
room for them. Messages are then routed again, or stored; if that is impossible, their senders get
an error. The senders of requests get an error. Results, errors and presence are dropped. Stanzas
are XML whose `from` and `to` the gateway has set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks
from edge.engine.refusals import log_source
from edge.features.accounts import service as accounts
from edge.features.messages import rules, service
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.features.messages.service import AccountMessage, ReturnedMessages
from edge.features.messages.xmpp.messages import (
    DELAY_ELEMENT,
    SESSION_FULL,
    is_storable,
    stanza_error,
)
from edge.xmpp import jid, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, clark
from edge.xmpp.stanza import parse_fragment

_MESSAGE: Final = clark(CLIENT, "message")
_IQ: Final = clark(CLIENT, "iq")


def _is_request(tree: Element) -> bool:
    return tree.tag == _IQ and tree.get("type") in ("get", "set")


def _is_message(tree: Element) -> bool:
    kind = rules.parse_type(tree.get("type"))
    return tree.tag == _MESSAGE and kind is not MessageType.ERROR


# After a session ended


def reroute_unacknowledged(context: Context, tx: Transaction, stanzas: Iterable[bytes]) -> None:
    """Re-route the stanzas that one ended session did not receive, in order."""
    returned = ReturnedMessages(context, tx)
    for stanza in stanzas:
        tree = parse_fragment(stanza)
        if tree.get("from") is None or tree.get("to") is None:
            continue
        if _is_request(tree):
            _send_error(tx, tree, StanzaError("recipient-unavailable"))
        elif _is_message(tree):
            _reroute(context, tx, tree, stanza, returned)
    returned.finish()


def _reroute(
    context: Context, tx: Transaction, tree: Element, stanza: bytes, returned: ReturnedMessages
) -> None:
    address = jid.parse(tree.attrib["to"])
    message = _account_message(context, tree, stanza, returned=True)
    exists = accounts.is_active(tx, address.local)
    route = rules.reroute(message.kind, sessions.of_account(tx, address.bare), exists=exists)
    refusal = returned.deliver(message, route)
    if refusal is not None:
        _refuse(context, tx, tree, refusal.rule, refusal.figure, stanza_error(refusal))


def _account_message(
    context: Context, tree: Element, stanza: bytes, *, returned: bool = False
) -> AccountMessage:
    delayed = returned and any(
        child.tag == DELAY_ELEMENT and child.get("from") == context.domain for child in tree
    )
    return AccountMessage(
        stanza,
        tree.get("from", ""),
        jid.parse(tree.get("to", "")).local,
        rules.parse_type(tree.get("type")),
        is_storable([child.tag for child in tree]),
        delayed,
        returned,
    )


def reject(tx: Transaction, stanza: bytes) -> None:
    """Send an error to the sender of a message or request that is lost because it cannot be stored.

    `stanza` was for a session that has ended or has no room for it. Results, errors and presence
    are dropped.
    """
    tree = parse_fragment(stanza)
    if _is_request(tree):
        _send_error(tx, tree, StanzaError("recipient-unavailable"))
    elif _is_message(tree):
        _send_error(tx, tree, StanzaError("resource-constraint", "the gateway cannot store it now"))


def _refuse(
    context: Context,
    tx: Transaction,
    tree: Element,
    rule: str,
    figure: int | None,
    error: StanzaError | None,
) -> None:
    log_source(context, tx, jid.parse(tree.get("from", "")).bare, rule, figure)
    if error is not None:
        _send_error(tx, tree, error)


def _send_error(tx: Transaction, tree: Element, error: StanzaError) -> None:
    sender = sessions.find(tx, tree.get("from", ""))
    if sender is None:
        return
    name = "iq" if tree.tag == _IQ else "message"
    attrs = {"type": "error", "id": tree.get("id"), "to": sender.full, "from": tree.get("to")}
    tx.send(sender.generation, serialize.tag(name, attrs, serialize.stanza_error(error)))


# When a session has no room


def reroute_overflow(
    context: Context, tx: Transaction, generation: int, stanzas: Iterable[bytes]
) -> None:
    """Store or refuse stanzas, in order, because the send queue of a bound session is full.

    If the gateway stores messages, a chat or normal message to the account's bare JID is stored, to
    be sent later. To keep the order, later ones that this transaction was about to send to the
    session are stored, too. The sender of any other message, or of a request, gets an error.
    """
    recipient = sessions.sender(tx, generation)
    if recipient is None:
        reroute_unacknowledged(context, tx, stanzas)
        return
    for stanza in (*stanzas, *_withdraw_account_messages(tx, generation)):
        _reroute_overflow(context, tx, stanza)
    service.flush_to_best(context, tx, recipient.account)


def _withdraw_account_messages(tx: Transaction, generation: int) -> Iterator[bytes]:
    for send in tx.withdraw_sends(generation):
        if send.receipt is None and _is_to_account(send.stanza):
            yield send.stanza
        else:
            tx.send(*send)


def _is_to_account(stanza: bytes) -> bool:
    if not stanza.startswith(b"<message"):
        return False
    tree = parse_fragment(stanza)
    kind = rules.parse_type(tree.get("type"))
    return kind in service.STORED_TYPES and not jid.parse(tree.get("to", "")).resource


def _reroute_overflow(context: Context, tx: Transaction, stanza: bytes) -> None:
    tree = parse_fragment(stanza)
    if _is_to_account(stanza) and context.stores_messages:
        message = _account_message(context, tree, stanza)
        refusal = service.deliver(context, tx, message, Route(Outcome.STORE))
        if refusal is not None:
            _refuse(context, tx, tree, refusal.rule, refusal.figure, stanza_error(refusal))
        return
    error = None
    if _is_request(tree) or _is_message(tree):
        error = StanzaError("resource-constraint", SESSION_FULL)
    _refuse(context, tx, tree, service.NO_ROOM, context.limits.unacknowledged_bytes, error)


def register(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_unacknowledged_stanzas.append(reroute_unacknowledged)
    hooks.on_overflow.append(reroute_overflow)
    hooks.on_rejected_stanza.append(reject)
