"""Queues: their waiting items, their repeated deliveries, and which queues are stuck.

Reads what gateways report about their queues; the items themselves are at the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from sync.reports.shared import column, remedies
from sync.reports.shared.events import count_of, occurrences, tag
from sync.reports.shared.findings import Findings
from sync.reports.shared.formats import count, plural
from sync.reports.shared.frames import (
    FLAG,
    INTEGER,
    REAL,
    TEXT,
    TIME,
    merged,
    numbered,
    of_each_gateway,
    schema,
    seconds,
    time_at,
)
from sync.reports.shared.report import Problem, ProblemKind, Report, Series, Table
from sync.reports.shared.thresholds import DEPTH_GAP_S, STUCK_S
from sync.tables.partitions import conform
from sync.tables.summaries import Summary

TABLE: Final = Table(
    order=70,
    title="Queues",
    about=(
        "What waits in each queue, as its gateway last reported it, and what was counted in the "
        "days of this report. A queue is stuck if items wait and none has been delivered for half "
        "an hour. Dead items are those that no worker could process."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.prose("queue", "Queue"),
        column.state("state", "State", {"ok": "good", "idle": "calm", "stuck": "wrong"}),
        column.time("since", "Stuck since"),
        column.number("depth", "Items"),
        column.number("ready", "Ready"),
        column.number("locked", "In progress"),
        column.number("delayed", "Delayed"),
        column.alarm("dead", "Dead"),
        column.age("oldest_s", "Oldest"),
        column.number("members", "Workers"),
        column.number("depth_max", "Most items"),
        column.number("delivered", "Delivered"),
        column.number("redelivered", "Delivered again"),
        column.number("timeouts", "Time-outs"),
        column.number("dead_items", "Became dead"),
        column.number("purged", "Purged"),
        column.number("unlocked", "Unlocked"),
        column.number("requeued", "Requeued"),
        column.number("stuck", "Times stuck"),
        column.number("recovered", "Recovered"),
        column.age("longest_stuck_s", "Longest time stuck"),
        column.time("last_told", "Last report"),
    ),
    empty="No gateway has reported a queue.",
)
"""A queue: a node, or a shared subscription (`$share:NAME:FILTER`).

