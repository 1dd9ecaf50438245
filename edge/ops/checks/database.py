"""Check the database: its integrity, dead letters, stuck queues and limits that are nearly used."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from edge.engine.store import database
from edge.errors import StoreBroken
from edge.features.queues.store.depth_events import Depth
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.gateway.status import Status
from sync.common.text import duration, plural

QUICK_CHECK_TIME: Final = 10.0
"""Maximum seconds of a check without `--deep`.

During a check, the running gateway cannot truncate its write-ahead log (WAL).
"""

PROGRESS_STEPS: Final = 100_000
"""SQLite instructions between two checks of the time limit."""

MAX_ERRORS: Final = 5
"""Maximum number of errors of a damaged database that are reported."""

NEAR: Final = 0.9
"""Fraction of a limit; if at least this part of a limit is used, the limit is reported."""

STUCK: Final = 1_800.0
"""Age in seconds of a queue's oldest ready or locked item above which the queue is reported.

The centre's reports use the same time.
"""

_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"

ALWAYS_FULL: Final = frozenset({"recent_bytes", "released_keys", "items_per_node"})
"""Limits that are reached in normal operation, because the oldest entry is then deleted."""


def integrity(folder: Path, *, deep: bool) -> Iterator[Finding]:
    """Check the structure of the database; with `deep`, also check every index entry."""
    path, began = folder / database.FILE_NAME, time.monotonic()
    remedy = database.restore_advice(folder)
    if not path.exists():
        yield Finding("database", WRONG, f"{path} does not exist", database.lost_advice(folder))
        return
    if (truncation := _truncation(path)) is not None:
        yield Finding("database", WRONG, truncation, remedy)
        return
    try:
        connected = database.connect_reader(path)
    except StoreBroken as error:
        yield Finding("database", WRONG, f"{path} is damaged: {error}", remedy)
        return
    with closing(connected) as connection:
        if not deep:
            end = began + QUICK_CHECK_TIME
            connection.set_progress_handler(lambda: time.monotonic() > end, PROGRESS_STEPS)
        try:
            errors = database.integrity_errors(connection, MAX_ERRORS, deep=deep)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise database.translate(error) from error
            text = f"the database is too large to check in {QUICK_CHECK_TIME:g} s"
            yield Finding("database", NOTICE, text, "run `fieldpost doctor --deep`")
            return
        except sqlite3.DatabaseError as error:
            errors = [str(error)]
    if errors:
        text = f"the database is damaged: {'; '.join(errors)}"
        yield Finding("database", WRONG, text, remedy)
    else:
        kind = "deep" if deep else "quick"
        yield Finding("database", OK, f"a {kind} check found no damage")


def _truncation(path: Path) -> str | None:
    """Return an error text if the file is shorter than its header says, or `None`.

    While there is a WAL, the file may be shorter. Source: the database file format of SQLite,
    sections 1.3.2 and 1.3.7.
    """
    wal = path.with_name(f"{path.name}-wal")
    if not path.is_file() or (wal.is_file() and wal.stat().st_size):
        return None
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        actual = file.seek(0, os.SEEK_END)
    if len(header) < _HEADER_BYTES:
        return f"{path} is truncated: it has {plural(actual, 'byte')}"
    expected = database.PAGE_BYTES * int.from_bytes(header[28:32], "big")
    if actual >= expected or not header.startswith(_MAGIC):
        return None
    return f"{path} is truncated: it has {actual} of {expected} bytes"


def limits(status: Status) -> Iterator[Finding]:
    """Report the limits that are reached or nearly reached."""
    near = False
    for limit in status.limits:
        if limit.used is None or limit.name in ALWAYS_FULL or not limit.allowed:
            continue
        used, whose = limit.used
        if used < NEAR * limit.allowed:
            continue
        near = True
        of = f" by {whose}" if whose else ""
        text = f"{limit.name}: {used} of {limit.allowed:g} {limit.unit} are used{of}"
        remedy = "see 'Status' in docs/how-to/operate.md"
        yield Finding("limits", WRONG if used >= limit.allowed else NOTICE, text, remedy)
    if not near:
        yield Finding("limits", OK, f"every limit is used by less than {NEAR * 100:.0f} %")


def dead_letters(status: Status) -> Iterator[Finding]:
    """Report the messages that could not be delivered."""
    waiting = status.waiting
    if waiting.dead:
        text = plural(waiting.dead, "message could", "messages could")
        text += f" not be delivered, {waiting.in_doubt} of them in doubt"
        yield Finding("dead", NOTICE, text, "list them with `fieldpost dead list`")
    else:
        yield Finding("dead", OK, "there are no dead letters")


def queues(depths: Sequence[Depth], status: Status) -> Iterator[Finding]:
    """Report queues in which items have waited too long or are dead."""
    healthy = True
    for row in depths:
        age = 0.0 if row.oldest is None else status.service - row.oldest
        if row.depth and age > STUCK:
            healthy = False
            items = plural(row.depth, "item")
            text = f"{row.topic}: {items}, the oldest for {duration(age)}"
            remedy = f"find the reason with `fieldpost queue show {row.topic}`"
            yield Finding("queues", NOTICE, text, remedy)
    if status.waiting.queued_dead:
        healthy = False
        dead = status.waiting.queued_dead
        text = f"{plural(dead, 'queue item is', 'queue items are')} dead"
        yield Finding("queues", NOTICE, text, "find them with `fieldpost queue list`")
    if healthy:
        items = plural(status.waiting.queued, "item waits", "items wait")
        yield Finding("queues", OK, f"{items} in queues; no queue is stuck")
