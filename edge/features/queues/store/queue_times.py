"""Which items of queues change by time, and which another process or a removed account has left.

A bounded number each, the earliest first; times are service seconds.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction
from edge.features.queues.store.queues import BATCH, ITEM, Item

_TIMED_OUT: Final = f"""{ITEM}
WHERE state = 'locked' AND until IS NOT NULL AND until <= ? ORDER BY until LIMIT ?
"""
_EXPIRED: Final = f"""{ITEM}
WHERE expires IS NOT NULL AND state IN ('ready', 'delayed') AND expires <= ?
ORDER BY expires LIMIT ?
"""
_RIPE: Final = f"{ITEM} WHERE state = 'delayed' AND due <= ? ORDER BY due LIMIT ?"
_RIPEN: Final = "UPDATE main.queue_items SET state = 'ready', due = NULL WHERE id = ?"
_FIRST: Final = """
SELECT min(first) FROM (
    SELECT min(until) AS first FROM main.queue_items
    WHERE state = 'locked' AND until IS NOT NULL
    UNION ALL
    SELECT min(expires) FROM main.queue_items
    WHERE expires IS NOT NULL AND state IN ('ready', 'delayed')
    UNION ALL
    SELECT min(due) FROM main.queue_items WHERE state = 'delayed'
)
"""
_ORPHANS: Final = f"""{ITEM}
WHERE state = 'locked' AND holder IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM main.subscriptions AS s WHERE s.id = i.subscription)
LIMIT ?
"""  # noqa: S608 - of constants


def timed_out(tx: Transaction) -> list[Item]:
    """Return items whose locks are over."""
    return [Item._make(row) for row in tx.rows(_TIMED_OUT, (tx.now.service, BATCH))]


def expired(tx: Transaction) -> list[Item]:
    """Return items that wait and have waited for too long."""
    return [Item._make(row) for row in tx.rows(_EXPIRED, (tx.now.service, BATCH))]


def ripe(tx: Transaction) -> list[Item]:
    """Let delayed items wait in line whose time has come, and return them as they were."""
    found = [Item._make(row) for row in tx.rows(_RIPE, (tx.now.service, BATCH))]
    for item in found:
        tx.run(_RIPEN, (item.row,))
    return found


def first_due(tx: Transaction) -> float | None:
    """Return when the next item changes by time."""
    (first,) = tx.row(_FIRST)
    return None if first is None else float(first)


def orphans(tx: Transaction) -> list[Item]:
    """Return items that are locked by subscriptions that are no more."""
    return [Item._make(row) for row in tx.rows(_ORPHANS, (BATCH,))]
