"""Items of shares that are on their way to members and may be given to others: which those are.

At level 1 all are, and at level 2 those that nothing was sent of yet. What is made of them is
decided in `rules.queue`.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction
from edge.features.queues.store.queues import BATCH, COLUMNS, ITEM, Item

_OF_SESSION: Final = f"""{ITEM} JOIN main.outbox AS o ON o.id = i.outbox
WHERE i.state = 'locked' AND i.holder = ? AND (o.qos = 1 OR o.state = 'queued')
ORDER BY i.id
"""
_LEFT: Final = f"""
SELECT {COLUMNS}
FROM main.outbox AS o CROSS JOIN main.queue_items AS i -- there are far more of these
    ON i.id = o.queue_item
WHERE o.queue_item IS NOT NULL AND (o.qos = 1 OR o.state = 'queued')
    AND i.state = 'locked' AND i.outbox = o.id
    AND NOT EXISTS (SELECT 1 FROM temp.sessions AS s WHERE s.full = i.holder)
ORDER BY i.id LIMIT ?
"""  # noqa: S608 - of constants
_UNKNOWN: Final = """
SELECT DISTINCT s.full
FROM (SELECT 1 FROM main.queue_items WHERE queue = ?1 AND state = 'ready' LIMIT 1)
    CROSS JOIN temp.queue_members AS m
    CROSS JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ?1 AND m.needs = 1 AND s.qos IS NULL AND s.detached = 0
    AND (m.bare = 0 OR (s.available = 1 AND s.priority >= 0))
"""
_LOOKED: Final = "SELECT 1 FROM temp.share_items"
_LOOK_NO_MORE: Final = "INSERT INTO temp.share_items (looked) VALUES (1)"


def of_session(tx: Transaction, full: str) -> list[Item]:
    """Return those that were given to a session: as many as its account's outbox has, at most."""
    return [Item._make(row) for row in tx.rows(_OF_SESSION, (full,))]


def left_behind(tx: Transaction) -> list[Item]:
    """Return those that were given to sessions that are not there, a bounded number."""
    return [Item._make(row) for row in tx.rows(_LEFT, (BATCH,))]


def unknown(tx: Transaction, queue: int) -> list[str]:
    """Return the full JIDs of sessions by which members of a share are there, and of which it is
    not known what they take, where something waits for them."""
    return [full for (full,) in tx.rows(_UNKNOWN, (queue,))]


def were_looked_at(tx: Transaction) -> bool:
    """Tell whether this process has seen to what the one before had left."""
    return tx.row(_LOOKED) is not None


def look_no_more(tx: Transaction) -> None:
    """Note that it has."""
    tx.run(_LOOK_NO_MORE)
