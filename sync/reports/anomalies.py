"""Report 10, anomalies: sensors that tell what they never told, or the same for too long.

Compares a sensor with itself, and with others of its type (name and unit) at the same time: what
changes with all of them, as the weather does, is no anomaly of one. Knows no physics.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns
from sync.reports.common import conform, seconds
from sync.reports.context import Report
from sync.reports.hours import DAILY
from sync.reports.odd_hours import odd_hours
from sync.reports.readings import ROWS, SENSOR
from sync.tables.partitions import gathered

SCHEMA: Final = columns(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    unit=TEXT,
    state=TEXT,
    constant=FLAG,
    flat_since=TIME,
    flat_until=TIME,
    flat_readings=NUMBER,
    flat_value=REAL,
    hours=NUMBER,
    anomalous_hours=NUMBER,
    worst_at=TIME,
    worst_value=REAL,
    usual=REAL,
    z=REAL,
    basis=TEXT,
)
"""A sensor whose readings are numbers (`source` and `sensor` as in `sensors`).

`state`: `flat`, `anomalous` or `ok`. `constant` tells that all its readings were the same: such a
sensor is never flat. Of its longest flat line, where it has one: when it began and the last reading
of it, how many readings, and the value. `hours` that it has readings in, `anomalous_hours` of these
whose median is out of the ordinary; of the worst: its beginning, its median, the `usual` one, the
robust `z`, and its `basis`: `hour`, what is usual with the sensor at that hour of the day; `all`,
at any hour; or `type`, with others of the same name and unit in the same hour."""

FLAT_READINGS: Final = 30
"""Readings that make a flat line, at least: fewer may be the same by chance."""

FLAT_S: Final = 21_600.0
"""Seconds that a flat line takes, at least: a calm night is flat for a while."""

VARIES: Final = 0.5
"""The share of a sensor's other hours, at the same hours of the day, in which it varied. One that
is at rest in more of them, as a door or a lamp at night, is so by nature."""

COMPARED: Final = 6
"""Other hours without which nothing is said."""

WINDOW_D: Final = 28
"""Days, the latest ones, that are looked at: what is usual changes with the season."""


def anomalies(hours: DataFrame) -> DataFrame:
    """Give the rows of `SCHEMA`, flat and anomalous ones first; `ROWS` at most."""
    of = (*SENSOR, "unit")
    latest = F.lit(hours.agg(F.max("day")).collect()[0][0])
    recent = hours.where(F.col("day") > F.date_sub(latest, WINDOW_D))
    known = recent.groupBy(*of).agg(
        (F.min("low") == F.max("high")).alias("constant"), F.count(F.lit(1)).alias("hours")
    )
    rows = known.join(_flat(recent), on=[*of], how="left").join(
        odd_hours(recent), on=[*of], how="left"
    )
    odd = F.coalesce("anomalous_hours", F.lit(0))
    flat = F.col("flat_since").isNotNull()
    state = F.when(flat, "flat").otherwise(F.when(odd > 0, "anomalous").otherwise("ok"))
    told = rows.withColumns(
        {
            "state": state,
            "anomalous_hours": odd,
            "source": F.nullif("source", F.lit("")),
            "unit": F.nullif("unit", F.lit("")),
        }
    )
    order = (F.col("state") == "ok", F.col("state") == "anomalous", F.desc(F.abs("z")))
    return conform(told, SCHEMA).orderBy(*order, *SENSOR).limit(ROWS)


def _flat(hours: DataFrame) -> DataFrame:
    """Give the longest flat line of each sensor that has one."""
    lines = _lines(hours).where(
        (F.col("readings") >= FLAT_READINGS) & (F.col("until") - F.col("since") >= FLAT_S)
    )
    of = (*SENSOR, "unit")
    order = Window.partitionBy(*of).orderBy("hour")
    varied = (F.col("low") < F.col("high")) | (F.col("head") != F.lag("tail").over(order))
    others = hours.select(*of, seconds("hour").alias("at"), varied.alias("varied"))
    day_hour = F.pmod(F.floor(F.col("at") / 3_600) - F.floor(F.col("since") / 3_600), F.lit(24))
    outside = (F.col("at") + 3_600 <= F.col("since")) | (F.col("at") > F.col("until"))
    same = day_hour * 3_600 <= F.col("until") - F.col("since")
    compared = gathered(lines.join(others, on=[*of], how="inner")).where(outside & same)
    judged = compared.groupBy(*of, "since", "until", "readings", "value").agg(
        F.count("varied").alias("compared"), F.count_if("varied").alias("varied")
    )
    flat = judged.where(
        (F.col("compared") >= COMPARED) & (F.col("varied") >= F.col("compared") * VARIES)
    )
    longest = F.struct(F.col("until") - F.col("since"), "since", "until", "readings", "value")
    worst = flat.groupBy(*of).agg(F.max(longest).alias("it"))
    return worst.select(
        *of,
        F.timestamp_seconds("it.since").alias("flat_since"),
        F.timestamp_seconds("it.until").alias("flat_until"),
        F.col("it.readings").alias("flat_readings"),
        F.col("it.value").alias("flat_value"),
    )


def _lines(hours: DataFrame) -> DataFrame:
    """Give all stretches of the same value that reach the end of an hour, or its beginning."""
    of = (*SENSOR, "unit")
    whole = F.struct(
        F.lit(0).alias("place"),
        F.col("head").alias("value"),
        "readings",
        seconds("first").alias("since"),
        seconds("last").alias("until"),
    )
    head = F.struct(
        F.lit(0).alias("place"),
        F.col("head").alias("value"),
        F.col("head_readings").alias("readings"),
        seconds("first").alias("since"),
        seconds("head_until").alias("until"),
    )
    tail = F.struct(
        F.lit(1).alias("place"),
        F.col("tail").alias("value"),
        F.col("tail_readings").alias("readings"),
        seconds("tail_since").alias("since"),
        seconds("last").alias("until"),
    )
    still = F.col("low") == F.col("high")
    parts = F.when(still, F.array(whole)).otherwise(F.array(head, tail))
    each = hours.select(*of, "hour", F.explode(parts).alias("part")).select(*of, "hour", "part.*")
    order = Window.partitionBy(*of).orderBy("hour", "place")
    goes_on = (F.col("place") == 0) & (F.col("value") == F.lag("value").over(order))
    numbered = each.withColumn("begun", F.when(goes_on, 0).otherwise(1)).withColumn(
        "line", F.sum("begun").over(order)
    )
    return numbered.groupBy(*of, "line").agg(
        F.any_value("value").alias("value"),
        F.sum("readings").alias("readings"),
        F.min("since").alias("since"),
        F.max("until").alias("until"),
    )


REPORT: Final = Report("anomalies", SCHEMA, (DAILY,), lambda given: anomalies(given.daily(DAILY)))
