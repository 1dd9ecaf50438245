"""Daily counts of the bytes that the gateway wrote to its flash card, and the events that log them.

Days are those of the wall clock, in UTC. A row is written in the heartbeat's transaction, so that
counting costs no further commit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from edge.engine.rules.service_time import DAY_MS
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

KEPT_DAYS: Final = 400
"""Days whose counts are kept (20 KiB), to compare a day with the same day a year before."""

_LOGGED_KEY: Final = "wear_told"
"""The key in `meta` of the last day that was logged, in days since 1970 UTC."""

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
_RECENT: Final = """
SELECT day, seconds, written, pages, commits FROM wear ORDER BY day DESC LIMIT ?
"""


class WriteCounts(NamedTuple):
    """The amounts that the process wrote in a period.

    Attributes:
        seconds: the length of the period.
        written: bytes written to disks.
        pages: pages passed to write calls, nearly all of them by SQLite.
        commits: commits that changed rows.
    """

    seconds: float
    written: int
    pages: int
    commits: int


class DailyWear(NamedTuple):
    """The counts of one day; `day` counts days since 1970 UTC."""

    day: int
    seconds: float
    written: int
    pages: int
    commits: int


def add(tx: Transaction, counts: WriteCounts, max_bytes: int) -> None:
    """Add counts to the current day, and log an event for each day that ended since the last call.

    These events contain `max_bytes`, the value of `limits.database_bytes`.
    """
    today = tx.now.wall // DAY_MS
    tx.run(_ADD, (today, *counts))
    logged = meta.read_number(tx, _LOGGED_KEY)
    if logged == today - 1:
        return
    if logged < today:  # otherwise the clock was set back
        for row in tx.rows(_BETWEEN, (logged, today)):
            events.append(tx, events.SYSTEM, _event(DailyWear._make(row), max_bytes))
    meta.write(tx, _LOGGED_KEY, today - 1)
    tx.run(_TRIM, (KEPT_DAYS,))


def _event(day: DailyWear, max_bytes: int) -> NewEvent:
    date = datetime.fromtimestamp(day.day * DAY_MS / 1000, UTC).date()
    tags = {
        "day": date.isoformat(),
        "seconds": str(round(day.seconds)),
        "pages": str(day.pages),
        "commits": str(day.commits),
        "cap": str(max_bytes),
    }
    return NewEvent("system", name="wear", value=float(day.written), unit="B", tags=tags)


def recent_days(tx: Transaction, count: int) -> list[DailyWear]:
    """Return the last `count` days with counted writes, latest first."""
    return [DailyWear._make(row) for row in tx.rows(_RECENT, (count,))]
