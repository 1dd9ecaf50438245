"""Relay iqs from one session to another: requests and their answers (RFC 6121, section 8.5.3).

Payloads are not inspected: QoS between two devices is relayed this way too. Iqs are also sent to
detached sessions. RFC 6121 relays only between sessions that share presence; here
`access.may_reach` decides, so devices of one site need no subscription.
"""

from __future__ import annotations

from typing import NamedTuple

from edge import jid
from edge.engine.dispatch import addresses
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.hooks import Context, Hooks, Work
from edge.engine.log import refusals
from edge.engine.rules import access
from edge.engine.rules.access import Relation, Sender
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.messages import service
from edge.jid import AddressError
from edge.routing.xmpp import XmppHooks
from edge.xmpp import PROTOCOL, replies
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza, stamped


class RelayedIq(NamedTuple):
    """An iq from one session to another; both are given by their full JIDs."""

    stanza: bytes
    sender: str
    to: str
    is_request: bool


def relay_request(context: Context, stanza: Stanza) -> Work:
    """Relay a get or a set to the session of a full JID.

    The sender gets the same error whether the session does not exist or the sender may not reach
    it, so that the error reveals nothing.
    """
    address = jid.parse(stanza.attrs["to"])

    def work(tx: Transaction, sender: Sender) -> bytes:
        relation = accounts.find_relation(tx, sender, address.local)
        if not access.may_reach(sender, relation, context.trust):
            if relation is not Relation.NOBODY:
                refusals.log(context, tx, sender, "untrusted")
            return _unavailable(stanza, sender)
        session = sessions.find(tx, address.full)
        if session is None or not session.relays:
            return _unavailable(stanza, sender)
        tx.send(session.generation, _relayed(stanza, sender, address.full, is_request=True))
        return b""

    return work


def relay_answer(context: Context, stanza: Stanza) -> Work | bytes:
    """Relay a result or an error to the session that it is addressed to.

    It is dropped if that session is not bound or may not send requests to the sender. Whether the
    session has sent a request is not checked.
    """
    try:
        to = stanza.attrs.get("to")
        if addresses.classify(context.domain, to, "") is not AddressKind.SESSION or to is None:
            return b""
    except AddressError:
        return b""
    full = jid.parse(to).full

    def work(tx: Transaction, sender: Sender) -> bytes:
        session = service.find_answerable_session(context, tx, sender, full)
        if session is not None:
            tx.send(session.generation, _relayed(stanza, sender, full, is_request=False))
        return b""

    return work


def _relayed(stanza: Stanza, sender: Sender, to: str, *, is_request: bool) -> RelayedIq:
    raw = stamped(stanza.with_stream_language, sender.full, to)
    return RelayedIq(raw, sender.full, to, is_request)


def _encode(_context: Context, iq: RelayedIq) -> bytes:
    return iq.stanza


def _unavailable(stanza: Stanza, sender: Sender) -> bytes:
    error = StanzaError("service-unavailable")
    return replies.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.stanza_handlers, "iq", relay_request)
    xmpp.other_iq_answer(relay_answer)
    hooks.encode(PROTOCOL, RelayedIq, _encode)
