"""Clocks: how far each gateway's clock is off, how fast it runs, and how often it was set.

The centre's clock is taken to be right. A measured offset includes the time for which a segment was
on its way, so only the fastest segments are used, and only those that did not wait in a backlog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.column import Column as TableColumn
from sync.reports.shared.events import is_system_event
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.formats import (
    duration,
    percentage,
    plural,
    ppm,
    signed_duration,
    synchronised,
)
from sync.reports.shared.frames import FLAG, INTEGER, REAL, TEXT, TIME, merged, schema, seconds
from sync.reports.shared.report import Problem, ProblemKind, Report, Series, Table
from sync.reports.shared.thresholds import HEARTBEAT_S
from sync.tables.partitions import coalesced, conform
from sync.tables.summaries import Summary

PLAUSIBLE_PPM: Final = (-100_000.0, 100_000.0)
"""Plausible drifts in parts per million. No oscillator is wrong by a tenth; a greater drift means
that the clock was set repeatedly."""

MAX_DAY_S: Final = 90_000.0
"""Highest plausible number of seconds without synchronisation on one day: 25 hours, if the clock
was set back by an hour."""

TABLE: Final = Table(
    order=120,
    title="Clocks",
    about=(
        "How far each gateway's clock is ahead of the centre's clock (at least) or behind it (at "
        "most, because the time on the link is included), how much too fast it runs (ppm: parts "
        "per million), and how often it was set. A step is odd if the clock did not become "
        "synchronised by it."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.state(
            "state",
            "State",
            {
                "ok": "good",
                "stepping": "wrong",
                "unsynchronised": "wrong",
                "skewed": "wrong",
                "drifting": "wrong",
            },
            {"stepping": "set, not synchronised", "skewed": "wrong time"},
        ),
        column.real("skew_s", "Ahead by", signed_duration),
        column.real("drift_ppm", "Drift", ppm)._replace(limits=PLAUSIBLE_PPM),
        column.real("gain_ppm", "Drift against the centre", ppm)._replace(limits=PLAUSIBLE_PPM),
        column.number("steps", "Steps"),
        column.alarm("odd_steps", "Odd steps"),
        column.duration("step_sum_s", "Steps in total"),
        column.real("step_max_s", "Largest step", signed_duration),
        column.time("last_step", "Last step"),
        TableColumn("synchronised", FLAG, "Now", synchronised),
        column.real("unsynchronised_share", "Unsynchronised", percentage),
        column.duration("unsynchronised_s", "Time unsynchronised"),
        column.duration("worst_day_s", "On the worst day")._replace(limits=(0.0, MAX_DAY_S)),
    ),
)
"""A gateway's clock. `state` is the first that applies of `stepping`, `unsynchronised`, `drifting`,
`skewed`, `ok`.

`skew_s`: if positive, the clock is ahead of the centre's by at least this many seconds; if
negative, it is behind by at most this many, which include a segment's time on the way. `drift_ppm`:
parts per million by which it runs faster than the gateway's service seconds; `gain_ppm`: faster
than the centre's clock; null if too little is known. `steps`: how often it was set, by `step_sum_s`
seconds in total (absolute) and by `step_max_s` at most (signed), last at `last_step`; `odd_steps`:
how many steps did not make it synchronised. `synchronised`: whether it was so at the last
heartbeat. `unsynchronised_share`: the share of heartbeats with an unsynchronised clock. In time,
this is `unsynchronised_s` seconds in total, and `worst_day_s` seconds on the worst day."""

AHEAD_S: Final = 5.0
"""Maximum seconds by which a clock may be ahead of the centre's; above, it is `skewed`. A segment
cannot arrive before it is sealed; file systems and time servers cause smaller differences."""

BEHIND_S: Final = 120.0
"""Maximum seconds by which a clock may seem behind the centre's; above, it is `skewed`. A segment's
time on the way is included; without a backlog it is less, even over a slow link."""

DRIFT_PPM: Final = 100.0
"""Parts per million (8.6 s a day) beyond which a fast or slow clock is `drifting`: quartz clocks
are within 20 to 50, synchronised clocks within less."""

BIG_STEP_S: Final = 10.0
"""Seconds from which a single odd step (see `SETTLE_S`) makes a clock's state `stepping`."""

ODD_STEPS: Final = 3
"""Number of odd steps (see `SETTLE_S`) of any size that make a clock's state `stepping`: time
daemons step once, and then slew."""

