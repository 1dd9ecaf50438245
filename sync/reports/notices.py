"""Notices: messages that were not delivered, and requests that limits refused.

Counts events of the system lane. The messages themselves are at the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.events import occurrences
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count, plain
from sync.reports.shared.frames import of_each_gateway, times_since_until
from sync.reports.shared.report import Problem, ProblemKind, Report, Table
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=90,
    title="Undelivered messages and refusals",
    about=(
        "Messages that gateways could not deliver, by the event that reports it (dead, expired, "
        "evicted), and requests that were refused, by the name of the limit."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("kind", "Kind"),
        column.text("name", "Event or limit"),
        column.number("times", "Times"),
        column.time("since", "First"),
        column.time("until", "Last"),
    ),
    empty="All messages were delivered, and no limit refused anything.",
)
"""`kind` is `message` (a message was not delivered; `name` is `dead`, `expired`, `evicted`, ...) or
`limit` (requests were refused; `name` is the limit). `times`: the number of events; for limits the
number of refusals, the sum of the events' values. `since` and `until`: first and last event."""

REPEATED: Final = "repeated"
"""The name of `message` events for repeated offers: the report `duplicates` counts these."""


def daily_notices(events: DataFrame) -> DataFrame:
    """Compute the rows of `TABLE` for each `day`."""
    system = events.where((F.col("lane") == "system") & F.col("kind").isin("message", "limit"))
    times = F.when(F.col("kind") == "limit", occurrences()).otherwise(1)
    rows = system.where(F.col("name") != REPEATED).withColumn("times", times)
    by = ("day", "gateway", "kind", "name")
    return rows.groupBy(*by).agg(*times_since_until("time", "time"))


def notices(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway, kind and name in `daily`."""
    rows = daily.groupBy("gateway", "kind", "name").agg(*times_since_until())
    shown = of_each_gateway(conform(rows, TABLE.schema), F.desc("times"), F.col("name"))
    return shown.orderBy("gateway", "kind", "name")


_LOST: Final = ProblemKind("message_lost", 80, "notice", "messages were not delivered")
_ASSURED: Final = "Check the device that sent them: it does not complete assured delivery."
_MESSAGES: Final = {
    "dead": (
        "Messages that could not be delivered: {}.",
        "`fieldpost dead list` at the gateway lists them with the reason. Once the cause is "
        "removed, `fieldpost dead requeue` sends them again.",
    ),
    "dead_evicted": (
        "Undeliverable messages that the gateway has deleted: {}.",
        "The gateway had too many undeliverable messages. `fieldpost dead list` shows the "
        "remaining ones and the cause.",
    ),
    "expired": (
        "Messages that expired because their sender never requested delivery: {}.",
        _ASSURED,
    ),
    "evicted": ("Messages that were deleted because their sender was at its limit: {}.", _ASSURED),
}
_OTHER: Final = "`fieldpost events` at the gateway shows why, in its events of kind message."
_IN_OTHER_REPORTS: Final = ("queue_dead", "repeated", "share_items_dead")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find undelivered messages: one problem for each gateway and event name."""
    for row in findings["notices"]:
        if row["kind"] != "message" or row["name"] in _IN_OTHER_REPORTS:
            continue
        times = count(row["times"])
        known = _MESSAGES.get(row["name"])
        if known is None:  # a name from outside, which may contain braces
            what, remedy = f"Messages with the event {plain(row['name'])}: {times}.", _OTHER
        else:
            what, remedy = known[0].format(times), known[1]
        yield _LOST.of(row["gateway"], what, remedy)


DAILY: Final = Summary("notices", 1, TABLE.schema, daily_notices)

REPORT: Final = Report(
    "notices",
    (DAILY,),
    lambda context: notices(context.daily(DAILY)),
    TABLE,
    problem_kinds=(_LOST,),
    problems=problems,
)
