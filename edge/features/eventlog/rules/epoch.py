"""Decide whether a database continues its epoch or must begin a new one.

The sequence numbers of an epoch belong to one database on one board and one storage card. A copy
that runs beside or after the original would give the same numbers to other events. If a board or
card is unknown, it is assumed to be unchanged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class NewEpochReason(StrEnum):
    """Reasons to begin a new epoch at start-up."""

    RESTORED = "restored"
    """The database was restored from a backup."""

    ANOTHER_BOARD = "another-board"
    ANOTHER_CARD = "another-card"


class Hardware(NamedTuple):
    """The serial number of the board and the id of the storage card, `None` if unknown."""

    board: str | None = None
    card: str | None = None


def new_epoch_reason(copied: bool, known: Hardware, found: Hardware) -> NewEpochReason | None:
    """Return why a new epoch must begin, or `None` if the current one continues.

    Args:
        copied: whether the database was restored from a backup and not used since.
        known: the hardware recorded in the database.
        found: the hardware that the gateway runs on now.
    """
    if copied:
        return NewEpochReason.RESTORED
    if _differs(known.board, found.board):
        return NewEpochReason.ANOTHER_BOARD
    return NewEpochReason.ANOTHER_CARD if _differs(known.card, found.card) else None


def _differs(known: str | None, found: str | None) -> bool:
    return known is not None and found is not None and known != found


def merge_hardware(known: Hardware, found: Hardware) -> Hardware:
    """Return the hardware to record: ids found now, or the recorded id where none was found."""
    return Hardware(found.board or known.board, found.card or known.card)
