"""Count the notifications sent to people in the current minute; a restart resets the count."""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction

WINDOW: Final = 60.0
"""Service seconds after which the count of notifications begins again."""

_COUNT: Final = """
INSERT INTO temp.notices (one, since, events) VALUES (1, :now, 1)
ON CONFLICT (one) DO UPDATE SET
    events = iif(:now >= since + :window, 1, events + 1),
    since = iif(:now >= since + :window, :now, since)
RETURNING events
"""


def count(tx: Transaction) -> int:
    """Count one notification; return how many the current minute has, including this one."""
    return int(tx.row(_COUNT, {"now": tx.now.service, "window": WINDOW})[0])
