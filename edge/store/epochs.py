"""The epochs that this database counts its events in, and what began each.

Sequence numbers begin with 1 in each epoch. Whether a new one is to begin is not decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from edge.store import meta

if TYPE_CHECKING:
    from edge.store.database import Transaction

CREATED: Final = "created"
"""The reason of a database's first epoch."""

_BEGIN: Final = "INSERT INTO epochs (epoch, began, reason) VALUES (?, ?, ?)"
_ALL: Final = "SELECT epoch, began, reason FROM epochs ORDER BY epoch DESC LIMIT ?"


class Epoch(NamedTuple):
    """An epoch, when it began (ms since 1970 UTC; 0: not known) and why."""

    epoch: str
    began: int
    reason: str


def begin(tx: Transaction, epoch: str, reason: str) -> None:
    """Count within `epoch` from now on; `reason` is a word."""
    meta.write(tx, meta.EPOCH, epoch)
    tx.known.pop(meta.EPOCH, None)
    tx.run(_BEGIN, (epoch, tx.now.wall, reason))


def latest(tx: Transaction, count: int) -> list[Epoch]:
    """Return at most `count` epochs, the current one first."""
    return [Epoch(*row) for row in tx.rows(_ALL, (count,))]
