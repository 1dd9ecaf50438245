"""What the reports share: the cadence they judge by, and how a schema is kept.

Reads no table, collects no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LANE: Final = ("gateway", "epoch", "lane")
"""What events are counted under."""

NO_DIGEST: Final = "00" * 32
"""What the first segment of a lane has for its predecessor's digest."""


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Give the columns of `schema`, in its order and of its types."""
    return rows.select(*(F.col(each.name).cast(each.dataType) for each in schema))


def seconds(time: str) -> Column:
    """Give a timestamp as seconds since 1970, to the microsecond."""
    return F.unix_micros(time) / F.lit(1_000_000)


def exact_percentile(share: float, column: str) -> Column:
    """Give the smallest value that at least `share` (0 to 1) of the rows do not exceed.

    This is the nearest-rank definition, exact: a value that occurred, and never a mean of two.
    """
    return F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})")


def percentiles(
    histogram: DataFrame, by: tuple[str, ...], value: str, suffix: str, *, each: float = 1
) -> DataFrame:
    """Give `events`, p50, p95, p99 and max of each group from how often each value occurred.

    `histogram` has the columns of `by`, `value` and `events`. The names end in `suffix`; the values
    are divided by `each`. By nearest rank: the smallest value that at least so many per cent of the
    events do not exceed, and so one that occurred.
    """
    sums = histogram.groupBy(*by, value).agg(F.sum("events").alias("events"))
    group = Window.partitionBy(*by)
    reached = F.sum("events").over(group.orderBy(value))
    ranked = sums.withColumns({"reached": reached, "all": F.sum("events").over(group)})

    def rank(percent: int) -> Column:
        within = F.col("reached") * 100 >= F.col("all") * percent
        return F.min(F.when(within, F.col(value))) / each

    return ranked.groupBy(*by).agg(
        F.sum("events").alias("events"),
        *(rank(percent).alias(f"p{percent}{suffix}") for percent in (50, 95, 99)),
        (F.max(value) / each).alias(f"max{suffix}"),
    )
