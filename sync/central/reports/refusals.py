"""Report 6, refusals: what limits refused, by who asked and by the rule that refused it."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    source=TEXT,
    rule=TEXT,
    times=NUMBER,
    since=TIME,
    until=TIME,
    gateways=NUMBER,
    which=TEXT,
    latest=NUMBER,
    usual=REAL,
    surge=FLAG,
)
"""A source (null: the gateways did not tell it) and a rule.

`times` is how many refusals, told first at `since` and last at `until`, by the gateways' clocks;
`gateways` how many told of them, and `which`: the names of those with most, `NAMED` at most, comma
between. `latest` is the greater count of the last two days (UTC), of which the last is not over;
`usual` the median of the counts of the days before these (null where there are none), and `surge`
tells that `latest` is far above it."""
