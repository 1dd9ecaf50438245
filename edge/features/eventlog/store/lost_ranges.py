"""The table `dropped`: ranges of events that were deleted before they were sent.

A range is kept until the centre knows of it. Segment headers of a lane declare the ranges of
the current epoch. For an earlier epoch there may be no further header, so an event in the current
epoch's system lane reports its ranges. If the segment with that event is lost too, another event
has to report them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.store import events, meta
from edge.engine.store.database import Transaction

MAX_RANGES: Final = 64
"""Maximum ranges kept per lane and epoch; there are at most `epochs.MAX_EPOCHS` epochs.

All ranges are reported again in every epoch until acknowledged. At the limit, the last range is
extended to include the new one. The events between the two were shipped or set aside, so the
centre still counts them as received.
"""


class LostRange(NamedTuple):
    """A range of sequence numbers, both ends included, and the reason why it is not sent."""

    epoch: str
    lane: str
    first: int
    last: int
    reason: str


_ADD: Final = "INSERT INTO dropped (epoch, lane, first, last, reason) VALUES (?, ?, ?, ?, ?)"
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
_UNREPORTED: Final = """
SELECT epoch, lane, first, last, reason FROM dropped WHERE epoch <> ? AND told IS NULL
ORDER BY epoch, lane, first
"""
_MARK_REPORTED: Final = "UPDATE dropped SET told = ? WHERE epoch = ? AND lane = ? AND first = ?"
_ACKNOWLEDGED: Final = "DELETE FROM dropped WHERE epoch <> ? AND told BETWEEN ? AND ?"
_REPORT_AGAIN: Final = "UPDATE dropped SET told = NULL WHERE epoch <> ? AND told BETWEEN ? AND ?"
_REPORT_ALL_AGAIN: Final = "UPDATE dropped SET told = NULL"
_TOO_OLD: Final = "DELETE FROM dropped WHERE epoch < (SELECT min(epoch) FROM epochs)"


def add(tx: Transaction, lost: LostRange) -> None:
    """Record a lost range, so that the next segment header of its lane declares it.

    A range of an earlier epoch is reported by an event instead. The range must follow all earlier
    ranges of its lane. Ranges that the lost events had reported are marked as unreported.
    """
    if tx.run(_EXTEND, lost._asdict() | {"ranges": MAX_RANGES}).rowcount == 0:
        tx.run(_ADD, lost)
    report_again(tx, *lost[:4])


def report_again(tx: Transaction, epoch: str, lane: str, first: int, last: int) -> None:
    """Mark ranges as unreported if the events that report them are in this range, which is lost."""
    if (epoch, lane) == (meta.epoch(tx), events.SYSTEM):
        tx.run(_REPORT_AGAIN, (epoch, first, last))


def report_all_again(tx: Transaction) -> None:
    """Mark all lost ranges as unreported, because a new epoch began.

    Ranges of epochs that are no longer kept are deleted.
    """
    tx.run(_REPORT_ALL_AGAIN)
    tx.run(_TOO_OLD)


def find_unreported(tx: Transaction) -> list[LostRange]:
    """Return the ranges of earlier epochs that no event has reported yet."""
    return [LostRange(*row) for row in tx.rows(_UNREPORTED, (meta.epoch(tx),))]


def mark_reported(tx: Transaction, lost: LostRange, seq: int) -> None:
    """Record that event `seq` of the current epoch's system lane reports a range."""
    tx.run(_MARK_REPORTED, (seq, *lost[:3]))


def delete_acknowledged(
    tx: Transaction, epoch: str, lane: str, first: int, last: int, declares: int | None
) -> None:
    """Delete the ranges of which an acknowledged segment has informed the centre.

    Its events have the numbers `first` to `last`, and some may report ranges of earlier epochs. Its
    header declares the ranges of its lane up to the number `declares`; `None` if there are none.
    """
    if declares is not None:
        tx.run(_DECLARED, (epoch, lane, declares))
        tx.run(_DECLARED_IN_PART, (epoch, lane, declares))
    if (epoch, lane) == (meta.epoch(tx), events.SYSTEM):
        tx.run(_ACKNOWLEDGED, (epoch, first, last))
