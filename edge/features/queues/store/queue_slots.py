"""The items of queues whose members are chosen by a hash of the publisher: by slots of publishers.

Which slot a publisher has, and which member a slot, is decided in `rules.queue`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge.engine.database import Transaction
from edge.features.queues.rules.assignment import slot

_WAITING: Final = """
WITH RECURSIVE slots (number) AS ( -- from one that is there to the next
    SELECT min(slot) FROM main.queue_items WHERE queue = ?1 AND slot IS NOT NULL
    UNION ALL
    SELECT (SELECT min(slot) FROM main.queue_items WHERE queue = ?1 AND slot > number)
    FROM slots WHERE number IS NOT NULL
)
SELECT number FROM slots WHERE EXISTS (
    SELECT 1 FROM main.queue_items WHERE queue = ?1 AND slot = number AND state = 'ready'
)
"""
_HEADS_OF: Final = """
SELECT -priority, id FROM main.queue_items
WHERE queue = ? AND slot = ? AND state = 'ready' AND (expires IS NULL OR expires > ?)
ORDER BY priority DESC, id LIMIT ?
"""
_BOUND: Final = """
SELECT slot, subscription FROM main.queue_items INDEXED BY queue_items_in_line
WHERE queue = ? AND state = 'locked' AND slot IS NOT NULL
"""
_NO_SLOTS: Final = "UPDATE main.queue_items SET slot = NULL WHERE queue = ? AND slot IS NOT NULL"
_PUBLISHERS: Final = "SELECT id, publisher FROM main.queue_items WHERE queue = ?"
_SLOT: Final = "UPDATE main.queue_items SET slot = ? WHERE id = ?"


def settle(tx: Transaction, queue: int, *, by_hash: bool) -> None:
    """Give the items of a queue the slots of their publishers, or none."""
    tx.run(_NO_SLOTS, (queue,))
    if by_hash:
        for row, publisher in tx.rows(_PUBLISHERS, (queue,)):
            tx.run(_SLOT, (slot(publisher), row))


def waiting(tx: Transaction, queue: int) -> list[int]:
    """Return the slots of which something waits."""
    return [number for (number,) in tx.rows(_WAITING, (queue,))]


def heads(tx: Transaction, queue: int, number: int, limit: int) -> list[tuple[int, int]]:
    """Return the first that wait of a slot, in order: what each is sorted by, its priority turned
    round and its place."""
    return tx.rows(_HEADS_OF, (queue, number, tx.now.service, limit))


def bound(tx: Transaction, queue: int) -> Mapping[int, int]:
    """Return which subscriptions have items of which slots in work."""
    return dict(tx.rows(_BOUND, (queue,)))
