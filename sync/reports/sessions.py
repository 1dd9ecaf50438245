"""Sessions of devices by protocol: how many began, and how many of them lost their connection.

A session is logged by the gateway with its protocol, unless it is XMPP: gateways that knew no other
protocol logged none.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.events import is_system_event, occurrences, text_tag
from sync.reports.shared.frames import INTEGER, TEXT, TIME, schema
from sync.reports.shared.report import Report, Table
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=95,
    title="Sessions by protocol",
    about=(
        "How many sessions the devices began by XMPP and by each version of MQTT, and how many "
        "ended because the connection was lost."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("protocol", "Protocol", {"mqtt": "MQTT", "xmpp": "XMPP"}),
        column.text("version", "Version"),
        column.number("devices", "Devices"),
        column.number("sessions", "Sessions"),
        column.number("lost", "Lost"),
        column.prose("which", "Devices that lost most"),
        column.time("since", "First"),
        column.time("until", "Last"),
    ),
    empty="No session has begun or ended.",
)
"""A protocol of a gateway's sessions: `xmpp`, `mqtt` or `OTHER`; `version` is null if the protocol
has only one. `devices` is the number of accounts that began `sessions`; `lost` is how many sessions
ended by a lost connection (`LOST`), and `which` names the accounts with most of these (`NAMED` at
most), separated by commas. `since` and `until`: the first and the last event, by the gateway's
clock."""

NAMED: Final = 5
"""Maximum number of devices that a row names; the others are only counted."""

LOST: Final = ("lost", "not-resumed", "connection-timeout", "keep_alive_timeout")
"""The reasons of `session ended` that mean a lost connection (docs/reference/events.md)."""

OTHER: Final = "(other)"
"""In place of all protocols but `PROTOCOLS`: a gateway cannot invent any number of rows."""

PROTOCOLS: Final = ("xmpp", "mqtt")
VERSIONS: Final = ("3.1.1", "5.0")
"""The versions of MQTT; others are null."""

DAYS: Final = schema(
    gateway=TEXT,
    source=TEXT,
    protocol=TEXT,
    version=TEXT,
    sessions=INTEGER,
    lost=INTEGER,
    since=TIME,
    until=TIME,
)
"""The sessions of a device on a day."""


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS`, each with its `day`."""
    found = events.where(is_system_event("session", "began", "ended"))
    protocol = F.coalesce(text_tag("protocol"), F.lit("xmpp"))
    rows = found.select(
        "day",
        "gateway",
        "source",
        F.when(protocol.isin(*PROTOCOLS), protocol).otherwise(OTHER).alias("protocol"),
        F.when(text_tag("version").isin(*VERSIONS), text_tag("version")).alias("version"),
        F.when(F.col("name") == "began", occurrences()).otherwise(0).alias("sessions"),
        F.when(text_tag("reason").isin(*LOST), occurrences()).otherwise(0).alias("lost"),
        "time",
    )
    by = ("day", "gateway", "source", "protocol", "version")
    return rows.groupBy(*by).agg(*_sums("time", "time"))


def sessions(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway, protocol and version in `daily` (`DAYS`)."""
    by = ("gateway", "protocol", "version")
    devices = daily.groupBy(*by, "source").agg(*_sums())
    loser = F.struct((-F.col("lost")).alias("less"), F.coalesce("source", F.lit("")).alias("who"))
    most = F.array_sort(F.collect_list(F.when(F.col("lost") > 0, loser)))
    rows = devices.groupBy(*by).agg(
        F.count(F.when(F.col("sessions") > 0, F.lit(1))).alias("devices"),
        F.array_join(F.slice(most["who"], 1, NAMED), ", ").alias("which"),
        *_sums(),
    )
    return conform(rows, TABLE.schema).orderBy(*by)


def _sums(first: str = "since", last: str = "until") -> list[Column]:
    sums = (F.sum(name).alias(name) for name in ("sessions", "lost"))
    return [*sums, F.min(first).alias("since"), F.max(last).alias("until")]


DAILY: Final = Summary("sessions", 1, DAYS, days)

REPORT: Final = Report("sessions", (DAILY,), lambda context: sessions(context.daily(DAILY)), TABLE)
