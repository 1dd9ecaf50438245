"""What a sensor told in each hour, for the report on anomalies. Judges nothing."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import NUMBER, REAL, TEXT, TIME, columns
from sync.reports.readings import SENSOR, readings
from sync.tables.summaries import Summary

HOURS: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    unit=TEXT,
    name=TEXT,
    hour=TIME,
    readings=NUMBER,
    total=REAL,
    low=REAL,
    high=REAL,
    median=REAL,
    first=TIME,
    last=TIME,
    head=REAL,
    head_readings=NUMBER,
    head_until=TIME,
    tail=REAL,
    tail_readings=NUMBER,
    tail_since=TIME,
)
"""A sensor (as in `sensors`) and an hour (UTC, by the gateway's clock) with readings that are
numbers: how many, their sum, the lowest, the highest and the median; the first and the last.

It began with the value `head`, which so many readings were, up to `head_until`; it ended with
`tail`, since `tail_since`: flat lines that are longer than an hour are made of these. The median is
of the hour and is not merged: hours are what is compared. Two rows of one hour are two hours."""


def hours(events: DataFrame) -> DataFrame:
    """Give the rows of `HOURS` and `day`."""
    told = readings(events).where(F.col("value").isNotNull())
    timed = told.withColumns(
        {
            "hour": F.date_trunc("hour", "time"),
            "unit": F.coalesce("unit", F.lit("")),
            "name": F.coalesce("name", F.lit("")),
        }
    )
    by = ("day", *SENSOR, "unit", "name", "hour")
    order = Window.partitionBy(*by).orderBy("epoch", "seq")
    changed = F.when(F.col("value") == F.lag("value").over(order), 0).otherwise(1)
    runs = timed.withColumn("changed", changed).withColumn("run", F.sum("changed").over(order))
    ends = runs.withColumn("final", F.max("run").over(Window.partitionBy(*by)))
    begins, finishes = F.col("run") == 1, F.col("run") == F.col("final")
    return ends.groupBy(*by).agg(
        F.count(F.lit(1)).alias("readings"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
        F.median("value").alias("median"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.any_value(F.when(begins, F.col("value")), ignoreNulls=True).alias("head"),
        F.count_if(begins).alias("head_readings"),
        F.max(F.when(begins, F.col("time"))).alias("head_until"),
        F.any_value(F.when(finishes, F.col("value")), ignoreNulls=True).alias("tail"),
        F.count_if(finishes).alias("tail_readings"),
        F.min(F.when(finishes, F.col("time"))).alias("tail_since"),
    )


DAILY: Final = Summary("anomalies", 1, HOURS, hours)
