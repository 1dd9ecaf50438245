"""Which hours of a sensor were out of the ordinary, by medians and absolute deviations from them.

A part of the report on anomalies. What is usual is learnt from the hours themselves, odd ones
included: as long as these are the fewer, medians do not mind.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.readings import SENSOR

Z: Final = 6.0
"""Robust standard deviations beyond which an hour is odd: of a hundred thousand hours of noise
none is, by chance."""

SIGMA: Final = 1.4826
"""Median absolute deviations in a standard deviation of a normal distribution."""

MEAN_SIGMA: Final = 1.2533
"""Mean absolute deviations in one; used where more than half of the hours are quite alike."""

DAYS: Final = 4
"""Days with readings at an hour of the day, from which on that hour is compared with itself."""

HOURS: Final = 24
"""Hours with readings, from which on a sensor is compared with itself at all."""

PEERS: Final = 3
"""Sensors of a type of which the median tells what all of them do at a time."""

CROWD: Final = 20
"""Sensors of a type that tell what is usual with one that is new, so that one is few of them."""

RARE: Final = 0.05
"""The share of a crowd that may be odd at a time: more are another sort of the same name, such as
freezers among rooms."""

_OF: Final = (*SENSOR, "unit")


def odd_hours(hours: DataFrame) -> DataFrame:
    """Count the odd hours of each sensor, and give the worst of them; of those that have some."""
    judged = _judged(_expected(hours))
    odd = judged.where(F.abs("z") > Z)
    worst = F.struct(F.abs("z").alias("size"), "hour", "median", "usual", "z", "basis")
    of = odd.groupBy(*_OF).agg(F.count(F.lit(1)).alias("anomalous_hours"), F.max(worst).alias("it"))
    return of.select(
        *_OF,
        "anomalous_hours",
        F.col("it.hour").alias("worst_at"),
        F.col("it.median").alias("worst_value"),
        F.round("it.usual", 6).alias("usual"),
        F.round("it.z", 1).alias("z"),
        F.col("it.basis").alias("basis"),
    )


def _expected(hours: DataFrame) -> DataFrame:
    """Give what is usual of each hour, on which basis, and what it is off that: `raw`, and `off`
    what most sensors of its type are off in the same hour, where there are some."""
    own, at_hour = Window.partitionBy(*_OF), Window.partitionBy(*_OF, F.hour("hour"))
    peers = Window.partitionBy("name", "unit", "hour")
    basis = (
        F.when(F.count("median").over(at_hour) >= DAYS, "hour")
        .when(F.count("median").over(own) >= HOURS, "all")
        .otherwise(F.when(F.count("median").over(peers) >= CROWD, "type"))
    )
    usual = (
        F.when(F.col("basis") == "hour", F.median("median").over(at_hour))
        .when(F.col("basis") == "all", F.median("median").over(own))
        .otherwise(F.median("median").over(peers))
    )
    based = hours.withColumn("basis", basis).where(F.col("basis").isNotNull())
    raw = based.withColumn("usual", usual).withColumn("raw", F.col("median") - F.col("usual"))
    of_own = F.when(F.col("basis") != "type", F.col("raw"))
    enough = F.count(of_own).over(peers) >= PEERS
    common = F.when(of_own.isNotNull() & enough, F.median(of_own).over(peers)).otherwise(0.0)
    return raw.withColumn("off", F.col("raw") - common)


def _judged(expected: DataFrame) -> DataFrame:
    """Give `z`: zero for what is within what the sensor does in an hour, and what is not rare.

    It is of `raw` or of `off`, whichever is closer to what is usual: neither an hour in which all
    sensors tell something new is odd of one, nor one in which it does not do as the others.
    """
    own = Window.partitionBy(*_OF)
    peers = Window.partitionBy("name", "unit", "hour", F.col("basis") == "type")
    rise = F.col("median") - F.lag("median").over(own.orderBy("median"))
    steps = expected.withColumn("rise", rise).withColumns(
        {
            "step": F.min(F.when(F.col("rise") > 0, F.col("rise"))).over(own),
            "spread": F.median(F.col("high") - F.col("low")).over(own),
        }
    )
    raw, off = _z("raw"), _z("off")
    closer = F.when(F.abs(raw) < F.abs(off), raw).otherwise(off)
    beyond = F.least(F.abs("raw"), F.abs("off")) > F.col("spread")
    known = steps.withColumn("z", F.when(beyond, closer).otherwise(0.0))
    share = F.avg(F.when(F.abs("z") > Z, 1.0).otherwise(0.0)).over(peers)
    rare = (F.col("basis") != "type") | (share <= RARE)
    return known.withColumn("z", F.when(rare, F.col("z")).otherwise(0.0))


def _z(column: str) -> Column:
    """Give how many robust standard deviations what a column tells is from none.

    The deviation is never less than the smallest `step` between two medians of the sensor: what it
    can tell apart at all.
    """
    own, at_hour = Window.partitionBy(*_OF), Window.partitionBy(*_OF, F.hour("hour"))
    peers = Window.partitionBy("name", "unit", "hour", F.col("basis") == "type")
    size = F.abs(column)
    middle = F.median(size).over(own)
    always = F.when(middle > 0, middle * SIGMA).otherwise(F.avg(size).over(own) * MEAN_SIGMA)
    by_hour = F.when(F.col("basis") == "hour", F.median(size).over(at_hour) * SIGMA)
    of_type = F.median(size).over(peers) * SIGMA
    own_scale = F.greatest(by_hour, always, F.col("step"))
    scale = F.when(F.col("basis") == "type", of_type).otherwise(own_scale)
    return F.when(scale > 0, F.col(column) / scale).otherwise(0.0)
