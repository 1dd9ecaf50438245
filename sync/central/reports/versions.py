"""Report 9, versions: which gateway runs what, and whether a version errs more than the last."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    version=TEXT,
    gateways=NUMBER,
    current=NUMBER,
    first_seen=TIME,
    last_seen=TIME,
    gateway_days=REAL,
    events=NUMBER,
    errors=NUMBER,
    per_thousand=REAL,
    per_day=REAL,
    before=TEXT,
    compared=NUMBER,
    higher=NUMBER,
    ratio=REAL,
    worse=FLAG,
    caution=FLAG,
)
"""A version of Fieldpost. `gateways` that ever ran it, and that run it now (`current`); when it was
seen first and last, by their clocks; for how many `gateway_days`; `events` under it and `errors`
(of level Error and above), as `per_thousand` events and as `per_day` of a gateway.

`before` is the version that was seen first before it. `compared` gateways ran both; on `higher` of
them the errors a day are more than they were. `ratio` is of the errors a day on these gateways, new
to old. `worse` is the judgement, `caution` tells that too little was seen for one."""
