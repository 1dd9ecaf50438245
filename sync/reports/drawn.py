"""What is drawn beside the tables: depths of queues, sensors by the hour, clocks by the hour.

Judges nothing. Each is bounded, and of the latest time where there is more.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import REAL, TEXT, columns
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.reports.hours import DAILY as HOURS
from sync.reports.queues import DAILY as RUNS

DEPTHS: Final = columns(gateway=TEXT, queue=TEXT, at=REAL, depth=REAL)
"""Items that were in a queue, when it told of them, in seconds since 1970."""

SERIES: Final = columns(
    gateway=TEXT, source=TEXT, sensor=TEXT, at=REAL, mean=REAL, low=REAL, high=REAL
)
"""What a sensor told in the hour that begins at `at`, in seconds since 1970."""

OFFSETS: Final = columns(gateway=TEXT, at=REAL, skew_s=REAL)
"""How far a clock was ahead in the hour that begins at `at` by the centre's: at least, as the
segment tells that was under way for the shortest time."""

POINTS: Final = 5_000
"""Depths that are brought home: as many as a plot has room for, and more."""

SENSORS: Final = 12
"""Sensors of a gateway that are drawn, the first by their names: a page has room for so many."""

DRAWN_S: Final = 7 * 86_400.0
"""Seconds before a gateway's last hour that are drawn of sensors and clocks."""

_HOUR_S: Final = 3_600


def queue_depths(runs: DataFrame) -> DataFrame:
    """Give the rows of `DEPTHS`, of `queues.RUNS`: how deep each run got, and how it ended."""
    ends = F.array(
        F.struct(seconds("begin").alias("at"), F.col("depth_max").alias("depth")),
        F.struct(seconds("end").alias("at"), F.col("depth").alias("depth")),
    )
    rows = runs.select("gateway", "queue", F.explode(ends).alias("one"))
    latest = conform(rows.select("gateway", "queue", "one.*"), DEPTHS).distinct()
    latest = latest.orderBy(F.desc("at"), "gateway", "queue").limit(POINTS)
    return latest.orderBy("gateway", "queue", "at")


def sensor_series(hours: DataFrame) -> DataFrame:
    """Give the rows of `SERIES`, of `hours.HOURS`."""
    of_gateway = Window.partitionBy("gateway")
    placed = hours.withColumns(
        {
            "at": seconds("hour"),
            "place": F.dense_rank().over(of_gateway.orderBy("source", "sensor")),
        }
    ).withColumn("end", F.max("at").over(of_gateway))
    chosen = placed.where((F.col("place") <= SENSORS) & (F.col("end") - F.col("at") < DRAWN_S))
    rows = chosen.groupBy("gateway", "source", "sensor", "at").agg(
        (F.sum("total") / F.sum("readings")).alias("mean"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
    )
    named = rows.withColumn("source", F.nullif("source", F.lit("")))
    return conform(named, SERIES).orderBy("gateway", "source", "sensor", "at")


def clock_offsets(segments: DataFrame) -> DataFrame:
    """Give the rows of `OFFSETS`, of the ledger of segments."""
    sent = segments.where(F.col("fate") == "accepted")
    ahead = seconds("sealed_at") - seconds("arrived")
    hour = F.floor(seconds("arrived") / _HOUR_S) * _HOUR_S
    rows = sent.groupBy("gateway", hour.alias("at")).agg(F.max(ahead).alias("skew_s"))
    end = F.max("at").over(Window.partitionBy("gateway"))
    latest = rows.withColumn("end", end).where(F.col("end") - F.col("at") < DRAWN_S)
    return conform(latest, OFFSETS).orderBy("gateway", "at")


QUEUE_DEPTHS: Final = Report(
    "queue_depths", DEPTHS, (RUNS,), lambda given: queue_depths(given.daily(RUNS))
)
SENSOR_SERIES: Final = Report(
    "sensor_series", SERIES, (HOURS,), lambda given: sensor_series(given.daily(HOURS))
)
CLOCK_OFFSETS: Final = Report(
    "clock_offsets", OFFSETS, (), lambda given: clock_offsets(given.segments())
)
