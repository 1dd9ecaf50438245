"""Presence of sessions: availability, directed presence, and the sessions that receive broadcasts.

Rows of `temp.sessions` are created and deleted by the engine. Source: RFC 6121, section 4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine import sessions
from edge.engine.database import Transaction

RECEIPT: Final = "presence"
"""`Receipt.kind` of the stanza that ends a page of contacts' presence, if another page follows.

The receipt's `row` is the generation of the last session in the page.
"""

_SHOW: Final = """
UPDATE temp.sessions
SET available = 1, priority = ?, presence = ?, pubsub_unavailable = pubsub_unavailable AND available
WHERE generation = ?
"""
_HIDE: Final = """
UPDATE temp.sessions SET available = 0, priority = 0, presence = NULL WHERE generation = ?
"""
_INTERESTED: Final = "UPDATE temp.sessions SET interested = 1 WHERE generation = ?"
_AUDIENCE: Final = """
SELECT s.generation, s.bare, r.subscription
FROM main.roster AS r JOIN temp.sessions AS s ON s.bare = r.jid
WHERE r.account = ? AND r.listed = 1 AND r.subscription IN ('from', 'both') AND s.available = 1
ORDER BY s.generation
"""
_BELIEVERS: Final = """
SELECT s.generation, s.bare, 'none'
FROM temp.sessions AS s JOIN main.accounts AS a ON a.name = s.account
JOIN main.roster AS r ON r.account = a.id AND r.jid = ? AND r.subscription IN ('to', 'both')
WHERE s.available = 1 ORDER BY s.generation
"""
_VISIBLE: Final = """
WITH page AS (
    SELECT s.generation, theirs.subscription, a.revoked IS NULL AS usable
    FROM main.roster AS mine
    JOIN temp.sessions AS s ON s.bare = mine.jid AND s.available = 1
    JOIN main.accounts AS a ON a.name = s.account
    JOIN main.roster AS theirs ON theirs.account = a.id AND theirs.jid = ? AND theirs.listed = 1
    WHERE mine.account = ? AND mine.subscription IN ('to', 'both') AND s.generation > ?
    ORDER BY s.generation LIMIT ?
)
SELECT s.generation, s.presence, s.full, page.subscription, page.usable
FROM page JOIN temp.sessions AS s ON s.generation = page.generation
ORDER BY s.generation
"""
_DIRECT: Final = """
INSERT INTO temp.directed (generation, target) VALUES (?, ?) ON CONFLICT DO NOTHING
"""
_UNDIRECT: Final = "DELETE FROM temp.directed WHERE generation = ? AND target = ?"
_UNDIRECT_ALL: Final = "DELETE FROM temp.directed WHERE generation = ?"
_DIRECTED: Final = "SELECT target FROM temp.directed WHERE generation = ? ORDER BY target"


class Recipient(NamedTuple):
    """A session that receives an account's presence broadcasts.

    `subscription` is that of the receiver's entry in the broadcasting account's roster: `from` or
    `both`; `none` if the broadcasting account was removed.
    """

    generation: int
    bare: str
    subscription: str


class ContactPresence(NamedTuple):
    """The presence of a contact's session, for an account that is subscribed to the contact.

    Args:
        generation: the number of the contact's session.
        presence: the session's last presence as received, stamped with its sender.
        full: the session's full JID.
        subscription: the account's subscription in the contact's roster.
        usable: whether the contact's account is not revoked.
    """

    generation: int
    presence: bytes
    full: str
    subscription: str
    usable: bool


def set_available(tx: Transaction, generation: int, presence: bytes, priority: int) -> None:
    """Record that a session is available, and store the presence that it broadcasts.

    Initial presence also makes the session available to the publish-subscribe service again.
    """
    tx.run(_SHOW, (priority, presence, generation))
    sessions.forget_cached(tx, generation)


def set_unavailable(tx: Transaction, generation: int) -> None:
    """Record that a session is unavailable."""
    tx.run(_HIDE, (generation,))
    sessions.forget_cached(tx, generation)


def set_interested(tx: Transaction, generation: int) -> None:
    """Record that a session requested the roster and receives roster pushes."""
    tx.run(_INTERESTED, (generation,))
    sessions.forget_cached(tx, generation)


def broadcast_recipients(tx: Transaction, account: int) -> list[Recipient]:
    """Return the available sessions of all contacts that are subscribed to an account."""
    return [Recipient(*row) for row in tx.rows(_AUDIENCE, (account,))]


def subscribers_of_removed(tx: Transaction, bare: str) -> list[Recipient]:
    """Return the available sessions of all accounts that are subscribed to a removed account."""
    return [Recipient(*row) for row in tx.rows(_BELIEVERS, (bare,))]


def contact_presences(
    tx: Transaction, account: int, bare: str, after: int, count: int, max_bytes: int
) -> list[ContactPresence]:
    """Return a page of available sessions of the contacts to which an account is subscribed.

    The page starts after the generation `after` and holds at most `count` sessions and `max_bytes`
    of presence. The first session is returned even if its presence is larger. `account` and `bare`
    are the row and the bare JID of the same account.
    """
    found: list[ContactPresence] = []
    room = max_bytes
    for generation, raw, full, subscription, usable in tx.run(
        _VISIBLE, (bare, account, after, count)
    ):
        room -= len(raw)
        if found and room < 0:
            break
        found.append(ContactPresence(generation, bytes(raw), full, subscription, bool(usable)))
    return found


def add_directed(tx: Transaction, generation: int, target: str) -> None:
    """Record that a session sent directed presence to a target."""
    tx.run(_DIRECT, (generation, target))


def remove_directed(tx: Transaction, generation: int, target: str) -> None:
    """Record that a session sent directed unavailable presence to a target."""
    tx.run(_UNDIRECT, (generation, target))


def clear_directed(tx: Transaction, generation: int) -> None:
    """Forget all targets of a session's directed presence."""
    tx.run(_UNDIRECT_ALL, (generation,))


def directed_targets(tx: Transaction, generation: int) -> list[str]:
    """Return the targets of a session's directed presence.

    There are at most `limits.directed_presences`.
    """
    return [str(row[0]) for row in tx.rows(_DIRECTED, (generation,))]
