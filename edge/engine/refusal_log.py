"""Refusals that wait to be told together: at most one event a window for each source and rule.

The first refusal of a window is told at once; what follows is counted here and told when the window
is over. The table is bounded: beyond, refusals count under one source, `other`. What a client may
do as often as it likes, and is logged, is folded in the same way.
"""

from __future__ import annotations

from typing import Final

from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.custody.rules import REPEATED

OTHER_SOURCE: Final = "other"

CHANGED: Final = "password_changed"
"""What stands for a rule where a device changed its password."""

_ALLOWED: Final = {
    CHANGED: NewEvent("device", name="password", level="Notice"),
    REPEATED: NewEvent("message", name=REPEATED, value=1.0, level="Informational"),
}
"""What is no refusal, and is told as another event; the value is that of one."""

BATCH: Final = 256
"""How many windows are closed in one unit of work."""

_COUNT: Final = """
UPDATE refusals SET count = count + ?, figure = ? WHERE source = ? AND rule = ? RETURNING count
"""
_OPEN: Final = "INSERT INTO refusals (source, rule, count, figure, due) VALUES (?, ?, 0, ?, ?)"
_ROWS: Final = "SELECT count(*) FROM refusals"
_OVER: Final = """
SELECT source, rule, count, figure FROM refusals WHERE due <= ? ORDER BY due LIMIT ?
"""
_CLOSE: Final = "DELETE FROM refusals WHERE source = ? AND rule = ?"
_AGAIN: Final = "UPDATE refusals SET count = 0, due = ? WHERE source = ? AND rule = ?"
_COUNTED: Final = "SELECT source, rule, count, figure FROM refusals WHERE count > 0 ORDER BY due"
_CLOSE_ALL: Final = "DELETE FROM refusals"
_FIRST: Final = "SELECT min(due) FROM refusals"


def refuse(
    tx: Transaction,
    source: str,
    rule: str,
    figure: int | None,
    window: float,
    sources: int,
    times: int = 1,
) -> None:
    """Count refusals, and tell them at once if they are the first of their window.

    `figure` is the limit that was exceeded, if one was. `window` is in seconds of service,
    `sources` bounds the table's rows, `times` is how many there were.
    """
    if tx.row(_COUNT, (times, figure, source, rule)) is not None:
        return
    if source != OTHER_SOURCE and tx.row(_ROWS)[0] >= sources:
        refuse(tx, OTHER_SOURCE, rule, figure, window, sources, times)
        return
    due = tx.now.service + window
    tx.run(_OPEN, (source, rule, figure, due))
    tx.wake_at(due)
    _tell(tx, source, rule, times, figure)


def close_due_windows(tx: Transaction, window: float) -> None:
    """Close the windows that are over, and tell what was counted in them since they were opened."""
    for source, rule, times, figure in tx.rows(_OVER, (tx.now.service, BATCH)):
        if times:
            _tell(tx, source, rule, times, figure)
            tx.run(_AGAIN, (tx.now.service + window, source, rule))
        else:
            tx.run(_CLOSE, (source, rule))
    (due,) = tx.row(_FIRST)
    if due is not None:
        tx.wake_at(due)


def close_all_windows(tx: Transaction) -> None:
    """Tell all that was counted, and close all windows: the gateway stops."""
    for source, rule, times, figure in tx.rows(_COUNTED):
        _tell(tx, source, rule, times, figure)
    tx.run(_CLOSE_ALL)


def _tell(tx: Transaction, source: str, rule: str, times: int, figure: int | None) -> None:
    allowed = _ALLOWED.get(rule)
    if allowed is not None:
        value = float(times) if times > 1 else allowed.value
        events.append(tx, events.SYSTEM, allowed._replace(source=source, value=value))
        return
    tags = {} if figure is None else {"limit": str(figure)}
    event = NewEvent("limit", source, name=rule, value=float(times), level="Warning", tags=tags)
    events.append(tx, events.SYSTEM, event)
