"""Schemas and column expressions that several reports use."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT: Final = StringType()
INTEGER: Final = LongType()
BYTE: Final = ByteType()
REAL: Final = DoubleType()
FLAG: Final = BooleanType()
TIME: Final = TimestampType()

LANE: Final = ("gateway", "epoch", "lane")
"""The columns that identify a sequence of event numbers."""

MAX_COUNT: Final = 1_000_000_000_000
"""The highest count that is accepted from a gateway: sums of such counts do not overflow."""


def schema(**types: DataType) -> StructType:
    """Return a schema of the named columns, in their order."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


def seconds(time: str) -> Column:
    """Return a timestamp column as seconds since 1970, with microseconds."""
    return F.unix_micros(time) / F.lit(1_000_000)


def count_of(value: Column) -> Column:
    """Parse a count that a gateway sent as text or float; null if it is not a valid count."""
    number = value.try_cast("double")
    return F.when(number.between(0, MAX_COUNT), number.cast("long"))


def tag(name: str) -> Column:
    """Parse an event's tag as a count; null if the tag is absent or not a valid count."""
    return count_of(F.element_at("tags", F.lit(name)))


def exact_percentile(share: float, column: str) -> Column:
    """Return the smallest value that at least `share` (0 to 1) of the rows do not exceed.

    This is the nearest-rank definition: the result is a value that occurred.
    """
    return F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})")


def percentiles(
    histogram: DataFrame, by: tuple[str, ...], value: str, suffix: str, *, divisor: float = 1
) -> DataFrame:
    """Compute `events`, p50, p95, p99 and max of each group from a histogram.

    `histogram` has the columns of `by`, `value` and `events`. The resulting columns end in
    `suffix`; values are divided by `divisor`. Percentiles are by nearest rank.
    """
    sums = histogram.groupBy(*by, value).agg(F.sum("events").alias("events"))
    group = Window.partitionBy(*by)
    cumulative = F.sum("events").over(group.orderBy(value))
    ranked = sums.withColumns({"cumulative": cumulative, "all": F.sum("events").over(group)})

    def rank(percent: int) -> Column:
        within = F.col("cumulative") * 100 >= F.col("all") * percent
        return F.min(F.when(within, F.col(value))) / divisor

    return ranked.groupBy(*by).agg(
        F.sum("events").alias("events"),
        *(rank(percent).alias(f"p{percent}{suffix}") for percent in (50, 95, 99)),
        (F.max(value) / divisor).alias(f"max{suffix}"),
    )
