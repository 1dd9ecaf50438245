"""What the gateway wrote to its card, by day of its wall clock, and telling the centre of each day.

A row is written in the heartbeat's transaction: so to count what is written costs no commit of its
own. How it is measured is not known here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from edge.engine import events, meta
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.accounts.store.certificates import DAY_MS

DAYS: Final = 400
"""Days that are kept: a year can be compared with the one before; 20 KiB."""

_TOLD: Final = "wear_told"
"""The last day that the centre was told of."""

_ADD: Final = """
INSERT INTO wear (day, seconds, written, pages, commits) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day) DO UPDATE SET
    seconds = seconds + excluded.seconds, written = written + excluded.written,
    pages = pages + excluded.pages, commits = commits + excluded.commits
"""
_BETWEEN: Final = """
SELECT day, seconds, written, pages, commits FROM wear WHERE day > ? AND day < ? ORDER BY day
"""
_TRIM: Final = """
DELETE FROM wear WHERE day NOT IN (SELECT day FROM wear ORDER BY day DESC LIMIT ?)
"""
_LAST: Final = """
SELECT day, seconds, written, pages, commits FROM wear ORDER BY day DESC LIMIT ?
"""


class WriteCounts(NamedTuple):
    """What was written in some seconds of service: bytes by the whole process, pages of the
    database by its thread, in how many commits that changed anything."""

    seconds: float
    written: int
    pages: int
    commits: int


class DailyWear(NamedTuple):
    """The same of a day, in days since 1970 UTC."""

    day: int
    seconds: float
    written: int
    pages: int
    commits: int


def add(tx: Transaction, more: WriteCounts, cap: int) -> None:
    """Count what was written to the present day, and tell of the days that are over since.

    `cap` is how many bytes the database may take.
    """
    today = tx.now.wall // DAY_MS
    tx.run(_ADD, (today, *more))
    told = meta.read_number(tx, _TOLD)
    if told == today - 1:
        return
    if told < today:  # else the clock was set back
        for row in tx.rows(_BETWEEN, (told, today)):
            events.append(tx, events.SYSTEM, _event(DailyWear._make(row), cap))
    meta.write(tx, _TOLD, today - 1)
    tx.run(_TRIM, (DAYS,))


def _event(day: DailyWear, cap: int) -> NewEvent:
    date = datetime.fromtimestamp(day.day * DAY_MS / 1000, UTC).date()
    tags = {
        "day": date.isoformat(),
        "seconds": str(round(day.seconds)),
        "pages": str(day.pages),
        "commits": str(day.commits),
        "cap": str(cap),
    }
    return NewEvent("system", name="wear", value=float(day.written), unit="B", tags=tags)


def recent_days(tx: Transaction, days: int) -> list[DailyWear]:
    """Return the last so many days in which something was counted, the latest first."""
    return [DailyWear._make(row) for row in tx.rows(_LAST, (days,))]
