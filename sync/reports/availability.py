"""Availability: whether each gateway ran, and whether the centre could reach it.

A gateway **runs** while its heartbeats follow each other; this is known once its backlog has
arrived. It is **reachable** while its segments arrive. Nothing is said of the time after the last
heartbeat: whether the gateway runs is not known until the next one arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column, heartbeats, lanes, remedies
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count, duration, percentage
from sync.reports.shared.frames import (
    REAL,
    TEXT,
    merged,
    numbered,
    schema,
    seconds,
    time_at,
)
from sync.reports.shared.report import Problem, ProblemKind, Report, Series, Table
from sync.reports.shared.thresholds import MIN_SEALINGS, MISSED_INTERVALS, SILENCE_S
from sync.tables.partitions import conform

TABLE: Final = Table(
    order=10,
    title="Availability",
    about=(
        "A gateway is running while its heartbeats arrive, and reachable while anything arrives "
        "from it. A gap of more than 2.5 heartbeat intervals is an outage, unless the gateway "
        "was stopped cleanly, or its events of that time are missing: then its state is unknown. A "
        "silence is a longer time without an arrival than usual. The time after the last heartbeat "
        "is not judged."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.state("state", "State", {"running": "good", "stopped": "calm", "silent": "wrong"}),
        column.real("running_share", "Running", percentage),
        column.real("reachable_share", "Reachable", percentage),
        column.time("last_seen", "Last seen"),
        column.alarm("outages", "Outages"),
        column.duration("running_s", "Time running"),
        column.duration("outage_s", "Time in outages"),
        column.duration("stopped_s", "Time stopped"),
        column.duration("unknown_s", "Time unknown"),
        column.duration("longest_gap_s", "Longest gap"),
        column.number("restarts", "Restarts"),
        column.alarm("unclean_restarts", "Unclean restarts"),
        column.number("silences", "Silences"),
        column.duration("longest_silence_s", "Longest silence"),
        column.duration("silent_after_s", "Silent after"),
        column.time("last_arrival", "Last arrival"),
        column.time("first_seen", "First seen"),
        column.number("clock_steps", "Clock changes"),
    ),
)
"""`state`: `running`, `stopped` (cleanly), `silent` (nothing has arrived for `silent_after_s`) or
`unknown` (no heartbeat ever arrived). Shares are from 0 to 1; `running_share` ignores unknown time.
Durations are in seconds, to the millisecond. `silent_after_s` is the time without an arrival after
which this gateway is silent."""

STRETCHES: Final = schema(gateway=TEXT, begin=REAL, end=REAL, state=TEXT)
"""Periods, in seconds since 1970, in which a gateway had one `state` (see `heartbeats.SPANS`)."""

MAX_STRETCHES: Final = 5_000
"""Maximum number of periods to plot, the latest ones. With more, each is narrower than a pixel."""

_SILENT: Final = ProblemKind("silent", 60, "wrong", "nothing arrives")
_OUTAGE: Final = ProblemKind("outage", 120, "notice", "outages")
_UNCLEAN: Final = ProblemKind(
    "unclean_restart", 180, "notice", "starts without a clean stop before"
)
_UNKNOWN: Final = ProblemKind("unknown", 250, "notice", "no heartbeat has arrived")


def availability(
    life: DataFrame,
    spans: DataFrame,
    segments: DataFrame,
    as_of: datetime,
    since: date | None = None,
) -> DataFrame:
    """Compute a row of `TABLE` for each gateway as of `as_of`, in the order of their names.

    `life` has the rows of `heartbeats.RUNS` of all days, `spans` the rows of `heartbeats.SPANS`
    from the day `since` (UTC) on. Durations, shares and counts are from that day on, too; states,
    first and last times are of all days. If `since` is None, everything is of all days.
    """
    reachable = _reachable(segments, as_of, since)
    rows = merged(("gateway",), reachable, _lives(life, since), _durations(spans))
    silent = F.lit(as_of.timestamp()) - seconds("last_arrival") > F.col("silent_after_s")
    counts = ["outages", "restarts", "unclean_restarts", "clock_steps", "silences"]
    rows = rows.withColumn("state", state(silent)).fillna(0, subset=counts)
    durations = [each.name for each in TABLE.schema if each.name.endswith("_s")]
    rows = rows.withColumns({name: F.round(name, 3) for name in durations})
    return conform(rows, TABLE.schema).orderBy("gateway")


def state(silent: Column) -> Column:
    """Return a gateway's state by its last life event (`last_name`, null if none) and `silent`."""
    return (
        F.when(F.col("last_name") == "stop", "stopped")
        .when(silent, "silent")
        .when(F.col("last_name").isNull(), "unknown")
        .otherwise("running")
    )


