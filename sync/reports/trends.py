"""Trends: the figures of the overview in the period of the report, and in the one before it.

The period begins with the first day that was asked for, and ends now; the one before it is as long.
A report of all days has no period to compare with, and no row.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports import completeness, totals
from sync.reports.availability import silence_limits, state
from sync.reports.shared import column, heartbeats, lanes
from sync.reports.shared.frames import (
    LANE,
    merged,
    seconds,
    time_at,
)
from sync.reports.shared.report import Report, ReportContext, Table
from sync.reports.shared.thresholds import SILENCE_S
from sync.tables.partitions import conform, empty_frame, union
from sync.tables.tables import ACCEPTED, refused

COUNTS: Final = {
    "events": "Events",
    "segments": "Segments",
    "missing": "Missing",
    "unexplained": "Unexplained",
    "duplicates": "Stored twice",
    "forks": "Contradicting segments",
    "bad_segments": "Invalid files",
    "outages": "Outages",
}
TIMES: Final = {"running_s": "Time running", "judged_s": "Time judged"}
FIGURES: Final = COUNTS | TIMES

TABLE: Final = Table(
    order=145,
    title="Trends",
    about=(
        "The figures of this period, and of the equally long period before it. Losses count on the "
        "day of the next event that arrived. A gateway that was first seen after the earlier "
        "period began has no comparison."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.text("state_before", "State at the beginning"),
        *(
            column.duration(f"{name}{suffix}", f"{title}{when}")
            if name in TIMES
            else column.number(f"{name}{suffix}", f"{title}{when}")
            for name, title in FIGURES.items()
            for suffix, when in (("", ""), ("_before", ", before"))
        ),
        column.time("known_since", "Known since"),
    ),
    empty="No comparison: the report is of all days.",
)
"""A gateway; null for files that name no gateway. Each figure has a column for the period of the
report, and one for the period before it, which ends in `_before`.