`state`: `stuck`, since `since` (items wait and none was delivered for `STUCK_S`), `ok` (it holds
items), `idle` (it holds none), `unknown` (its depth was never reported). By the gateway's last
report on the queue, at `last_told`: `depth` (items that are not dead), of these `ready`, `locked`
and `delayed`; `dead` items; `oldest_s`, the age in seconds of the oldest item that is not delayed;
`members`. Over the days that were asked for: `depth_max`; `delivered`, `redelivered`, `timeouts`
(expired locks); `dead_items` (items that became dead); items that people `purged`,
`unlocked`, `requeued`. `stuck` counts the periods in which it was stuck, including the present one;
`recovered` of them ended with a delivery or an empty queue; `longest_stuck_s` is the longest in
seconds."""

RUNS: Final = schema(
    gateway=TEXT,
    queue=TEXT,
    epoch=TEXT,
    first_seq=INTEGER,
    last_seq=INTEGER,
    begin=TIME,
    end=TIME,
    stalled=FLAG,
    depth=INTEGER,
    depth_max=INTEGER,
    ready=INTEGER,
    locked=INTEGER,
    delayed=INTEGER,
    dead=INTEGER,
    oldest_s=REAL,
    members=INTEGER,
    delivered=INTEGER,
    redelivered=INTEGER,
    timeouts=INTEGER,
)
"""Consecutive depth events of a queue with the same value of `stalled`: true if items wait and none
was delivered since the event before. Sums and `depth_max` cover all these events; other numbers are
those of the last event. A queue has at most 288 depth events, and so at most 288 rows, a day."""

DONE: Final = schema(
    gateway=TEXT, queue=TEXT, dead_items=INTEGER, purged=INTEGER, unlocked=INTEGER, requeued=INTEGER
)
"""Number of items of a queue that became dead, and that people purged, unlocked and requeued."""

DEPTHS: Final = schema(gateway=TEXT, queue=TEXT, at=REAL, depth=REAL)
"""Number of items (`depth`) in a queue at the time `at`, in seconds since 1970."""

MAX_DEPTHS: Final = 5_000
"""Maximum number of depths to plot, the latest ones. No plot has room for so many."""

_STUCK: Final = ProblemKind("queue_stuck", 90, "wrong", "queues are stuck")
_DEAD: Final = ProblemKind("queue_dead", 100, "wrong", "no worker could process some items")

_STATE: Final = ("depth", "ready", "locked", "delayed", "dead", "oldest_s", "members")
_SUMS: Final = ("delivered", "redelivered", "timeouts")
_COUNTS: Final = {
    "dead_items": ("message/queue_dead", "message/share_items_dead"),
    "purged": ("queue/purged",),
    "unlocked": ("queue/unlocked",),
    "requeued": ("queue/requeued",),
}
"""Columns of `DONE`: each adds up the numbers of items in these events (`kind/name`)."""


def runs(events: DataFrame) -> DataFrame:
    """Compute the rows of `RUNS` for each `day`."""
    of_queue = ("day", "gateway", "queue", "epoch")
    order = Window.partitionBy(*of_queue).orderBy("seq")
    depths = _depth_events(events)
    rows = numbered(depths, _continues(order, "at", "at"), order, "run")
    rows = rows.groupBy(*of_queue, "run").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("time", "seq").alias("begin"),
        F.max_by("time", "seq").alias("end"),
        F.any_value("stalled").alias("stalled"),
        F.max("depth").alias("depth_max"),
        *(F.max_by(name, "seq").alias(name) for name in _STATE),
        *(F.sum(name).alias(name) for name in _SUMS),
    )
    return rows.drop("run")


def _depth_events(events: DataFrame) -> DataFrame:
    depth = events.where((F.col("kind") == "queue") & (F.col("name") == "depth"))
    tags = {name: tag(name) for name in ("ready", "locked", "delayed", "dead", "oldest_s")}
    counts = {name: F.coalesce(tag(name), F.lit(0)) for name in _SUMS}
    due = F.col("depth") - F.coalesce("delayed", F.lit(0))
    return (
        depth.withColumn("depth", F.coalesce(count_of(F.col("value")), F.lit(0)))
        .withColumns({**tags, **counts, "members": tag("members")})
        .withColumn("stalled", (due > 0) & (F.col("delivered") == 0))
        .withColumn("at", seconds("time"))
        .withColumnRenamed("topic", "queue")
    )


def _continues(order: WindowSpec, begin: str, end: str) -> Column:
    """Return whether a row continues the run of the row before it.

    Both must agree on `stalled`, and at most `DEPTH_GAP_S` must lie between the column `end` of the
    row before and the column `begin` of this row.
    """
    apart = F.col(begin) - F.lag(end).over(order)
    return (F.lag("stalled").over(order) == F.col("stalled")) & apart.between(0, DEPTH_GAP_S)


def done(events: DataFrame) -> DataFrame:
    """Count items that became dead, were purged, unlocked or requeued (`DONE`), for each `day`."""
    event = F.concat_ws("/", "kind", "name")
    known = event.isin(*chain.from_iterable(_COUNTS.values()))
    rows = events.where((F.col("lane") == "system") & known)
    return rows.groupBy("day", "gateway", F.col("topic").alias("queue")).agg(
        *(
            F.sum(F.when(event.isin(*names), occurrences()).otherwise(0)).alias(column)
            for column, names in _COUNTS.items()
        )
    )


def queues(runs: DataFrame, done: DataFrame) -> DataFrame:
    """Compute a row of `TABLE` for each queue in `runs` (rows of `RUNS`) or `done` (of `DONE`)."""
    of_queue = ("gateway", "queue")
    interventions = done.groupBy(*of_queue).agg(*(F.sum(name).alias(name) for name in _COUNTS))
    stuck = (
        _periods(runs)
        .groupBy(*of_queue)
        .agg(
            F.max_by(F.struct("stuck", "begin"), "period").alias("now"),
            F.count_if("stuck").alias("stuck"),
            F.count_if(F.col("stuck") & F.col("over")).alias("recovered"),
            F.max(F.when(F.col("stuck"), F.col("end") - F.col("begin"))).alias("longest_stuck_s"),
        )
    )
    place = F.struct("epoch", "last_seq")
    reported = runs.groupBy(*of_queue).agg(
        F.max("depth_max").alias("depth_max"),
        F.max_by("end", place).alias("last_told"),
        *(F.max_by(name, place).alias(name) for name in _STATE),
        *(F.sum(name).alias(name) for name in _SUMS),
    )
    rows = merged(of_queue, reported, stuck, interventions)
    state = (
        F.when(F.col("last_told").isNull(), "unknown")
        .when(F.col("now.stuck"), "stuck")
        .otherwise(F.when(F.col("depth") > 0, "ok").otherwise("idle"))
    )
    since = F.when(F.col("now.stuck"), time_at("now.begin"))
    judged = rows.withColumn("state", state).withColumn("since", since)
    counted = judged.fillna(0, subset=[*_SUMS, *_COUNTS, "stuck", "recovered"])
    rows = conform(counted, TABLE.schema)
    worst = (F.col("state") != "stuck", F.desc("dead"), F.desc("depth"), F.col("queue"))
    return of_each_gateway(rows, *worst).orderBy(*of_queue)


def _periods(runs: DataFrame) -> DataFrame:
    """Join runs that continue on the next day to periods; add whether each was `stuck`, and `over`.

    A period is over if the queue was not stalled in a later one.
    """
    order = Window.partitionBy("gateway", "queue").orderBy("epoch", "first_seq")
    timed = runs.withColumns({"begin": seconds("begin"), "end": seconds("end")})
    periods = numbered(timed, _continues(order, "begin", "end"), order, "period")
    place = F.struct("epoch", "first_seq")
    merged = periods.groupBy("gateway", "queue", "period").agg(
        F.min_by("begin", place).alias("begin"),
        F.max_by("end", place).alias("end"),
        F.any_value("stalled").alias("stalled"),
    )
    later = Window.partitionBy("gateway", "queue").orderBy("period")
    rest = later.rowsBetween(1, Window.unboundedFollowing)
    stuck = F.col("stalled") & (F.col("end") - F.col("begin") >= STUCK_S)
    over = F.coalesce(F.bool_or(~F.col("stalled")).over(rest), F.lit(False))
    return merged.withColumns({"stuck": stuck, "over": over})


def queue_depths(runs: DataFrame) -> DataFrame:
    """Compute rows of `DEPTHS`, two for each run: `depth_max` at `begin`, `depth` at `end`."""
    ends = F.array(
        F.struct(seconds("begin").alias("at"), F.col("depth_max").alias("depth")),
        F.struct(seconds("end").alias("at"), F.col("depth").alias("depth")),
    )
    latest = conform(runs.select("gateway", "queue", F.inline(ends)), DEPTHS).distinct()
    latest = latest.orderBy(F.desc("at"), "gateway", "queue").limit(MAX_DEPTHS)
    return latest.orderBy("gateway", "queue", "at")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find stuck queues, and queues with dead items."""
    for row in findings["queues"]:
        place = f"queue {row['queue']}"
        if row["state"] == "stuck":
            yield _STUCK.of(
                row["gateway"],
                f"No item has been delivered since {findings.moment(row['since'])}; "
                f"{plural(row['depth'], 'item')} waiting, {plural(row['members'] or 0, 'worker')} "
                "subscribed.",
                remedies.QUEUE_STUCK,
                place,
            )
        if row["dead"]:
            yield _DEAD.of(
                row["gateway"],
                f"Dead items: {count(row['dead'])}.",
                "`fieldpost queue show` at the gateway lists them with the reason. Once the worker "
                "is repaired, `fieldpost queue requeue` makes them available again; `fieldpost "
                "queue purge` deletes them for good.",
                place,
            )


DAILY: Final = Summary("queue_runs", 1, RUNS, runs)
DAILY_DONE: Final = Summary("queue_done", 1, DONE, done)

REPORT: Final = Report(
    "queues",
    (DAILY, DAILY_DONE),
    lambda context: queues(context.daily(DAILY), context.daily(DAILY_DONE)),
    TABLE,
    series=(Series("queue_depths", (DAILY,), lambda context: queue_depths(context.daily(DAILY))),),
    problem_kinds=(_STUCK, _DEAD),
    problems=problems,
)
