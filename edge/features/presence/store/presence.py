"""Presence: what each session shows, to whom it showed itself of its own, and who sees whom.

Rows of sessions come and go in `sessions`; who may see what is decided in `rules.access`, from
what the rows here tell. Source: RFC 6121, section 4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction

RECEIPT: Final = "presence"
"""The kind of receipt of a page of contacts; its row is the generation that the page ended with."""

_SHOW: Final = """
UPDATE temp.sessions SET available = 1, priority = ?, presence = ? WHERE generation = ?
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
    """A session that hears an account's broadcasts: `subscription` is what the account's own roster
    says of it."""

    generation: int
    bare: str
    subscription: str


class ContactPresence(NamedTuple):
    """A contact's session that an account asked to see: its number, and its last presence (raw,
    stamped).

    `subscription` is what the contact's roster says of the account; `usable` tells that the contact
    is not revoked.
    """

    generation: int
    presence: bytes
    full: str
    subscription: str
    usable: bool


def set_available(tx: Transaction, generation: int, presence: bytes, priority: int) -> None:
    """Keep what a session broadcasts: it is available now."""
    tx.run(_SHOW, (priority, presence, generation))


def set_unavailable(tx: Transaction, generation: int) -> None:
    """Note that a session is not available any more."""
    tx.run(_HIDE, (generation,))


def set_interested(tx: Transaction, generation: int) -> None:
    """Note that a session has asked for its roster, and hears of its changes."""
    tx.run(_INTERESTED, (generation,))


def broadcast_recipients(tx: Transaction, account: int) -> list[Recipient]:
    """Return the available sessions of all whom an account shows its presence."""
    return [Recipient(*row) for row in tx.rows(_AUDIENCE, (account,))]


def subscribers_of_removed(tx: Transaction, bare: str) -> list[Recipient]:
    """Return the available sessions of all who believe to see an account that is removed."""
    return [Recipient(*row) for row in tx.rows(_BELIEVERS, (bare,))]


def contact_presences(
    tx: Transaction, account: int, bare: str, after: int, count: int, max_bytes: int
) -> list[ContactPresence]:
    """Return the available sessions of all contacts whose presence an account has asked for.

    `account` and `bare` are the same one's. In order of generations, those beyond `after`: at most
    `count`, whose presences have at most `max_bytes`. There is always one, if there is any.
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
    """Note that a session has shown itself to an address of its own."""
    tx.run(_DIRECT, (generation, target))


def remove_directed(tx: Transaction, generation: int, target: str) -> None:
    """Note that a session has told an address itself that it is gone."""
    tx.run(_UNDIRECT, (generation, target))


def clear_directed(tx: Transaction, generation: int) -> None:
    """Forget to whom a session has shown itself."""
    tx.run(_UNDIRECT_ALL, (generation,))


def directed_targets(tx: Transaction, generation: int) -> list[str]:
    """Return to whom a session has shown itself: at most `limits.directed_presences`."""
    return [str(row[0]) for row in tx.rows(_DIRECTED, (generation,))]
