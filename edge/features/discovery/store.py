"""What is known of what devices can do: who was asked, and what a verified hash stands for.

The tables are temporary: a session ends with the process, and the first of its kind is asked again
after a restart. What the answer means is `handlers.capabilities`'.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction

BATCH_SIZE: Final = 64
"""Questions without an answer that are looked at in one unit of work."""

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
    """What a session was asked: the question's number, and the capabilities announced by then.

    Those are `None` where it had announced none. `by_node` tells whether they were asked for by
    their name; `times` is how often it was asked, and `due`, in service seconds, when the answer is
    late: `None` while none is waited for.
    """

    number: int
    hash: str | None
    node: str | None
    ver: str | None
    by_node: bool
    times: int
    due: float | None


def find_query(tx: Transaction, generation: int) -> CapsQuery | None:
    """Return what a session was asked, if it was."""
    row = tx.row(_FIND, (generation,))
    if row is None:
        return None
    number, hash_, node, ver, by_node, times, due = row
    return CapsQuery(number, hash_, node, ver, bool(by_node), times, due)


def add_query(tx: Transaction, generation: int, hash_: str, node: str, ver: str) -> None:
    """Note what a session has announced; all three are empty if that is nothing."""
    announced = (hash_ or None, node or None, ver or None)
    tx.run(_BEGIN, (generation, *announced, bool(hash_)))


def mark_sent(tx: Transaction, generation: int, *, by_node: bool, due: float) -> None:
    """Note that a session is asked, and when its answer is late, in service seconds."""
    tx.run(_SENT, (by_node, due, generation))
    tx.wake_at(due)


def set_due(tx: Transaction, generation: int, due: float) -> None:
    """Wait for an answer until `due`, in service seconds."""
    tx.run(_DUE, (due, generation))


def clear_due(tx: Transaction, generation: int) -> None:
    """Wait for no answer of a session any more."""
    tx.run(_DUE, (None, generation))


def delete_query(tx: Transaction, generation: int) -> None:
    """Forget what a session was asked, and what it had announced."""
    tx.run(_FORGET, (generation,))


def find_overdue(tx: Transaction) -> list[tuple[int, str]]:
    """Return the sessions whose answer is late, and their full JIDs: at most `BATCH`."""
    return [(row[0], row[1]) for row in tx.rows(_OVERDUE, (tx.now.service, BATCH_SIZE))]


def next_due_time(tx: Transaction) -> float | None:
    """Return when the next answer is late, in service seconds."""
    due: float | None = tx.row(_FIRST)[0]
    return due


def find_verified(tx: Transaction, hash_: str, ver: str) -> str | None:
    """Return in which namespace devices of a kind take quality of service: empty for none, `None`
    if the hash is not known."""
    row = tx.row(_KNOWN, (hash_, ver))
    return None if row is None else str(row[0])


def add_verified(tx: Transaction, hash_: str, ver: str, qos: str, most: int) -> None:
    """Keep what a hash stands for that was verified; at most `most` are, and those used of late."""
    tx.run(_KEEP, (hash_, ver, qos))
    tx.run(_BOUND, (most,))
