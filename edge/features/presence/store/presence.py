"""Presence of sessions: what they broadcast, directed presence, and who receives broadcasts.

The rows of a session are deleted with that of the session. Source: RFC 6121, section 4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.store.database import Transaction

RECEIPT: Final = "presence"
"""`Receipt.kind` of the stanza that ends a page of contacts' presence, if another page follows.

The receipt's `row` is the generation of the last session in the page.
"""

_SHOW: Final = "INSERT OR REPLACE INTO temp.presences (generation, stanza) VALUES (?, ?)"
_HIDE: Final = "DELETE FROM temp.presences WHERE generation = ?"
_SHOWN: Final = "SELECT stanza FROM temp.presences WHERE generation = ?"
_OF_ACCOUNT: Final = """
SELECT s.generation, s.full, p.stanza
FROM temp.sessions AS s JOIN temp.presences AS p USING (generation)
WHERE s.bare = ? ORDER BY s.rank DESC, s.generation DESC
"""
_SET_INTERESTED: Final = "INSERT OR IGNORE INTO temp.interested (generation) VALUES (?)"
_INTERESTED: Final = """
SELECT s.generation, s.full FROM temp.sessions AS s JOIN temp.interested USING (generation)
WHERE s.bare = ? ORDER BY s.rank DESC, s.generation DESC
"""
_AUDIENCE: Final = """
SELECT s.generation, s.bare, r.subscription
FROM main.roster AS r JOIN temp.sessions AS s ON s.bare = r.jid
    JOIN temp.presences AS p USING (generation)
WHERE r.account = ? AND r.listed = 1 AND r.subscription IN ('from', 'both')
ORDER BY s.generation
"""
_BELIEVERS: Final = """
SELECT s.generation, s.bare, 'none'
FROM temp.sessions AS s JOIN main.accounts AS a ON a.name = s.account
JOIN main.roster AS r ON r.account = a.id AND r.jid = ? AND r.subscription IN ('to', 'both')
JOIN temp.presences AS p ON p.generation = s.generation ORDER BY s.generation
"""
_VISIBLE: Final = """
WITH page AS (
    SELECT s.generation, theirs.subscription, a.revoked IS NULL AS usable
    FROM main.roster AS mine
    JOIN temp.sessions AS s ON s.bare = mine.jid
    JOIN temp.presences AS p ON p.generation = s.generation
    JOIN main.accounts AS a ON a.name = s.account
    JOIN main.roster AS theirs ON theirs.account = a.id AND theirs.jid = ? AND theirs.listed = 1
    WHERE mine.account = ? AND mine.subscription IN ('to', 'both') AND s.generation > ?
    ORDER BY s.generation LIMIT ?
)
SELECT s.generation, p.stanza, s.full, page.subscription, page.usable
FROM page JOIN temp.sessions AS s ON s.generation = page.generation
    JOIN temp.presences AS p ON p.generation = page.generation
ORDER BY s.generation
"""
_DIRECT: Final = """
INSERT INTO temp.directed (generation, target) VALUES (?, ?) ON CONFLICT DO NOTHING
"""
_UNDIRECT: Final = "DELETE FROM temp.directed WHERE generation = ? AND target = ?"
_UNDIRECT_ALL: Final = "DELETE FROM temp.directed WHERE generation = ?"
_DIRECTED: Final = "SELECT target FROM temp.directed WHERE generation = ? ORDER BY target"


class ShownSession(NamedTuple):
    """An available session, and the last presence that it broadcast."""

    generation: int
    full: str
    stanza: bytes


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


def set_shown(tx: Transaction, generation: int, stanza: bytes) -> None:
    """Store the available presence that a session broadcasts."""
    tx.run(_SHOW, (generation, stanza))


def clear_shown(tx: Transaction, generation: int) -> None:
    """Delete the presence of a session that becomes unavailable."""
    tx.run(_HIDE, (generation,))


def find_shown(tx: Transaction, generation: int) -> bytes | None:
    """Return the last presence that a session broadcast; `None` if it is not available."""
    row = tx.row(_SHOWN, (generation,))
    return None if row is None else bytes(row[0])


def available_sessions(tx: Transaction, bare: str) -> list[ShownSession]:
    """Return the available sessions of an account, in the order of `sessions.of_account`."""
    return [ShownSession(*row) for row in tx.rows(_OF_ACCOUNT, (bare,))]


def set_interested(tx: Transaction, generation: int) -> None:
    """Record that a session requested the roster and receives roster pushes."""
    tx.run(_SET_INTERESTED, (generation,))


def interested_sessions(tx: Transaction, bare: str) -> list[tuple[int, str]]:
    """Return generation and full JID of an account's sessions that have requested the roster."""
    return tx.rows(_INTERESTED, (bare,))


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
