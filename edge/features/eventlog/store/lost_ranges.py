"""Ranges of events that left without being sent, until the centre has heard of them.

The headers of their lane declare those of the current epoch. No header of an epoch that is over
need follow, so an event in the current epoch's system lane tells of its ranges; and if the segment
with that event is lost too, another one has to. Which segments go is not decided here, and the
events are written elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine import events, meta
from edge.engine.database import Transaction

MAX_RANGES: Final = 64
"""Ranges that are remembered of a lane of an epoch, and there are `epochs.KEPT` of these: each is
told anew in every epoch until the centre has heard. Beyond, the last one grows over what lies
between, which was shipped or set aside: what the centre has counts as received all the same."""


class LostRange(NamedTuple):
    """A range of sequence numbers, both ends included, and why it is not sent."""

    epoch: str
    lane: str
    first: int
    last: int
    reason: str


_NOTE: Final = "INSERT INTO dropped (epoch, lane, first, last, reason) VALUES (?, ?, ?, ?, ?)"
_EXTEND: Final = """
UPDATE dropped SET last = :last, told = NULL WHERE epoch = :epoch AND lane = :lane AND first = (
    SELECT max(first) FROM dropped WHERE epoch = :epoch AND lane = :lane
) AND (last = :first - 1 AND reason = :reason OR :ranges <= (
    SELECT count(*) FROM dropped WHERE epoch = :epoch AND lane = :lane
))
"""
_DECLARED: Final = "DELETE FROM dropped WHERE epoch = ? AND lane = ? AND last <= ?"
_DECLARED_IN_PART: Final = """
UPDATE dropped SET first = ?3 + 1 WHERE epoch = ?1 AND lane = ?2 AND first <= ?3
"""
_UNTOLD: Final = """
SELECT epoch, lane, first, last, reason FROM dropped WHERE epoch <> ? AND told IS NULL
ORDER BY epoch, lane, first
"""
_NOTE_TOLD: Final = "UPDATE dropped SET told = ? WHERE epoch = ? AND lane = ? AND first = ?"
_HEARD: Final = "DELETE FROM dropped WHERE epoch <> ? AND told BETWEEN ? AND ?"
_TELL_AGAIN: Final = "UPDATE dropped SET told = NULL WHERE epoch <> ? AND told BETWEEN ? AND ?"
_TELL_ALL_AGAIN: Final = "UPDATE dropped SET told = NULL"
_TOO_OLD: Final = "DELETE FROM dropped WHERE epoch < (SELECT min(epoch) FROM epochs)"


def add(tx: Transaction, gone: LostRange) -> None:
    """Have a range declared by the next header or, if its epoch is over, told by an event.

    It is behind all that its lane lost before. What it held that told of others is told again.
    """
    if tx.run(_EXTEND, gone._asdict() | {"ranges": MAX_RANGES}).rowcount == 0:
        tx.run(_NOTE, gone)
    report_again(tx, *gone[:4])


def report_again(tx: Transaction, epoch: str, lane: str, first: int, last: int) -> None:
    """Have told again what events in this range tell of, as it will not be sent."""
    if (epoch, lane) == (meta.epoch(tx), events.SYSTEM):
        tx.run(_TELL_AGAIN, (epoch, first, last))


def report_all_again(tx: Transaction) -> None:
    """Have all told anew, in an epoch that begins, and forget what is of none that is known."""
    tx.run(_TELL_ALL_AGAIN)
    tx.run(_TOO_OLD)


def find_unreported(tx: Transaction) -> list[LostRange]:
    """Return the ranges of epochs that are over that no event tells of."""
    return [LostRange(*row) for row in tx.rows(_UNTOLD, (meta.epoch(tx),))]


def mark_reported(tx: Transaction, gone: LostRange, seq: int) -> None:
    """Note which event of the current epoch's system lane tells of a range."""
    tx.run(_NOTE_TOLD, (seq, *gone[:3]))


def delete_acknowledged(
    tx: Transaction, epoch: str, lane: str, first: int, last: int, declares: int | None
) -> None:
    """Forget what the centre knows now that it has a segment, which declares ranges up to there."""
    if declares is not None:
        tx.run(_DECLARED, (epoch, lane, declares))
        tx.run(_DECLARED_IN_PART, (epoch, lane, declares))
    if (epoch, lane) == (meta.epoch(tx), events.SYSTEM):
        tx.run(_HEARD, (epoch, first, last))
