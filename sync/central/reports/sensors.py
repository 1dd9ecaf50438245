"""Report 7, silent sensors: of which nothing came for much longer than is usual with them."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    state=TEXT,
    readings=NUMBER,
    interval_s=REAL,
    limit_s=REAL,
    last=TIME,
    silence_s=REAL,
    told_until=TIME,
)
"""A sensor: who sent it (`source`, a bare JID), and its topic, its node and its name (`sensor`, a
space between).

`state`: `ok`; `silent`: nothing for more than `limit_s`; `unknown`: readings that were taken since
its `last` one have not come in. `interval_s` is the median of the seconds between two readings
(null with one alone), `silence_s` the seconds since the last one up to `told_until`: both by the
gateway's clock, without the time before its last start and before its clock was last set."""
