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
from pyspark.sql.window import WindowSpec

from sync.tables.partitions import union

TEXT: Final = StringType()
INTEGER: Final = LongType()
BYTE: Final = ByteType()
REAL: Final = DoubleType()
FLAG: Final = BooleanType()
TIME: Final = TimestampType()

LANE: Final = ("gateway", "epoch", "lane")
"""The columns that identify a sequence of event numbers."""


def schema(**types: DataType) -> StructType:
    """Return a schema of the named columns, in their order."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


def seconds(time: str) -> Column:
    """Return a timestamp column as seconds since 1970, with microseconds."""
    return F.unix_micros(time) / F.lit(1_000_000)


def time_at(seconds: str | Column) -> Column:
    """Return the timestamp of a column of seconds since 1970, to the millisecond.

    Events have times in milliseconds, and floating-point seconds of a far year are less exact than
    microseconds.
    """
    number = F.col(seconds) if isinstance(seconds, str) else seconds
    return F.timestamp_millis(F.round(number * 1000).cast("long"))


def times_since_until(first: str = "since", last: str = "until") -> list[Column]:
    """Return aggregates: sum of `times`; earliest `first` as `since`; latest `last` as `until`."""
    return [F.sum("times").alias("times"), F.min(first).alias("since"), F.max(last).alias("until")]


def numbered(rows: DataFrame, continues: Column, order: WindowSpec, name: str) -> DataFrame:
    """Number groups of consecutive rows; the column `name` gets the number of each row's group.

    In the order of `order`, a row belongs to the group of the row before if `continues` is true;
    if it is false or null, the row begins a group.
    """
    begins = rows.withColumn(name, F.when(continues, 0).otherwise(1))
    return begins.withColumn(name, F.sum(name).over(order))


GATEWAY_ROWS: Final = 1_000
"""Maximum rows of one gateway in a table whose rows are named by devices: names that one of them
invents neither displace other gateways nor fill the driver's memory."""


OLDER: Final = "(older)"
"""In place of an epoch or a version: the row adds up the earlier ones of a gateway. Sorts first."""


def of_each_gateway(rows: DataFrame, *order: Column) -> DataFrame:
    """Return the first `GATEWAY_ROWS` rows of each gateway, in the order of `order`."""
    place = F.row_number().over(Window.partitionBy("gateway").orderBy(*order))
    return rows.withColumn("place", place).where(F.col("place") <= GATEWAY_ROWS).drop("place")


def merged(by: tuple[str, ...], *parts: DataFrame) -> DataFrame:
    """Return one row for each key `by` of any part, with the columns of all parts.

    Each part must have at most one row for a key; two parts may share only the columns of the key.
    """
    rows = union(*parts)
    others = [name for name in rows.columns if name not in by]
    values = (F.any_value(name, ignoreNulls=True).alias(name) for name in others)
    return rows.groupBy(*by).agg(*values)


def percentiles(
    histogram: DataFrame, by: tuple[str, ...], value: str, suffix: str, *, divisor: float = 1
) -> DataFrame:
    """Compute `events`, p50, p95, p99 and max of each group from a histogram.

    `histogram` has the columns that `by` and `value` name, and `events`. The resulting columns end
    in `suffix`; values are divided by `divisor`. Percentiles are by nearest rank.
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
