"""Count messages from devices by quality of service and outcome, for the metrics.

The outcomes are collected in the transaction; the store counts them after the commit, so that a
message of a unit that is rolled back or runs again is counted once.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Final, TypeAlias

from edge.engine.store.database import Transaction

MessageCounts: TypeAlias = dict[tuple[int, str], int]
"""Numbers of messages by quality of service and outcome."""

ACCEPTED: Final = "accepted"
DELIVERED: Final = "delivered"
REFUSED: Final = "refused"
OUTCOMES: Final = ((2, ACCEPTED), *product((0, 1, 2), (DELIVERED, REFUSED)))
"""The levels with their outcomes. Level 0 are plain messages; only level 2 has custody."""


def count(tx: Transaction, level: int, outcome: str) -> None:
    """Count a message of a quality of service with its outcome; `OUTCOMES` has all pairs."""
    tx.outcomes.append((level, outcome))


def take(tx: Transaction) -> MessageCounts:
    """Return and remove the counts of a committed transaction."""
    found = dict(Counter(tx.outcomes))
    tx.outcomes.clear()
    return found
