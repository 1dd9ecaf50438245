"""The items of queues whose members are chosen by a hash of the publisher: by slots of publishers.

Which slot a publisher has, and which member a slot, is decided in `rules.queue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.rules.queue import slot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge.store.database import Transaction

_HEADS_OF: Final = """
SELECT id FROM main.queue_items
WHERE queue = ? AND slot = ? AND state = 'ready' AND (expires IS NULL OR expires > ?)
ORDER BY priority DESC, id LIMIT ?
"""
_BOUND: Final = """
SELECT slot, subscription FROM main.queue_items INDEXED BY queue_items_in_line
WHERE queue = ? AND state = 'locked' AND slot IS NOT NULL
"""
_NO_SLOTS: Final = "UPDATE main.queue_items SET slot = NULL WHERE queue = ? AND slot IS NOT NULL"
_PUBLISHERS: Final = "SELECT DISTINCT publisher FROM main.queue_items WHERE queue = ?"
_SLOT: Final = "UPDATE main.queue_items SET slot = ? WHERE queue = ? AND publisher = ?"


def settle(tx: Transaction, queue: int, *, by_hash: bool) -> None:
    """Give the items of a queue the slots of their publishers, or none."""
    tx.run(_NO_SLOTS, (queue,))
    if by_hash:
        for (publisher,) in tx.rows(_PUBLISHERS, (queue,)):
            tx.run(_SLOT, (slot(publisher), queue, publisher))


def heads(tx: Transaction, queue: int, number: int, limit: int) -> list[int]:
    """Return the places of the first that wait of a slot, in order."""
    return [row for (row,) in tx.rows(_HEADS_OF, (queue, number, tx.now.service, limit))]


def bound(tx: Transaction, queue: int) -> Mapping[int, int]:
    """Return which subscriptions have items of which slots in work."""
    return dict(tx.rows(_BOUND, (queue,)))
