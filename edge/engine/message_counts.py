"""Count messages from devices by quality of service and outcome, for the metrics.

The counts are kept in the transaction, and the store passes them on after the commit, so that a
message of a unit that is rolled back or runs again is counted once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from edge.engine.database import Transaction

MessageCounts: TypeAlias = dict[tuple[int, str], int]
"""Numbers of messages by quality of service and outcome."""

LEVELS: Final = (1, 2)
"""The levels of quality of service that are counted."""

ACCEPTED: Final = "accepted"
DELIVERED: Final = "delivered"
REFUSED: Final = "refused"
OUTCOMES: Final = (ACCEPTED, DELIVERED, REFUSED)

_KEY: Final = "message counts"


def count(tx: Transaction, level: int, outcome: str) -> None:
    """Count a message of a quality of service with its outcome, one of `OUTCOMES`."""
    counts: MessageCounts | None = tx.memo.get(_KEY)
    if counts is None:
        counts = tx.memo[_KEY] = {}
    key = (level, outcome)
    counts[key] = counts.get(key, 0) + 1
    tx.on_undo(_take_back, counts, key)


def _take_back(counts: MessageCounts, key: tuple[int, str]) -> None:
    counts[key] -= 1


def take(tx: Transaction) -> MessageCounts:
    """Return and remove the counts of a committed transaction."""
    found: MessageCounts = tx.memo.pop(_KEY, {})
    return found
