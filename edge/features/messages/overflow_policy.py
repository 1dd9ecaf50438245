"""What a session had no room for, since it does not take what it was sent: back, while it goes on.

A message for the account is stored, as for somebody who is away, and sent when the session has
taken what is before it; those that come later stand in line behind it (RFC 6120, section 10.1). Who
sent anything else is told, if it is something that is answered at all. What fits is decided in
`rules.shares`, what a session ended without is `returned`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.engine.refusals import log_source
from edge.features.messages import offline, rules, unacked_stanzas
from edge.features.messages.message_routing import Letter, Refusal, post
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import parse_fragment

RULE: Final = "crowded"
"""The rule under which it is logged that a stanza found no room and was not stored."""

_STORED: Final = (MessageType.NORMAL, MessageType.CHAT)


def turn_back(context: Context, tx: Transaction, generation: int, stanzas: Iterable[bytes]) -> None:
    """Deal with stanzas (raw, stamped) that a session had no room for, in order.

    What units before in this transaction have for its account was sent after them: it stands in
    line behind them.
    """
    recipient = sessions.sender(tx, generation)
    if recipient is None:
        unacked_stanzas.take_all_back(context, tx, stanzas)
        return
    for stanza in (*stanzas, *_behind(tx, generation)):
        _turn_back(context, tx, stanza)
    offline.flush_best(context, tx, recipient.account)


def _behind(tx: Transaction, generation: int) -> Iterator[bytes]:
    for send in tx.withdraw(generation):
        if send.receipt is None and _is_for_account(send.stanza):
            yield send.stanza
        else:
            tx.send(*send)


def _is_for_account(stanza: bytes) -> bool:
    if not stanza.startswith(b"<message"):
        return False
    tree = parse_fragment(stanza)
    return (
        rules.parse_type(tree.get("type")) in _STORED and not jid.parse(tree.get("to", "")).resource
    )


def _turn_back(context: Context, tx: Transaction, stanza: bytes) -> None:
    tree = parse_fragment(stanza)
    refusal = _refuse_or_store(context, tx, tree, stanza)
    if refusal is not None:
        log_source(context, tx, jid.parse(tree.get("from", "")).bare, refusal.rule, refusal.figure)
        if refusal.error is not None:
            unacked_stanzas.tell(tx, tree, refusal.error)


def _refuse_or_store(
    context: Context, tx: Transaction, tree: Element, stanza: bytes
) -> Refusal | None:
    figure = context.limits.unacknowledged_bytes
    error = StanzaError("resource-constraint", "the session takes nothing just now")
    if tree.tag == unacked_stanzas.IQ and tree.get("type") in ("get", "set"):
        return Refusal(RULE, error, figure)
    kind = rules.parse_type(tree.get("type"))
    if tree.tag != unacked_stanzas.MESSAGE or kind is MessageType.ERROR:
        return Refusal(RULE, None, figure)
    if not (_is_for_account(stanza) and offline.stores_messages(context.xmpp)):
        return Refusal(RULE, error, figure)
    address = jid.parse(tree.get("to", ""))
    lasting = offline.worth_storing([child.tag for child in tree])
    letter = Letter(stanza, tree.get("from", ""), address.local, kind, lasting)
    return post(context, tx, letter, Route(Outcome.STORE))