`known_since`: the gateway's first arrival by the centre's clock, or first life event by a
synchronised clock, whichever is earlier. The two periods can be compared if the earlier one begins
after that. `state_before`: the state (of `availability`) when the period began. `events` happened
in the period, and `segments` arrived in it. `missing`, `unexplained` and `duplicates` are events,
by the day of the next number that arrived. `forks` and `bad_segments` are refused files that
arrived in it. `outages` are those that overlap it. `judged_s`: seconds in which the state is known
(running, stopped or outage); `running_s`: those in which the gateway ran."""


class Periods(NamedTuple):
    """The beginnings of the report's period and of the equally long period `before` it, in
    seconds since 1970.
    """

    before: float
    begin: float


def periods_of(since: date | None, as_of: datetime) -> Periods | None:
    """Return the periods to compare; None if the report is of all days, or begins after `as_of`."""
    if since is None:
        return None
    begin, end = datetime.combine(since, time(), UTC).timestamp(), as_of.timestamp()
    return Periods(2 * begin - end, begin) if end > begin else None


def trends(context: ReportContext) -> DataFrame:
    """Compute a row of `TABLE` for each gateway, in the order of their names."""
    periods = periods_of(context.since, context.as_of)
    if periods is None or context.since is None:
        return empty_frame(context.summaries.spark, TABLE.schema)
    segments, life = context.segments(), context.all_days(heartbeats.DAILY)
    numbers = context.all_days(lanes.DAILY)
    first = datetime.fromtimestamp(periods.before, UTC).date()
    recent = context._replace(since=first)
    dropped = completeness.dropped_ranges(context.all_days(completeness.DAILY), segments)
    rows = merged(
        ("gateway",),
        _states(life, segments, context.since),
        _events(recent.daily(totals.DAILY), periods),
        _files(segments, periods),
        _gaps(numbers, "missing", periods),
        _gaps(union(numbers, dropped), "unexplained", periods),
        _running(heartbeats.spans(life, numbers), periods),
    )
    figures = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "_before")]
    return conform(rows.fillna(0, subset=figures), TABLE.schema).orderBy("gateway")


def _sums(figure: str, at: Column, periods: Periods, amount: Column) -> list[Column]:
    """Return the sum of `amount` in each period, by the time `at` of a row (seconds since 1970)."""
    before = (at >= periods.before) & (at < periods.begin)
    return [
        F.sum(F.when(at >= periods.begin, amount)).alias(figure),
        F.sum(F.when(before, amount)).alias(f"{figure}_before"),
    ]


def _states(life: DataFrame, segments: DataFrame, since: date) -> DataFrame:
    """Compute the state of each gateway when the day `since` (UTC) began, as `availability` does.

    The state is null if nothing of the gateway was known then. Also computes `known_since`.
    """
    begin = F.lit(since).cast("timestamp")
    lived = life.groupBy("gateway").agg(
        F.max_by(
            F.when(F.col("day") < F.lit(since), F.col("last_name")),
            F.when(F.col("day") < F.lit(since), F.struct("epoch", "first_seq")),
        ).alias("last_name"),
        F.min(F.when(F.col("clock"), F.col("begin"))).alias("lived_since"),
    )
    named = segments.where(F.col("gateway").isNotNull())
    arrived = named.groupBy("gateway").agg(
        F.max(F.when(F.col("arrived") < begin, F.col("arrived"))).alias("arrived"),
        F.min(seconds("arrived")).alias("arrived_since"),
    )
    rows = merged(("gateway",), arrived, lived, silence_limits(segments))
    silence = F.unix_seconds(begin) - seconds("arrived")
    silent = silence > F.coalesce("silent_after_s", F.lit(SILENCE_S))
    existed = F.col("last_name").isNotNull() | F.col("arrived").isNotNull()
    known = time_at(F.least("arrived_since", "lived_since"))
    return rows.select(
        "gateway", F.when(existed, state(silent)).alias("state_before"), known.alias("known_since")
    )


def _events(daily: DataFrame, periods: Periods) -> DataFrame:
    sums = _sums("events", F.col("begin"), periods, F.col("events"))
    return daily.groupBy("gateway").agg(*sums)


def _files(segments: DataFrame, periods: Periods) -> DataFrame:
    files = union(segments.where(F.col("fate") == ACCEPTED), refused(segments))
    counts = []
    for figure, fate in (("segments", ACCEPTED), ("forks", "fork"), ("bad_segments", "bad")):
        one = F.when(F.col("fate") == fate, 1)
        counts += _sums(figure, seconds("arrived"), periods, one)
    return files.groupBy("gateway").agg(*counts)


def _gaps(ranges: DataFrame, figure: str, periods: Periods) -> DataFrame:
    """Count, as `figure`, the numbers that are in no range, by the `day` of the next arrived range.

    `ranges` has `LANE`, `first_seq`, `last_seq`, `day` and `rows`; the last two are null for
    numbers that were dropped. If `figure` is `missing`, numbers that arrived again count as
    `duplicates`.
    """
    order = Window.partitionBy(*LANE).orderBy("first_seq", "last_seq")
    until = F.max("last_seq").over(order.rowsBetween(Window.unboundedPreceding, -1))
    next_day = F.first("day", ignorenulls=True).over(
        order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    placed = ranges.withColumns({"until": F.coalesce(until, F.lit(0)), "next_day": next_day})
    at = F.unix_seconds(F.date_add("next_day", 1).cast("timestamp")) - 1
    timed = placed.withColumn("at", F.coalesce(at.cast("double"), F.lit(periods.begin)))
    gap = F.greatest(F.col("first_seq") - F.col("until") - 1, F.lit(0))
    new = F.greatest(
        F.col("last_seq") - F.greatest(F.col("until"), F.col("first_seq") - 1), F.lit(0)
    )
    counted = _sums(figure, F.col("at"), periods, gap)
    if figure == "missing":
        counted += _sums("duplicates", F.col("at"), periods, F.col("rows") - new)
    return timed.groupBy("gateway").agg(*counted)


def _running(spans: DataFrame, periods: Periods) -> DataFrame:
    def inside(begin: float, end: float | None) -> Column:
        last = F.col("end") if end is None else F.least("end", F.lit(end))
        return F.greatest(last - F.greatest("begin", F.lit(begin)), F.lit(0.0))

    counts = []
    for suffix, length in (
        ("", inside(periods.begin, None)),
        ("_before", inside(periods.before, periods.begin)),
    ):
        outage = (F.col("state") == "outage") & (length > 0)
        judged = F.col("state").isin("running", "stopped", "outage")
        counts += [
            F.count_if(outage).alias(f"outages{suffix}"),
            F.round(F.sum(F.when(F.col("state") == "running", length)), 3).alias(
                f"running_s{suffix}"
            ),
            F.round(F.sum(F.when(judged, length)), 3).alias(f"judged_s{suffix}"),
        ]
    return spans.groupBy("gateway").agg(*counts)


REPORT: Final = Report(
    "trends", (heartbeats.DAILY, lanes.DAILY, completeness.DAILY, totals.DAILY), trends, TABLE
)
