"""Iqs from one session to another: requests, and their answers (RFC 6121, section 8.5.3).

What they ask for is not looked at: quality of service between two devices goes this way too. A
session that waits to be resumed is sent them as any. RFC 6121 would have a request answered here
unless the two share presence; devices of one site share trust instead (`access.may_reach`).
"""

from __future__ import annotations

from typing import Final

from edge.engine import access, addresses, refusals, sessions
from edge.engine.access import Relation, Sender
from edge.engine.addresses import AddressKind
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.engine.sessions import Session
from edge.features.accounts.store import relations
from edge.xmpp import jid, replies
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza, stamped


def request(context: Context, stanza: Stanza) -> Work:
    """Relay a get or a set to the session of a full JID.

    Where it is not there, or may not be reached, the answer is the same: it tells nothing.
    """
    address = jid.parse(stanza.attrs["to"])

    def work(tx: Transaction, sender: Sender) -> bytes:
        relation = relations.find_relation(tx, sender, address.local)
        if not access.may_reach(sender, relation, context.xmpp.trust):
            if relation is not Relation.NOBODY:
                refusals.log(context, tx, sender, "untrusted")
            return _unavailable(stanza, sender)
        session = sessions.at(tx, address.full)
        if session is None:
            return _unavailable(stanza, sender)
        tx.send(session.generation, stamped(stanza, sender.full, address.full))
        return b""

    return work


def answer(context: Context, stanza: Stanza) -> Work | bytes:
    """Relay a result or an error to the session that may have asked; all else is passed over."""
    try:
        to = stanza.attrs.get("to")
        if addresses.classify(context.domain, to, "") is not AddressKind.SESSION or to is None:
            return b""
    except StanzaError:
        return b""
    full = jid.parse(to).full

    def work(tx: Transaction, sender: Sender) -> bytes:
        session = answerable(context, tx, sender, full)
        if session is not None:
            tx.send(session.generation, stamped(stanza, sender.full, full))
        return b""

    return work


def answerable(context: Context, tx: Transaction, sender: Sender, full: str) -> Session | None:
    """Return the session of a full JID if the sender may answer it, with a result or an error."""
    session = sessions.at(tx, full)
    asker = None if session is None else sessions.sender(tx, session.generation)
    if asker is None:
        return None
    relation = relations.find_relation(tx, asker, sender.account)
    may = access.may_answer(sender, asker, relation, context.xmpp.trust)
    return session if may else None


def _unavailable(stanza: Stanza, sender: Sender) -> bytes:
    error = StanzaError("service-unavailable")
    return replies.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.session_iq(request)
    hooks.other_iq_answer(answer)
