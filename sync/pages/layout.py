"""All tables in the order in which the page has them, and the two that are of the whole fleet.

The schemas themselves are the reports'; a table of which there are no rows shows none.
"""

from __future__ import annotations

from typing import Final

from sync.pages import text as words
from sync.pages.column import Layout, number, prose, text, time
from sync.pages.layout_gateways import (
    AVAILABILITY,
    CLOCKS,
    COMPLETENESS,
    GROWTH,
    OUTAGES,
    VERSIONS,
)
from sync.pages.layout_messages import (
    DELIVERY,
    DUPLICATES,
    LAG,
    NOTICES,
    QUEUES,
    REFUSALS,
)
from sync.pages.layout_sensors import ANOMALIES, SENSORS
from sync.reports.gather import Findings, Rows

TOTALS: Final = Layout(
    "totals",
    "Events by lane and kind",
    "What the tables hold, and when it happened by the gateways' clocks.",
    (text("lane", "Lane"), text("kind", "Kind"), number("events", "Events")),
)

QUARANTINE: Final = Layout(
    "quarantine",
    "Quarantine",
    "What was read and not taken, latest first, each file once. Paths are those it was read from.",
    (
        time("arrived", "Arrived"),
        prose("path", "File"),
        number("size", "Size", words.size),
        text("reason", "Reason"),
        prose("detail", "Why"),
    ),
    "Nothing: all that was read was taken.",
)

LAYOUTS: Final = (
    AVAILABILITY,
    OUTAGES,
    COMPLETENESS,
    DELIVERY,
    LAG,
    DUPLICATES,
    QUEUES,
    REFUSALS,
    NOTICES,
    SENSORS,
    ANOMALIES,
    CLOCKS,
    VERSIONS,
    GROWTH,
    TOTALS,
    QUARANTINE,
)


def rows_of(found: Findings, name: str) -> Rows:
    """Give the rows of a table, or of what a plot is drawn from; none where there are none."""
    rows: Rows = getattr(found, name, None) or []
    return rows
