"""Log events about the database itself: its migration, and that it is full or has room again."""

from __future__ import annotations

from typing import Final

from edge.config.limits import Limits
from edge.engine.rules import space_rules
from edge.engine.store import database, events, meta, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

ROOM: Final = 1024 * 1024
"""Bytes of free room with which a full database counts as no longer full. Without this margin,
messages that come and go at the limit would cause an event each time."""

_FULL: Final = "SELECT since FROM temp.fullness"
_BEGIN: Final = "INSERT INTO temp.fullness (one, since) VALUES (1, ?)"
_END: Final = "DELETE FROM temp.fullness"


def log_migration(tx: Transaction) -> None:
    """Log that a start or a command has migrated the schema, if that is not logged yet."""
    before = meta.read_number(tx, database.MIGRATED)
    if not before:
        return
    meta.write(tx, database.MIGRATED, 0.0)
    version = database.schema_version(tx)
    event = NewEvent(
        "store",
        name="migrated",
        value=float(version),
        level="Notice",
        text="the database was migrated; an older fieldpost cannot open it",
        tags={"from": f"{before:.0f}"},
    )
    events.append(tx, events.SYSTEM, event)


def log_fullness(tx: Transaction, limits: Limits) -> None:
    """Log that the database has no room for new messages, or has room again.

    The events take room from the reserve, so neither is logged if the disk is completely full.
    """
    since = tx.row(_FULL)
    over = space.exceeded_limit(tx, ROOM if since else space_rules.MESSAGE_ROOM, limits)
    if over is not None and since is None:
        tx.run(_BEGIN, (tx.now.service,))
        tags = {"rule": over.name, "limit": str(over.value)}
        usage, bounds = space.measure(tx), space.space_limits(limits)
        text = "; ".join(space_rules.shortage(usage, bounds, over))
        event = NewEvent("store", name="full", level="Warning", text=text, tags=tags)
        events.append(tx, events.SYSTEM, event)
    elif over is None and since is not None:
        tx.run(_END)
        seconds = round(tx.now.service - since[0], 3)
        event = NewEvent("store", name="room", value=seconds, unit="s", level="Notice")
        events.append(tx, events.SYSTEM, event)
