"""Showing what is known of one account's sessions to another's, and taking it back.

The state of their subscription is settled before; what sessions themselves say is `presence`'s.
Source: RFC 6121, sections 3.1.5, 3.2.2 and 3.3.3.
"""

from __future__ import annotations

from edge.engine import access, sessions
from edge.engine.database import Transaction
from edge.engine.sessions import Session
from edge.features.accounts.store import relations
from edge.xmpp import serialize
from edge.xmpp.stanza import stamped


def available(tx: Transaction, bare: str) -> list[Session]:
    """Return the sessions of an account that have sent initial presence."""
    return [session for session in sessions.of_account(tx, bare) if session.available]


def show(tx: Transaction, owner: str, watcher: str) -> None:
    """Send the presence of one account's sessions to another's, if it may see them (3.1.5).

    Both are bare JIDs of this gateway, or of nobody.
    """
    account = owner.partition("@")[0]
    for listener in available(tx, watcher):
        who = sessions.sender(tx, listener.generation)
        if who is None or not access.may_see_presence(
            who, relations.find_relation(tx, who, account)
        ):
            continue
        for session in available(tx, owner):
            tx.send(listener.generation, shown(session, watcher))


def hide(tx: Transaction, owner: str, watcher: str) -> None:
    """Tell one account's sessions that those of another are gone (3.2.2, 3.3.3)."""
    gone = available(tx, owner)
    for listener in available(tx, watcher):
        for session in gone:
            tx.send(listener.generation, unavailable(session.full, watcher))


def shown(session: Session, to: str) -> bytes:
    """Make the last presence that an available session broadcast, for somebody else."""
    return stamped(session.presence or serialize.presence(), session.full, to)


def unavailable(from_: str, to: str | None = None) -> bytes:
    """Make the presence that tells that somebody is not there."""
    return serialize.presence("unavailable", from_, to)
