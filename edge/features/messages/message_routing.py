"""Carrying out where a message goes: to sessions, into store, or back with an error.

Where that is was decided in `rules.routing`. A message that is new (`message`) and one that a
session ended without (`returned`) come here alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.messages import offline
from edge.features.messages import store as stored
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.xmpp.errors import StanzaError

NOBODY_THERE: Final = "nobody_there"
"""The rule under which it is logged that a message went nowhere, since nobody was there."""


class Letter(NamedTuple):
    """A message for an account: addressed, stamped with its sender (a full JID).

    `lasting` tells whether it is worth storing, `delayed` whether it has the stamp of a delay,
    `returned` whether a session had it and ended without it.
    """

    stanza: bytes
    sender: str
    account: str
    kind: MessageType
    lasting: bool
    delayed: bool = False
    returned: bool = False


class Refusal(NamedTuple):
    """Why a message goes nowhere: the rule, what its sender is told, and the limit's figure.

    Without an error the sender is told nothing, and the refusal is logged all the same.
    """

    rule: str
    error: StanzaError | None
    figure: int | None = None


def post(context: Context, tx: Transaction, letter: Letter, route: Route) -> Refusal | None:
    """Send or store a message as its route says; returns why it went nowhere, if it did."""
    if route.outcome is Outcome.BEST and _stands_in_line(context, tx, letter):
        refusal = _store(context, tx, letter)
        offline.flush_best(context, tx, letter.account)
        return refusal
    if route.outcome is Outcome.STORE:
        return _store(context, tx, letter)
    if route.outcome is Outcome.REFUSE:
        return Refusal(NOBODY_THERE, StanzaError("service-unavailable"))
    if route.outcome is Outcome.IGNORE:
        return None if letter.kind is MessageType.ERROR else Refusal(NOBODY_THERE, None)
    for session in route.to:
        tx.send(session.generation, letter.stanza)
    return None


def _stands_in_line(context: Context, tx: Transaction, letter: Letter) -> bool:
    """Tell whether stored messages have to go first (RFC 6120, section 10.1)."""
    return (
        letter.lasting
        and offline.stores_messages(context.xmpp)
        and stored.has_messages(tx, letter.account)
    )


def _store(context: Context, tx: Transaction, letter: Letter) -> Refusal | None:
    if not letter.lasting:
        return None
    if not offline.stores_messages(context.xmpp):
        return Refusal(NOBODY_THERE, StanzaError("service-unavailable"))
    over = offline.store(
        context,
        tx,
        letter.account,
        letter.stanza,
        letter.sender,
        delayed=letter.delayed,
        returned=letter.returned,
    )
    if over is None:
        return None
    condition = "service-unavailable" if over.rule.startswith("offline") else "resource-constraint"
    text = f"{over.rule} is {over.figure}"
    return Refusal(over.rule, StanzaError(condition, text, type="wait"), over.figure)
