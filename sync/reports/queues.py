"""Report 5, queues: what waits in them, what came back, and which of them nobody works off.

Reads what gateways tell of their queues; the items themselves are at the gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns, number, tag
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.reports.thresholds import STUCK_S, TOGETHER_S
from sync.tables.partitions import gathered
from sync.tables.summaries import Summary

if TYPE_CHECKING:
    from pyspark.sql.window import WindowSpec

SCHEMA: Final = columns(
    gateway=TEXT,
    queue=TEXT,
    state=TEXT,
    since=TIME,
    depth=NUMBER,
    depth_max=NUMBER,
    ready=NUMBER,
    locked=NUMBER,
    delayed=NUMBER,
    dead=NUMBER,
    oldest_s=REAL,
    members=NUMBER,
    delivered=NUMBER,
    redelivered=NUMBER,
    timeouts=NUMBER,
    dead_items=NUMBER,
    purged=NUMBER,
    unlocked=NUMBER,
    requeued=NUMBER,
    stuck=NUMBER,
    recovered=NUMBER,
    longest_stuck_s=REAL,
    last_told=TIME,
)
"""A queue: a node, or a share (`$share:NAME:FILTER`).

`state`: `stuck`, `since` then (items that are due wait, and none was delivered for `STUCK_S`), `ok`
(items are there), `idle` (none are), `unknown` (it never told of its depth). As told last, at
`last_told`: `depth` (items that are not dead), of these `ready`, `locked` and `delayed`; `dead`
items; `oldest_s`, the age in seconds of the oldest that is not delayed; `members`. Over all the
time: `depth_max`; `delivered`, `redelivered`, `timeouts` (locks that ran out); `dead_items` (items
that became dead, by events), and items that people `purged`, `unlocked`, `requeued`. `stuck` counts
the stretches in which it was stuck, the present one included, `recovered` those of them that ended
in a delivery or with an empty queue, `longest_stuck_s` is the longest one's length in seconds."""

RUNS: Final = columns(
    gateway=TEXT,
    queue=TEXT,
    epoch=TEXT,
    first_seq=NUMBER,
    last_seq=NUMBER,
    begin=TIME,
    end=TIME,
    stalled=FLAG,
    depth=NUMBER,
    depth_max=NUMBER,
    ready=NUMBER,
    locked=NUMBER,
    delayed=NUMBER,
    dead=NUMBER,
    oldest_s=REAL,
    members=NUMBER,
    delivered=NUMBER,
    redelivered=NUMBER,
    timeouts=NUMBER,
)
"""Events of a queue's depth that follow each other and tell alike whether it is `stalled`: items
are due and none was delivered. Sums and the greatest depth are of all of them, what there was at a
moment is of the last. At most 288 a day and queue, since that many are told."""

DONE: Final = columns(
    gateway=TEXT, queue=TEXT, dead_items=NUMBER, purged=NUMBER, unlocked=NUMBER, requeued=NUMBER
)
"""How many items of a queue became dead, and what people did with how many."""

_MOMENT: Final = ("depth", "ready", "locked", "delayed", "dead", "oldest_s", "members")
_SUMS: Final = ("delivered", "redelivered", "timeouts")
_COUNTS: Final = ("dead_items", "purged", "unlocked", "requeued")


def runs(events: DataFrame) -> DataFrame:
    """Give the rows of `RUNS` and `day`."""
    of_queue = ("day", "gateway", "queue", "epoch")
    order = Window.partitionBy(*of_queue).orderBy("seq")
    told = _told(events).withColumn("run", _begun(order, "at", "at"))
    numbered = told.withColumn("run", F.sum("run").over(order))
    rows = numbered.groupBy(*of_queue, "run").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min_by("time", "seq").alias("begin"),
        F.max_by("time", "seq").alias("end"),
        F.any_value("stalled").alias("stalled"),
        F.max("depth").alias("depth_max"),
        *(F.max_by(name, "seq").alias(name) for name in _MOMENT),
        *(F.sum(name).alias(name) for name in _SUMS),
    )
    return rows.drop("run")


def _told(events: DataFrame) -> DataFrame:
    """Read what `queue/depth` tells."""
    depth = events.where((F.col("kind") == "queue") & (F.col("name") == "depth"))
    tags = {name: tag(name) for name in ("ready", "locked", "delayed", "dead", "oldest_s")}
    counts = {name: F.coalesce(tag(name), F.lit(0)) for name in _SUMS}
    due = F.col("depth") - F.coalesce("delayed", F.lit(0))
    return (
        depth.withColumn("depth", F.coalesce(number(F.col("value")), F.lit(0)))
        .withColumns({**tags, **counts, "members": tag("members")})
        .withColumn("stalled", (due > 0) & (F.col("delivered") == 0))
        .withColumn("at", seconds("time"))
        .withColumnRenamed("topic", "queue")
    )


