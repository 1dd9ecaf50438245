"""What is stored: is the database whole, what is dead or stuck, and which bounds are near."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from edge.engine import database
from edge.features.queues.store.depth_events import Depth
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.status import Status
from sync.common.text import duration, plural, size

QUICK: Final = 10.0
"""Seconds for a look at the database that is not deep: a running gateway cannot take its WAL back
meanwhile."""

STEPS: Final = 100_000
"""Instructions of SQLite between two looks at the time."""

FAULTS: Final = 5
"""Faults of a database that are told: one is enough to act."""

NEAR: Final = 0.9
"""The part of a bound from which on it is told to be near."""

STUCK: Final = 1_800.0
"""Seconds for which the first item of a queue waits until that is told: as at the centre."""

ALWAYS_FULL: Final = frozenset({"recent_bytes", "released_keys", "items_per_node"})
"""Bounds that are reached as a matter of course: what is oldest makes room there."""


def database_is_whole(folder: Path, *, deep: bool) -> Iterator[Finding]:
    """Let SQLite look at the database: at its structure, or `deep`, at each index entry too."""
    path, began = folder / database.FILE_NAME, time.monotonic()
    with closing(database.connect_reader(path)) as connection:
        if not deep:
            late = began + QUICK
            connection.set_progress_handler(lambda: time.monotonic() > late, STEPS)
        try:
            faults = _faults(connection, deep=deep)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise database.translate(error) from error
            text = f"the database is too large to look at in {QUICK:g} s"
            yield Finding("database", NOTICE, text, "`fieldpost doctor --deep` takes its time")
            return
        except sqlite3.DatabaseError as error:
            faults = [str(error)]
    if faults:
        remedy = "stop the gateway, copy its folder, and restore the last backup"
        yield Finding("database", WRONG, f"it is damaged: {'; '.join(faults)}", remedy)
    else:
        how = "to its last entry" if deep else "as far as a quick look tells"
        yield Finding("database", OK, f"the database is whole, {how}")


def _faults(connection: sqlite3.Connection, *, deep: bool) -> list[str]:
    check = "integrity_check" if deep else "quick_check"
    found = [row[0] for row in connection.execute(f"PRAGMA {check}({FAULTS})")]
    if deep:
        rows = connection.execute("PRAGMA foreign_key_check").fetchmany(FAULTS)
        found += [f"row {row[1]} of {row[0]} refers to none of {row[2]}" for row in rows]
    return [text for text in found if text != "ok"]


def wal(status: Status) -> Iterator[Finding]:
    """Look whether the WAL can be taken back."""
    most = next(limit.allowed for limit in status.limits if limit.name == "wal_bytes")
    text = f"the WAL has {size(status.wal_bytes)} of {size(most)}"
    if status.wal_bytes > most:
        remedy = "end the process that reads the database all the time"
        yield Finding("WAL", WRONG, f"{text}: new messages wait", remedy)
    else:
        yield Finding("WAL", OK, text)


def limits(status: Status) -> Iterator[Finding]:
    """Tell which bounds are near."""
    near = False
    for limit in status.limits:
        if limit.used is None or limit.name in ALWAYS_FULL or not limit.allowed:
            continue
        used, whose = limit.used
        if used < NEAR * limit.allowed:
            continue
        near = True
        of = f" ({whose})" if whose else ""
        text = f"{limit.name}: {used} of {limit.allowed:g} {limit.unit} are used{of}"
        verdict = WRONG if used >= limit.allowed else NOTICE
        yield Finding("limits", verdict, text, "docs/how-to/operate.md, 'Status'")
    if not near:
        yield Finding("limits", OK, f"no limit is used by more than {NEAR * 100:.0f} %")


def dead(status: Status) -> Iterator[Finding]:
    """Tell how many messages could not be delivered."""
    waiting = status.waiting
    if waiting.dead:
        text = plural(waiting.dead, "message is", "messages are")
        text += f" dead, {waiting.in_doubt} of them in doubt"
        yield Finding("dead", NOTICE, text, "`fieldpost dead list` has them")
    else:
        yield Finding("dead", OK, "no message is dead")


def queues(depths: Sequence[Depth], status: Status) -> Iterator[Finding]:
    """Tell which queues have items that wait for long, or that are dead."""
    well = True
    for row in depths:
        age = 0.0 if row.oldest is None else status.service - row.oldest
        if row.depth and age > STUCK:
            well = False
            items = plural(row.depth, "item")
            text = f"{row.topic}: {items}, the first came {duration(age)} ago"
            remedy = f"`fieldpost queue show {row.topic}` says why"
            yield Finding("queues", NOTICE, text, remedy)
    if status.waiting.queued_dead:
        well = False
        dead = status.waiting.queued_dead
        text = f"{plural(dead, 'item of a queue is', 'items of queues are')} dead"
        yield Finding("queues", NOTICE, text, "`fieldpost queue list` tells where")
    if well:
        items = plural(status.waiting.queued, "item waits", "items wait")
        yield Finding("queues", OK, f"{items}, none for long")
