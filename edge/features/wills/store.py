"""The table `wills`: at most one will for each full address."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from edge.engine.dispatch import item_attributes
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction

OVERHEAD: Final = 128
"""Bytes of a row beside its address, topic, payload and attributes."""

_WITHOUT_SESSION: Final = -1

_PUT: Final = """
INSERT OR REPLACE INTO wills
    (full, account, topic, payload, content_type, attributes, bytes, delay)
SELECT ?, id, ?, ?, ?, ?, ?, ? FROM accounts WHERE name = ?
"""
_REMOVE: Final = "DELETE FROM wills WHERE full = ?"
_LOSE: Final = "UPDATE wills SET due = ? + delay WHERE full = ? AND due IS NULL RETURNING due"
_LOSE_ABSENT: Final = """
UPDATE wills SET due = ? + delay
WHERE due IS NULL AND full NOT IN (SELECT full FROM temp.sessions)
"""
_COLUMNS: Final = """
SELECT w.full, a.name, coalesce(a.trusted, 0), a.revoked IS NOT NULL, w.topic, w.payload,
    w.content_type, w.attributes, w.due
FROM wills AS w JOIN accounts AS a ON a.id = w.account
"""
_FIND: Final = f"{_COLUMNS} WHERE w.full = ?"
_DUE: Final = f"{_COLUMNS} WHERE w.due <= ? ORDER BY w.due, w.full LIMIT ?"
_FIRST: Final = "SELECT min(due) FROM wills WHERE due IS NOT NULL"
_BYTES: Final = """
SELECT coalesce(sum(bytes) FILTER (WHERE account = (SELECT id FROM accounts WHERE name = ?)), 0),
    coalesce(sum(bytes), 0)
FROM wills WHERE full <> ?
"""


class Will(NamedTuple):
    """A message to publish, and from when on.

    Attributes:
        topic: the name of the node.
        delay: the seconds from the loss of the session to the publication.
    """

    topic: str
    payload: bytes
    attributes: ItemAttributes
    delay: float = 0.0


class StoredWill(NamedTuple):
    """A will in the table; `due` is the service second of its publication, `None` while its session
    exists."""

    sender: Sender
    will: Will
    due: float | None


def size(full: str, will: Will) -> int:
    """Return the bytes that a will counts towards limits."""
    return item_attributes.charge(OVERHEAD, will.topic, full, will.payload, will.attributes)


def put(tx: Transaction, account: str, full: str, will: Will) -> None:
    """Store the will of a session."""
    topic, payload, attributes, delay = will
    rest = item_attributes.pack_message(attributes)
    values = (full, topic, payload, attributes.content_type, rest, size(full, will), delay)
    tx.run(_PUT, (*values, account))


def remove(tx: Transaction, full: str) -> None:
    """Remove the will of an address, if there is one."""
    tx.run(_REMOVE, (full,))


def lose(tx: Transaction, full: str) -> float | None:
    """Record that the session of a will is lost; return the service second of the publication."""
    row = tx.row(_LOSE, (tx.now.service, full))
    return None if row is None else float(row[0])


def lose_absent(tx: Transaction) -> None:
    """Record that the sessions of all wills without one are lost."""
    tx.run(_LOSE_ABSENT, (tx.now.service,))


def find(tx: Transaction, full: str) -> StoredWill | None:
    """Return the will of an address, or `None`."""
    row = tx.row(_FIND, (full,))
    return None if row is None else _stored(*row)


def due(tx: Transaction, most: int) -> list[StoredWill]:
    """Return the wills to publish now, at most `most` of them, oldest first."""
    return [_stored(*row) for row in tx.rows(_DUE, (tx.now.service, most))]


def first_due(tx: Transaction) -> float | None:
    """Return the service second of the next publication, or `None`."""
    found: float | None = tx.row(_FIRST)[0]
    return found


def bytes_of_others(tx: Transaction, account: str, full: str) -> tuple[int, int]:
    """Return the bytes of an account's wills and of all wills, without that of an address."""
    of_account, total = tx.row(_BYTES, (account, full))
    return of_account, total


def _stored(full: str, account: str, trusted: int, revoked: int, *rest: Any) -> StoredWill:
    topic, payload, content_type, packed, due = rest
    bare = full.partition("/")[0]
    sender = Sender(
        full, bare, account, not revoked, bool(trusted), _WITHOUT_SESSION, bool(revoked)
    )
    attributes = item_attributes.unpack_message(content_type, packed)
    return StoredWill(sender, Will(topic, payload, attributes), due)
