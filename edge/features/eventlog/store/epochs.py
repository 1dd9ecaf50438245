"""The table `epochs`: the epochs of this database, and the reason for which each began.

Sequence numbers begin with 1 in each epoch. The id of a request that delivers a message of the
outbox contains the epoch in which that message's row was written.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.features.eventlog.rules.epoch import Hardware
from edge.features.eventlog.store import lost_ranges

CREATED: Final = "created"
"""The reason for a database's first epoch."""

COPY: Final = "copy"
"""The key in `meta` that marks a database as a backup's copy, until a gateway starts on it."""

_BOARD: Final = "board"
_CARD: Final = "card"

MAX_EPOCHS: Final = 100
"""Maximum epochs that are kept; a gateway has only a few in its life."""

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS: Final = 80
_ROW_EPOCHS: Final = "of rows"

_LAST_ROW: Final = "SELECT seq FROM main.sqlite_sequence WHERE name = 'outbox'"
_BEGIN: Final = "INSERT INTO epochs (epoch, began, reason, outbox) VALUES (?, ?, ?, ?)"
_LATEST: Final = """
SELECT epoch, began, reason, outbox FROM epochs ORDER BY epoch DESC LIMIT ?
"""
_FORGET: Final = """
DELETE FROM epochs WHERE epoch <= (SELECT epoch FROM epochs ORDER BY epoch DESC LIMIT 1 OFFSET ?)
"""


class Epoch(NamedTuple):
    """An epoch: when it began (ms since 1970 UTC; 0 if unknown), and the reason.

    `outbox` is the last row number of the outbox at that time.
    """

    epoch: str
    began: int
    reason: str
    outbox: int


def begin(tx: Transaction, reason: str) -> str:
    """Begin a new epoch and return its id (a ULID).

    The sequence numbers of each lane restart from 1, so all earlier events must have been sealed or
    deleted.
    """
    before = latest(tx, 1)
    epoch = _ulid(max(tx.now.wall, _time_of(before[0].epoch) + 1 if before else 0))
    last = tx.row(_LAST_ROW)
    tx.run(_BEGIN, (epoch, tx.now.wall, reason, 0 if last is None else last[0]))
    tx.run(_FORGET, (MAX_EPOCHS,))
    meta.write(tx, meta.EPOCH, epoch)
    tx.cache.pop(meta.EPOCH, None)
    tx.cache.pop(_ROW_EPOCHS, None)
    events.reset_counters(tx)
    lost_ranges.report_all_again(tx)
    return epoch


def latest(tx: Transaction, count: int = MAX_EPOCHS) -> list[Epoch]:
    """Return at most `count` epochs, the current one first."""
    return [Epoch(*row) for row in tx.rows(_LATEST, (count,))]


def epoch_of_row(tx: Transaction, row: int) -> str:
    """Return the epoch in which a row of the outbox was written.

    A message keeps the msgId with this epoch when another epoch begins; otherwise the device would
    take it for a new message. Rows that a restored copy of the database writes get the new epoch,
    because the device may have seen their numbers before.
    """
    found: list[Epoch] | None = tx.cache.get(_ROW_EPOCHS)
    if found is None:
        found = tx.cache[_ROW_EPOCHS] = latest(tx)
    if found[0].outbox < row:
        return found[0].epoch
    return next((epoch.epoch for epoch in found if epoch.outbox < row), found[-1].epoch)


def is_copy(tx: Transaction) -> bool:
    """Return whether this database is a backup's copy on which no gateway has started yet."""
    return bool(meta.find_text(tx, COPY))


def mark_copy(tx: Transaction) -> None:
    """Mark a backup's copy: a gateway that starts with this database begins a new epoch."""
    meta.write(tx, COPY, "yes")


def load_hardware(tx: Transaction) -> Hardware:
    """Return the hardware recorded in this database."""
    return Hardware(meta.find_text(tx, _BOARD), meta.find_text(tx, _CARD))


def save_hardware(tx: Transaction, here: Hardware) -> None:
    """Record the hardware, and clear the mark that the database is a copy."""
    for key, value in ((_BOARD, here.board), (_CARD, here.card)):
        if value is not None:
            meta.write(tx, key, value)
    meta.write(tx, COPY, "")


def _ulid(moment: int) -> str:
    """Make a ULID: 48 bits of milliseconds since 1970 and 80 random bits, in 26 characters."""
    number = moment << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def _time_of(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number << 5 | _CROCKFORD.index(character)
    return number >> _RANDOM_BITS