def _durations(spans: DataFrame) -> DataFrame:
    length = F.col("end") - F.col("begin")

    def total(state: str) -> Column:
        return F.sum(F.when(F.col("state") == state, length).otherwise(0.0)).alias(f"{state}_s")

    sums = spans.groupBy("gateway").agg(
        *(total(state) for state in ("running", "stopped", "outage", "unknown")),
        F.count_if(F.col("state") == "outage").alias("outages"),
        F.count_if(F.col("state") == "clock").alias("clock_steps"),
        F.max(F.when(F.col("state").isin("outage", "unknown"), length)).alias("longest_gap_s"),
    )
    known = F.col("running_s") + F.col("stopped_s") + F.col("outage_s")
    return sums.withColumn("running_share", F.when(known > 0, F.col("running_s") / known))


def _lives(life: DataFrame, since: date | None) -> DataFrame:
    order = Window.partitionBy("gateway").orderBy("epoch", "first_seq")
    stopped = F.lag(F.col("last_name") == "stop").over(order)
    same_epoch = F.lag("epoch").over(order) == F.col("epoch")  # an earlier one may have stopped
    runs = life.withColumns({"stopped": stopped, "unclean": same_epoch & ~stopped})
    place = F.struct("epoch", "first_seq")
    restart = (F.col("first_name") == "start") & F.col("stopped").isNotNull()
    if since is not None:
        restart &= F.col("begin") >= F.unix_seconds(F.lit(since).cast("timestamp"))
    return runs.groupBy("gateway").agg(
        time_at(F.min_by("begin", place)).alias("first_seen"),
        time_at(F.max_by("end", place)).alias("last_seen"),
        F.max_by("last_name", place).alias("last_name"),
        F.count_if(restart).alias("restarts"),
        F.count_if(restart & F.col("unclean")).alias("unclean_restarts"),
    )


def _reachable(segments: DataFrame, as_of: datetime, since: date | None) -> DataFrame:
    order = Window.partitionBy("gateway").orderBy("begin")
    named = segments.where(F.col("gateway").isNotNull())
    arrivals = named.select("gateway", seconds("arrived").alias("begin")).distinct()
    now = F.greatest(F.lit(as_of.timestamp()), F.col("begin"))
    gaps = arrivals.withColumn("end", F.coalesce(F.lead("begin").over(order), now))
    gaps = gaps.join(silence_limits(segments), on="gateway", how="left")
    limit = F.coalesce("silent_after_s", F.lit(SILENCE_S))
    gaps = gaps.withColumn("silent_after_s", limit).withColumn("arrival", F.col("begin"))
    gaps = gaps.withColumn("silent", F.col("end") - F.col("begin") > F.col("silent_after_s"))
    gaps = heartbeats.cut_before(gaps, since)
    length = F.col("end") - F.col("begin")
    silence = F.when(F.col("silent"), length)
    sums = gaps.groupBy("gateway").agg(
        F.count(silence).alias("silences"),
        F.max(silence).alias("longest_silence_s"),
        F.coalesce(F.sum(silence), F.lit(0.0)).alias("silent_s"),
        F.sum(length).alias("total_s"),
        time_at(F.max("arrival")).alias("last_arrival"),
        F.first("silent_after_s").alias("silent_after_s"),
    )
    share = F.lit(1.0) - F.col("silent_s") / F.col("total_s")
    return sums.withColumn("reachable_share", F.when(F.col("total_s") > 0, share))


