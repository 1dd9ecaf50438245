"""Whether the events of a database may be counted on, or are counted anew: in a new epoch.

The numbers of an epoch belong to one database on one board and one card. A copy that runs beside
the original, or after it, would give the same numbers to other events. What is not known is never
taken for a change. Reading what there is, and beginning an epoch, are not done here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class NewEpochReason(StrEnum):
    """Why an epoch begins at a start."""

    RESTORED = "restored"
    """The database comes out of a backup."""

    ANOTHER_BOARD = "another-board"
    ANOTHER_CARD = "another-card"


class Hardware(NamedTuple):
    """What a gateway runs on: a board's serial number and a card's id, `None` where not known."""

    board: str | None = None
    card: str | None = None


def new_epoch_reason(copied: bool, known: Hardware, found: Hardware) -> NewEpochReason | None:
    """Say why a new epoch is to begin, or `None`.

    Args:
        copied: the database was marked as one of a backup when it was copied.
        known: what it remembers to have run on.
        found: what it runs on now.
    """
    if copied:
        return NewEpochReason.RESTORED
    if _differs(known.board, found.board):
        return NewEpochReason.ANOTHER_BOARD
    return NewEpochReason.ANOTHER_CARD if _differs(known.card, found.card) else None


def _differs(known: str | None, found: str | None) -> bool:
    return known is not None and found is not None and known != found


def merge_hardware(known: Hardware, found: Hardware) -> Hardware:
    """Return what is to be remembered: what is found, and what was known of the rest."""
    return Hardware(found.board or known.board, found.card or known.card)