def _begun(order: WindowSpec, begin: str, end: str) -> Column:
    """Tell (1 or 0) whether something else begins here than what was before, as `RUNS` has it."""
    apart = F.col(begin) - F.lag(end).over(order)
    goes_on = (F.lag("stalled").over(order) == F.col("stalled")) & apart.between(0, TOGETHER_S)
    return F.when(goes_on, 0).otherwise(1)


def done(events: DataFrame) -> DataFrame:
    """Give the rows of `DONE` and `day`."""
    what = F.concat_ws("/", "kind", "name")
    of = {
        "message/queue_dead": "dead_items",
        "message/share_items_dead": "dead_items",
        "queue/purged": "purged",
        "queue/unlocked": "unlocked",
        "queue/requeued": "requeued",
    }
    told = events.where((F.col("lane") == "system") & what.isin(*of))
    items = F.coalesce(number(F.col("value")), F.lit(1))

    def total(column: str) -> Column:
        names = [event for event, counted in of.items() if counted == column]
        return F.sum(F.when(what.isin(*names), items).otherwise(0)).alias(column)

    by = (F.col("day"), F.col("gateway"), F.col("topic").alias("queue"))
    return told.groupBy(*by).agg(*map(total, _COUNTS))


def queues(runs: DataFrame, done: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each queue of which `RUNS` or `DONE` have rows."""
    of_queue = ("gateway", "queue")
    people = done.groupBy(*of_queue).agg(*(F.sum(name).alias(name) for name in _COUNTS))
    stuck = (
        _stretches(runs)
        .groupBy(*of_queue)
        .agg(
            F.max_by(F.struct("stuck", "begin"), "place").alias("now"),
            F.count_if("stuck").alias("stuck"),
            F.count_if(F.col("stuck") & F.col("over")).alias("recovered"),
            F.max(F.when(F.col("stuck"), F.col("end") - F.col("begin"))).alias("longest_stuck_s"),
        )
    )
    place = F.struct("epoch", "last_seq")
    told = runs.groupBy(*of_queue).agg(
        F.max("depth_max").alias("depth_max"),
        F.max_by("end", place).alias("last_told"),
        *(F.max_by(name, place).alias(name) for name in _MOMENT),
        *(F.sum(name).alias(name) for name in _SUMS),
    )
    rows = told.join(stuck, on=[*of_queue], how="left")
    rows = gathered(rows.join(people, on=[*of_queue], how="full_outer"))
    state = (
        F.when(F.col("last_told").isNull(), "unknown")
        .when(F.col("now.stuck"), "stuck")
        .otherwise(F.when(F.col("depth") > 0, "ok").otherwise("idle"))
    )
    since = F.when(F.col("now.stuck"), F.timestamp_seconds("now.begin"))
    told = rows.withColumn("state", state).withColumn("since", since)
    counted = told.fillna(0, subset=[*_SUMS, *_COUNTS, "stuck", "recovered"])
    return conform(counted, SCHEMA).orderBy(*of_queue)


def _stretches(runs: DataFrame) -> DataFrame:
    """Join the runs of different days; tell which were `stuck`, and whether that is `over`."""
    order = Window.partitionBy("gateway", "queue").orderBy("epoch", "first_seq")
    timed = runs.withColumns({"begin": seconds("begin"), "end": seconds("end")})
    numbered = timed.withColumn("begun", _begun(order, "begin", "end")).withColumn(
        "stretch", F.sum("begun").over(order)
    )
    place = F.struct("epoch", "first_seq")
    merged = numbered.groupBy("gateway", "queue", "stretch").agg(
        F.min_by("begin", place).alias("begin"),
        F.max_by("end", place).alias("end"),
        F.any_value("stalled").alias("stalled"),
    )
    later = Window.partitionBy("gateway", "queue").orderBy("stretch")
    rest = later.rowsBetween(1, Window.unboundedFollowing)
    stuck = F.col("stalled") & (F.col("end") - F.col("begin") >= STUCK_S)
    moved_on = F.coalesce(F.bool_or(~F.col("stalled")).over(rest), F.lit(0).cast("boolean"))
    return merged.select(
        "gateway",
        "queue",
        "begin",
        "end",
        F.col("stretch").alias("place"),
        stuck.alias("stuck"),
        moved_on.alias("over"),
    )


DAILY: Final = Summary("queue_runs", 1, RUNS, runs)
DAILY_DONE: Final = Summary("queue_done", 1, DONE, done)

REPORT: Final = Report(
    "queues",
    SCHEMA,
    (DAILY, DAILY_DONE),
    lambda given: queues(given.daily(DAILY), given.daily(DAILY_DONE)),
)
