"""Sessions of devices by protocol: how many began, how many of them lost their connection, and how
many log-ins failed.

Sessions and failed log-ins are logged by the gateway with their protocol, unless it is XMPP:
gateways that knew no other protocol logged none.
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
        "ended because the connection was lost; and how many log-ins failed."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("protocol", "Protocol", {"mqtt": "MQTT", "xmpp": "XMPP"}),
        column.text("version", "Version"),
        column.text("transport", "Transport", {"websocket": "WebSocket"}),
        column.number("devices", "Devices"),
        column.number("sessions", "Sessions"),
        column.number("lost", "Lost"),
        column.number("failed", "Failed log-ins"),
        column.prose("which", "Devices that lost most"),
        column.time("since", "First"),
        column.time("until", "Last"),
    ),
    empty="No session has begun or ended, and no log-in failed.",
)
"""A protocol of a gateway's sessions: `xmpp`, `mqtt` or `OTHER`; `version` is null if the protocol
has only one, and `transport` is null for TCP, with or without TLS. `devices` is the number of
accounts that began `sessions`; `lost` is how many sessions ended by a lost connection (`LOST`), and
`which` names the accounts with most of these (`NAMED` at most), separated by commas. `failed` is
the number of log-ins that failed, or were refused because too many had failed. `since` and `until`:
the first and the last event, by the gateway's clock."""

NAMED: Final = 5
"""Maximum number of devices that a row names; the others are only counted."""

LOST: Final = ("lost", "not-resumed", "connection-timeout", "keep_alive_timeout")
"""The reasons of `session ended` that mean a lost connection (docs/reference/events.md)."""

OTHER: Final = "(other)"
"""In place of all protocols but `PROTOCOLS`: a gateway cannot invent any number of rows."""

PROTOCOLS: Final = ("xmpp", "mqtt")
VERSIONS: Final = ("3.1.1", "5.0")
TRANSPORTS: Final = ("websocket",)
"""The versions of MQTT, and its transports beside TCP; others are null."""

DAYS: Final = schema(
    gateway=TEXT,
    source=TEXT,
    protocol=TEXT,
    version=TEXT,
    transport=TEXT,
    sessions=INTEGER,
    lost=INTEGER,
    failed=INTEGER,
    since=TIME,
    until=TIME,
)
"""The sessions of a device on a day. Failed log-ins have no source, as peers choose its address."""

_BY: Final = ("gateway", "protocol", "version", "transport")


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS`, each with its `day`."""
    failed = is_system_event("limit", "authentication", "authentication_limit")
    found = events.where(is_system_event("session", "began", "ended") | failed)
    protocol = F.coalesce(text_tag("protocol"), F.lit("xmpp"))
    rows = found.select(
        "day",
        "gateway",
        F.when(~failed, F.col("source")).alias("source"),
        F.when(protocol.isin(*PROTOCOLS), protocol).otherwise(OTHER).alias("protocol"),
        *(
            F.when(text_tag(name).isin(*known), text_tag(name)).alias(name)
            for name, known in (("version", VERSIONS), ("transport", TRANSPORTS))
        ),
        F.when(F.col("name") == "began", occurrences()).otherwise(0).alias("sessions"),
        F.when(text_tag("reason").isin(*LOST), occurrences()).otherwise(0).alias("lost"),
        F.when(failed, occurrences()).otherwise(0).alias("failed"),
        "time",
    )
    return rows.groupBy("day", *_BY, "source").agg(*_sums("time", "time"))


def sessions(daily: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway and protocol in `daily` (`DAYS`)."""
    devices = daily.groupBy(*_BY, "source").agg(*_sums())
    loser = F.struct((-F.col("lost")).alias("less"), F.coalesce("source", F.lit("")).alias("who"))
    most = F.array_sort(F.collect_list(F.when(F.col("lost") > 0, loser)))
    rows = devices.groupBy(*_BY).agg(
        F.count(F.when(F.col("sessions") > 0, F.lit(1))).alias("devices"),
        F.array_join(F.slice(most["who"], 1, NAMED), ", ").alias("which"),
        *_sums(),
    )
    return conform(rows, TABLE.schema).orderBy(*_BY)


def _sums(first: str = "since", last: str = "until") -> list[Column]:
    sums = (F.sum(name).alias(name) for name in ("sessions", "lost", "failed"))
    return [*sums, F.min(first).alias("since"), F.max(last).alias("until")]


DAILY: Final = Summary("sessions", 2, DAYS, days)

REPORT: Final = Report("sessions", (DAILY,), lambda context: sessions(context.daily(DAILY)), TABLE)
