"""Temporary tables of entity capabilities: disco#info queries to sessions, and verified hashes.

They are lost in a restart, so one device of each kind is then queried again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.store.database import Transaction

BATCH_SIZE: Final = 64
"""Maximum number of overdue queries that are handled in one unit of work."""

_FIND: Final = """
SELECT number, hash, node, ver, by_node, times, due FROM temp.asked WHERE generation = ?
"""
_BEGIN: Final = (
    "INSERT INTO temp.asked (generation, hash, node, ver, by_node) VALUES (?, ?, ?, ?, ?)"
)
_SENT: Final = "UPDATE temp.asked SET times = times + 1, by_node = ?, due = ? WHERE generation = ?"
_DUE: Final = "UPDATE temp.asked SET due = ? WHERE generation = ?"
_FORGET: Final = "DELETE FROM temp.asked WHERE generation = ?"
_OVERDUE: Final = """
SELECT a.generation, s.full FROM temp.asked AS a JOIN temp.sessions AS s USING (generation)
WHERE a.due <= ? ORDER BY a.due LIMIT ?
"""
_FIRST: Final = "SELECT min(due) FROM temp.asked WHERE due IS NOT NULL"
_KNOWN: Final = """
UPDATE temp.capabilities SET used = (SELECT max(used) + 1 FROM temp.capabilities)
WHERE hash = ? AND ver = ? RETURNING qos
"""
_KEEP: Final = """
INSERT INTO temp.capabilities (hash, ver, qos, used)
VALUES (?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM temp.capabilities))
ON CONFLICT (hash, ver) DO NOTHING
"""
_BOUND: Final = """
DELETE FROM temp.capabilities WHERE used NOT IN (
    SELECT used FROM temp.capabilities ORDER BY used DESC LIMIT ?
)
"""


class CapsQuery(NamedTuple):
    """A disco#info query to a session, and the capabilities that the session had announced.

    Attributes:
        number: a number that is a part of the query's id.
        hash: the hash function announced, or `None` if nothing was announced.
        node: the node announced, or `None`.
        ver: the verification string announced, or `None`.
        by_node: whether the query names the announced node.
        times: how often the query was sent.
        due: the service second at which the answer is overdue; `None` if no answer is expected.
    """

    number: int
    hash: str | None
    node: str | None
    ver: str | None
    by_node: bool
    times: int
    due: float | None


def find_query(tx: Transaction, generation: int) -> CapsQuery | None:
    """Return the recorded query to a session and what it announced, or `None` without a record."""
    row = tx.row(_FIND, (generation,))
    if row is None:
        return None
    number, hash_, node, ver, by_node, times, due = row
    return CapsQuery(number, hash_, node, ver, bool(by_node), times, due)


def add_query(tx: Transaction, generation: int, hash_: str, node: str, ver: str) -> None:
    """Record the capabilities that a session announced, before it is queried.

    `hash_`, `node` and `ver` are empty if the session announced none.
    """
    announced = (hash_ or None, node or None, ver or None)
    tx.run(_BEGIN, (generation, *announced, bool(hash_)))


def mark_sent(tx: Transaction, generation: int, *, by_node: bool, due: float) -> None:
    """Record that the query to a session is sent, with these values (see `CapsQuery`)."""
    tx.run(_SENT, (by_node, due, generation))
    tx.wake_at(due)


def set_due(tx: Transaction, generation: int, due: float | None) -> None:
    """Set the service second at which the answer to a session's query is overdue; `None` if no
    answer is expected any more."""
    tx.run(_DUE, (due, generation))


def delete_query(tx: Transaction, generation: int) -> None:
    """Delete the query to a session and the capabilities that it announced."""
    tx.run(_FORGET, (generation,))


def find_overdue(tx: Transaction) -> list[tuple[int, str]]:
    """Return up to `BATCH_SIZE` sessions with an overdue answer to a query: generation, JID."""
    return [(row[0], row[1]) for row in tx.rows(_OVERDUE, (tx.now.service, BATCH_SIZE))]


def next_due_time(tx: Transaction) -> float | None:
    """Return the service second at which the next answer is overdue, or `None`."""
    due: float | None = tx.row(_FIRST)[0]
    return due


def find_verified(tx: Transaction, hash_: str, ver: str) -> str | None:
    """Return the QoS namespace that a verified hash stands for, or `None` if the hash is unknown.

    The namespace is empty if devices with this hash do not support QoS.
    """
    row = tx.row(_KNOWN, (hash_, ver))
    return None if row is None else str(row[0])


def add_verified(tx: Transaction, hash_: str, ver: str, qos: str, most: int) -> None:
    """Store the QoS namespace `qos` that devices with the verified capabilities hash `ver` support.

    Of all hashes, only the `most` most recently used ones are kept.
    """
    tx.run(_KEEP, (hash_, ver, qos))
    tx.run(_BOUND, (most,))
