"""How many events people were told of in the present minute: it ends with the process."""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction

WINDOW: Final = 60.0
"""Seconds of service that are counted together."""

_COUNT: Final = """
INSERT INTO temp.notices (one, since, events) VALUES (1, :now, 1)
ON CONFLICT (one) DO UPDATE SET
    events = iif(:now >= since + :window, 1, events + 1),
    since = iif(:now >= since + :window, :now, since)
RETURNING events
"""


def count(tx: Transaction) -> int:
    """Count one more event, and return how many that makes in the present window."""
    return int(tx.row(_COUNT, {"now": tx.now.service, "window": WINDOW})[0])
