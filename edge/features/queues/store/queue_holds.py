"""Items of shares that nobody who is there may have: they stand aside, and hold up nothing.

Such an item is delayed without an end, and keeps its place. When it may come back is decided in
`handlers.queues.admission`.
"""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction

_ASIDE: Final = """
UPDATE queue_items SET state = 'delayed' WHERE queue = ? AND state = 'ready' AND node = ?
"""
_BACK: Final = """
UPDATE queue_items INDEXED BY queue_items_due SET state = 'ready'
WHERE queue = ? AND state = 'delayed' AND due IS NULL
"""
_BURY: Final = """
UPDATE queue_items SET state = 'dead', reason = ?, expires = NULL
WHERE queue = ? AND state IN ('ready', 'delayed') AND node = ?
"""


def set_aside(tx: Transaction, queue: int, node: str) -> None:
    """Set aside what waits in a share and was published to a node, by its name."""
    tx.run(_ASIDE, (queue, node))


def bring_back(tx: Transaction, queue: int) -> bool:
    """Let all that was set aside in a queue wait in line again; tells whether anything was."""
    return tx.run(_BACK, (queue,)).rowcount > 0


def bury(tx: Transaction, queue: int, node: str, reason: str) -> int:
    """Keep as dead what waits in a share and was published to a node; returns how many that are."""
    return tx.run(_BURY, (reason, queue, node)).rowcount
