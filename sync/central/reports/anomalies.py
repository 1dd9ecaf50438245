"""Report 10, anomalies: sensors that tell what they never told, or the same for too long."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    unit=TEXT,
    state=TEXT,
    constant=FLAG,
    flat_since=TIME,
    flat_until=TIME,
    flat_readings=NUMBER,
    flat_value=REAL,
    hours=NUMBER,
    anomalous_hours=NUMBER,
    worst_at=TIME,
    worst_value=REAL,
    usual=REAL,
    z=REAL,
    basis=TEXT,
)
"""A sensor whose readings are numbers (`source` and `sensor` as in `sensors`).

`state`: `flat`, `anomalous` or `ok`. `constant` tells that all its readings were the same: such a
sensor is never flat. Of its longest flat line, where it has one: when it began and the last reading
of it, how many readings, and the value. `hours` that it has readings in, `anomalous_hours` of these
whose median is out of the ordinary; of the worst: its beginning, its median, the `usual` one at
that hour of the day, the robust `z`, and its `basis`: `history`, its own, or `type`, the others of
the same name and unit."""