SETTLE_S: Final = 600.0
"""Maximum seconds that a time service takes from setting the clock to reporting it synchronised. A
clock step is odd if no synchronised time follows it within these seconds."""

UNSYNCHRONISED_S: Final = 3_600.0
"""Seconds without synchronisation on one day beyond which a clock is `unsynchronised`: finding time
servers after a start takes minutes."""

RECENT_S: Final = 10_800.0
"""Seconds of the period before a gateway's last arrival from whose segments `skew_s` is computed:
long enough for dozens of them, and short enough that a corrected clock is soon seen as right."""

STEADY_S: Final = 5.0
"""Maximum difference in seconds between the interval of the arrivals of two segments and that of
their sealings. If it is greater, one of the segments waited in a backlog."""

MIN_STEADY: Final = 12
"""Minimum segments that did not wait in a backlog, to compute `skew_s`: as many as in an hour."""

HOUR_S: Final = 3_600.0
"""Length of an hour in seconds. One segment of each hour is used: for `drift_ppm` the first, for
`gain_ppm` and `OFFSETS` the one with the shortest time from sealing to arrival."""

APART_H: Final = 6
"""Hours between the two segments that `gain_ppm` compares. If one of them takes a second longer to
arrive, their gain is wrong by 46 ppm, and the median of many gains by less."""

MIN_SLOPES: Final = 18
"""Minimum number of slopes (drift or gain between two segments) to use their median: one step of
the clock falsifies `APART_H` of them, which must be a minority."""

DAYS: Final = schema(
    gateway=TEXT,
    heartbeats=INTEGER,
    unsynchronised=INTEGER,
    interval_s=REAL,
    steps=INTEGER,
    odd_steps=INTEGER,
    big_steps=INTEGER,
    step_sum_s=REAL,
    step_max_s=REAL,
    last_step=TIME,
    last=schema(epoch=TEXT, seq=INTEGER, clock=FLAG),
)
"""A gateway on a day: the number of its heartbeats, and of those with an `unsynchronised` clock;
the seconds between two heartbeats; which heartbeat was the `last`; the steps of the clock, as in
`TABLE`. `big_steps` is the number of odd steps (see `SETTLE_S`) by `BIG_STEP_S` or more."""

OFFSETS: Final = schema(gateway=TEXT, at=REAL, skew_s=REAL)
"""Lower bound of the seconds by which a clock was ahead of the centre's in the hour from `at`
(seconds since 1970), computed from the segment with the shortest time from sealing to arrival."""

PLOTTED_S: Final = 7 * 86_400.0
"""Length in seconds of the plotted period. It ends with the hour of a gateway's last arrival."""


def days(events: DataFrame) -> DataFrame:
    """Compute the rows of `DAYS` for each `day`."""
    rows = events.where(
        is_system_event("system", "heartbeat", "clock_stepped", "clock_synchronised")
    )
    after = Window.partitionBy("day", "gateway", "epoch").orderBy("seq")
    found = F.when(F.col("name") == "clock_synchronised", seconds("time"))
    next_found = F.first(found, ignorenulls=True).over(
        after.rowsBetween(1, Window.unboundedFollowing)
    )
    timed = rows.withColumn("settled", next_found - seconds("time") <= SETTLE_S)
    beat, step = F.col("name") == "heartbeat", F.col("name") == "clock_stepped"
    odd = step & ~F.coalesce("settled", F.lit(False))
    moved = F.coalesce("value", F.lit(0.0))
    place = F.struct("epoch", "seq", "clock")
    return timed.groupBy("day", "gateway").agg(
        F.count_if(beat).alias("heartbeats"),
        F.count_if(beat & ~F.col("clock")).alias("unsynchronised"),
        F.max(F.when(beat & (F.col("value") > 0), F.col("value"))).alias("interval_s"),
        F.count_if(step).alias("steps"),
        F.count_if(odd).alias("odd_steps"),
        F.count_if(odd & (F.abs(moved) >= BIG_STEP_S)).alias("big_steps"),
        F.sum(F.when(step, F.abs(moved)).otherwise(0.0)).alias("step_sum_s"),
        F.max_by(moved, F.when(step, F.abs(moved))).alias("step_max_s"),
        F.max(F.when(step, F.col("time"))).alias("last_step"),
        F.max(F.when(beat, place)).alias("last"),
    )