def silence_limits(segments: DataFrame) -> DataFrame:
    """Derive `silent_after_s` from how often each gateway seals its system lane.

    The intervals between segments are measured in service seconds, which neither time switched off
    nor clock changes affect. A gateway with fewer than `MIN_SEALINGS` intervals has no row.
    """
    order = Window.partitionBy("gateway", "epoch").orderBy("first_seq")
    sealed = segments.where((F.col("fate") == "accepted") & (F.col("lane") == "system"))
    between = F.col("service_seconds") - F.lag("service_seconds").over(order)
    intervals = sealed.select("gateway", between.alias("between")).where("between > 0")
    usual = intervals.groupBy("gateway").agg(
        # nearest rank: the median is an interval that occurred
        F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY between)").alias("usual"),
        F.count(F.lit(1)).alias("known"),
    )
    limit = F.greatest(F.lit(SILENCE_S), F.col("usual") * MISSED_INTERVALS)
    enough = usual.where(F.col("known") >= MIN_SEALINGS)
    return enough.select("gateway", limit.alias("silent_after_s"))


def stretches(spans: DataFrame) -> DataFrame:
    """Compute the latest rows of `STRETCHES`: join consecutive spans that have the same state.

    Leaves out spans with the state `clock`, whose lengths are not known.
    """
    order = Window.partitionBy("gateway").orderBy("begin", "end")
    known = spans.where(F.col("state") != "clock")
    continues = (F.lag("state").over(order) == F.col("state")) & (
        F.lag("end").over(order) == F.col("begin")
    )
    joined = numbered(known, continues, order, "stretch")
    joined = joined.groupBy("gateway", "stretch").agg(
        F.min("begin").alias("begin"), F.max("end").alias("end"), F.first("state").alias("state")
    )
    latest = conform(joined, STRETCHES).orderBy(F.desc("begin"), "gateway").limit(MAX_STRETCHES)
    return latest.orderBy("gateway", "begin")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find silent gateways, outages, and starts without a clean stop before."""
    for row in findings["availability"]:
        gateway = row["gateway"]
        if row["state"] == "silent":
            yield _SILENT.of(
                gateway,
                f"Nothing has arrived since {findings.moment(row['last_arrival'])}, and the "
                "gateway did not announce a stop.",
                remedies.SILENT,
            )
        if row["state"] == "unknown":
            yield _UNKNOWN.of(
                gateway,
                "Segments arrive, but no heartbeat has arrived yet.",
                "The gateway may still be sending a backlog. Wait until it has arrived, then run "
                "`fieldpost-fleet ingest` again.",
            )
        if row["outages"]:
            yield _OUTAGE.of(
                gateway,
                f"Outages: {count(row['outages'])}, {duration(row['outage_s'])} in total.",
                "Check the gateway's power supply, and read its journal (`journalctl -u "
                "fieldpost`) around the times that are listed on the gateway's page.",
            )
        if row["unclean_restarts"]:
            yield _UNCLEAN.of(
                gateway,
                f"Starts without a clean stop before: {count(row['unclean_restarts'])}.",
                "No acknowledged message is lost by this, but many such starts wear out the "
                "gateway's card. Check its power supply.",
            )


REPORT: Final = Report(
    "availability",
    (heartbeats.DAILY, lanes.DAILY),
    lambda context: availability(
        context.all_days(heartbeats.DAILY),
        heartbeats.spans_of(context),
        context.segments(),
        context.as_of,
        context.since,
    ),
    TABLE,
    series=(
        Series(
            "stretches",
            (heartbeats.DAILY, lanes.DAILY),
            lambda context: stretches(heartbeats.spans_of(context)),
        ),
    ),
    problem_kinds=(_SILENT, _OUTAGE, _UNCLEAN, _UNKNOWN),
    problems=problems,
)
