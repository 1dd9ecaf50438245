"""Report 11, growth: what gateways ship and keep, and when their storage will be full."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    gateway=TEXT,
    state=TEXT,
    days=NUMBER,
    shipped_day=REAL,
    events_day=REAL,
    disk_used=NUMBER,
    trend_day=REAL,
    trend_low=REAL,
    trend_high=REAL,
    cap=NUMBER,
    cap_from=TEXT,
    days_left=REAL,
    days_low=REAL,
    days_high=REAL,
    evicted=NUMBER,
    last_evicted=TIME,
)
"""A gateway. `state`: `full` (it gives up events for want of room), `soon` (full in less than
`SOON_D` days) or `ok`.

`shipped_day`: bytes of segments a day, and `events_day`: events, medians of whole days, `days` of
them. `disk_used`: bytes that its folder takes, as told last. `trend_day`: bytes by which that grows
in a day, with the bounds of its interval. `cap`: bytes that the folder may take, and who says so
(`cap_from`: `gateway`, `operator`, or `evictions`: it was that large when it gave up events).
`days_left` until the cap, with the bounds of its interval; null where it does not grow or no cap is
known. `evicted`: events given up, the last time at `last_evicted`."""