def clocks(days: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each gateway in `days` (rows of `DAYS`) or in `segments`."""
    sent = segments.where(F.col("fate") == "accepted").select(
        "gateway",
        "boot",
        "clock",
        F.col("service_seconds").alias("service"),
        seconds("sealed_at").alias("wall"),
        seconds("arrived").alias("came"),
    )
    sending = sent.select("gateway").distinct()
    rows = merged(("gateway",), sending, _by_gateway(days), _skew(sent), _drift(sent), _gain(sent))
    counted = rows.fillna(0, subset=["steps", "odd_steps", "step_sum_s", "unsynchronised_s"])
    return conform(counted.withColumn("state", _state()), TABLE.schema).orderBy("gateway")


def _state() -> Column:
    return (
        F.when((F.col("big_steps") > 0) | (F.col("odd_steps") >= ODD_STEPS), "stepping")
        .when(F.col("worst_day_s") > UNSYNCHRONISED_S, "unsynchronised")
        .when((F.abs("drift_ppm") > DRIFT_PPM) | (F.abs("gain_ppm") > DRIFT_PPM), "drifting")
        .when((F.col("skew_s") > AHEAD_S) | (F.col("skew_s") < -BEHIND_S), "skewed")
        .otherwise("ok")
    )


def _by_gateway(days: DataFrame) -> DataFrame:
    unsynchronised = F.col("unsynchronised") * F.coalesce("interval_s", F.lit(HEARTBEAT_S))
    return days.groupBy("gateway").agg(
        *(F.sum(name).alias(name) for name in ("steps", "odd_steps", "big_steps", "step_sum_s")),
        F.max_by("step_max_s", F.abs("step_max_s")).alias("step_max_s"),
        F.max("last_step").alias("last_step"),
        F.max("last")["clock"].alias("synchronised"),
        F.try_divide(F.sum("unsynchronised"), F.sum("heartbeats")).alias("unsynchronised_share"),
        F.sum(unsynchronised).alias("unsynchronised_s"),
        F.max(unsynchronised).alias("worst_day_s"),
    )


def _steady(sent: DataFrame) -> DataFrame:
    """Select the segments that did not wait in a backlog (`STEADY_S`).

    Add `ahead`: seconds by which the sealing is later than the arrival, negative if earlier.
    """
    order = Window.partitionBy("gateway", "boot").orderBy("service", "came")
    apart = F.col("came") - F.lag("came").over(order)
    sealed = F.col("service") - F.lag("service").over(order)
    late = sent.withColumn("late", F.abs(apart - sealed))
    return late.where(F.col("late") <= STEADY_S).withColumn("ahead", F.col("wall") - F.col("came"))


def _skew(sent: DataFrame) -> DataFrame:
    latest = F.max("came").over(Window.partitionBy("gateway"))
    recent = _steady(sent).withColumn("latest", latest)
    known = recent.where(F.col("latest") - F.col("came") <= RECENT_S).groupBy("gateway")
    rows = known.agg(F.max("ahead").alias("skew_s"), F.count(F.lit(1)).alias("segments"))
    return rows.where(F.col("segments") >= MIN_STEADY).select(
        "gateway", F.round("skew_s", 3).alias("skew_s")
    )


def _drift(sent: DataFrame) -> DataFrame:
    """Compute the median drift against service seconds, from hour to hour of a boot.

    If a clock has at least `MIN_SLOPES` slopes from unsynchronised time, only these count, because
    synchronisation hides the drift.
    """
    order = Window.partitionBy("gateway", "boot").orderBy("hour")
    hours = sent.groupBy("gateway", "boot", _hour()).agg(
        F.min(F.struct("service", "wall", "clock")).alias("it")
    )
    before = F.lag("it").over(order)
    passed = F.col("it.service") - before["service"]
    gained = F.col("it.wall") - before["wall"] - passed
    free = F.when(~F.col("it.clock") & ~before["clock"], gained / passed)
    slopes = hours.select("gateway", (gained / passed).alias("any"), free.alias("free"))
    known = slopes.groupBy("gateway").agg(
        *(F.median(name).alias(name) for name in ("any", "free")),
        *(F.count(name).alias(f"{name}_of") for name in ("any", "free")),
    )
    chosen = F.when(F.col("free_of") >= MIN_SLOPES, F.col("free"))
    chosen = chosen.when(F.col("any_of") >= MIN_SLOPES, F.col("any"))
    return known.select("gateway", F.round(chosen * 1e6, 1).alias("drift_ppm"))


def _gain(sent: DataFrame) -> DataFrame:
    """Compute the median gain on the centre's clock, from the fastest segment of each hour."""
    hours = (
        _steady(sent)
        .groupBy("gateway", "boot", _hour())
        .agg(F.max(F.struct("ahead", "came")).alias("it"))
    )
    earlier = hours.select(
        "gateway", "boot", (F.col("hour") + APART_H).alias("hour"), F.col("it").alias("was")
    )
    pairs = coalesced(hours.join(earlier, on=["gateway", "boot", "hour"], how="inner"))
    slope = (F.col("it.ahead") - F.col("was.ahead")) / (F.col("it.came") - F.col("was.came"))
    known = pairs.groupBy("gateway").agg(F.median(slope).alias("slope"), F.count(slope).alias("of"))
    enough = known.where(F.col("of") >= MIN_SLOPES)
    return enough.select("gateway", F.round(F.col("slope") * 1e6, 1).alias("gain_ppm"))


def _hour() -> Column:
    return F.floor(F.col("service") / HOUR_S).alias("hour")


def clock_offsets(segments: DataFrame) -> DataFrame:
    """Compute the rows of `OFFSETS` from the table of segments."""
    sent = segments.where(F.col("fate") == "accepted")
    ahead = seconds("sealed_at") - seconds("arrived")
    hour = F.floor(seconds("arrived") / HOUR_S) * HOUR_S
    rows = sent.groupBy("gateway", hour.alias("at")).agg(F.max(ahead).alias("skew_s"))
    end = F.max("at").over(Window.partitionBy("gateway"))
    latest = rows.withColumn("end", end).where(F.col("end") - F.col("at") < PLOTTED_S)
    return conform(latest, OFFSETS).orderBy("gateway", "at")


_STEP: Final = ProblemKind(
    "clock_step", 190, "notice", "the clock was set without becoming synchronised"
)
_UNSYNCHRONISED: Final = ProblemKind(
    "clock_unsynchronised", 200, "notice", "the clock is not synchronised"
)
_DRIFT: Final = ProblemKind("clock_drift", 210, "notice", "the clock is wrong, or too fast or slow")
_REMEDIES: Final = {
    "stepping": (
        _STEP,
        "Do not rely on times and durations around these steps. Find out what sets the clock: "
        "two time services at once, or a clock chip with an empty battery.",
    ),
    "unsynchronised": (
        _UNSYNCHRONISED,
        "Check with `timedatectl` at the gateway whether it reaches a time server, and whether the "
        "network lets NTP pass.",
    ),
    "skewed": (
        _DRIFT,
        "The clock counts as synchronised but is wrong: check with `timedatectl` at the gateway "
        "which time server it follows.",
    ),
    "drifting": (
        _DRIFT,
        "Give the gateway a time server that it can reach, or a better clock chip: its clock's "
        "error grows every day.",
    ),
}


def problems(findings: Findings) -> Iterator[Problem]:
    """Find clocks that were set without becoming synchronised, are unsynchronised, or are wrong."""
    for row in findings["clocks"]:
        if row["state"] in _REMEDIES:
            kind, remedy = _REMEDIES[row["state"]]
            yield kind.of(row["gateway"], _what(row), remedy)


def _what(row: Row) -> str:
    if row["state"] == "stepping":
        times = plural(row["odd_steps"], "time")
        most = signed_duration(row["step_max_s"])
        return f"Set {times} without becoming synchronised, by {most} at most."
    if row["state"] == "unsynchronised":
        part = percentage(row["unsynchronised_share"])
        return f"Not synchronised for {duration(row['unsynchronised_s'])}, {part} of the time."
    if row["state"] == "skewed":
        side = "ahead of" if row["skew_s"] > 0 else "behind"
        return f"The clock is {duration(abs(row['skew_s']))} {side} the centre's clock."
    drift = row["drift_ppm"] if row["drift_ppm"] is not None else row["gain_ppm"]
    if drift is None:
        return "The clock drifts."
    return f"The clock drifts by {ppm(drift)}, {duration(abs(drift) * 86_400 / 1e6)} a day."


DAILY: Final = Summary("clocks", 1, DAYS, days)

REPORT: Final = Report(
    "clocks",
    (DAILY,),
    lambda context: clocks(context.daily(DAILY), context.segments()),
    TABLE,
    series=(Series("clock_offsets", (), lambda context: clock_offsets(context.segments()), None),),
    problem_kinds=(_STEP, _UNSYNCHRONISED, _DRIFT),
    problems=problems,
)
