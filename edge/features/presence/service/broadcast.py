"""Send the presence of one account's sessions to another account when a subscription changes.

Source: RFC 6121, sections 3.1.5, 3.2.2 and 3.3.3.
"""

from __future__ import annotations

from edge.engine.rules import access
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.accounts import service as accounts
from edge.features.presence.service.messages import SessionPresence, UnavailablePresence
from edge.features.presence.store.presence import ShownSession, available_sessions


def send_presence(tx: Transaction, owner: str, subscriber: str) -> None:
    """Send the presence of the owner's sessions to the subscriber's sessions (section 3.1.5).

    Sessions of the subscriber that may not see this presence are skipped. `owner` and `subscriber`
    are bare JIDs; if one has no account here, nothing is sent.
    """
    account = owner.partition("@")[0]
    for recipient in available_sessions(tx, subscriber):
        sender = sessions.sender(tx, recipient.generation)
        if sender is None:
            continue
        relation = accounts.find_relation(tx, sender, account)
        if not access.may_see_presence(sender, relation):
            continue
        for session in available_sessions(tx, owner):
            tx.send(recipient.generation, presence_of(session, subscriber))


def send_unavailable(tx: Transaction, owner: str, subscriber: str) -> None:
    """Send unavailable presence of the owner's sessions to the subscriber's sessions.

    Both are bare JIDs. Source: sections 3.2.2 and 3.3.3.
    """
    available = available_sessions(tx, owner)
    for recipient in available_sessions(tx, subscriber):
        for session in available:
            tx.send(recipient.generation, UnavailablePresence(session.full, subscriber))


def presence_of(session: ShownSession, to: str) -> SessionPresence:
    """Return the last presence of an available session, as a message to be sent to `to`."""
    return SessionPresence(session.stanza, session.full, to)
