"""Helpers that keep small DataFrames in one partition, so that a report needs no shuffle.

Between two stages Spark writes files, plans again and starts tasks: for some thousand rows that
takes longer than the work itself. Rows in one partition can be grouped, joined and sorted by any
columns in one stage.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sync.tables.spark_session import configured

SMALL_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes (see `size_of`) of a DataFrame that `coalesced` puts into one partition: one task
can process and sort it in seconds within the driver's memory."""

_IN_PLACE: Final = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(2**62),
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
}
"""Spark settings for DataFrames of one partition. They prevent broadcast joins, each of which is a
separate job, and that Spark divides the partition for a join because it overestimates its size."""


def size_of(rows: DataFrame) -> int:
    """Return the bytes of all files that `rows` are computed from. Files read twice count twice.

    The source of files is a range of numbers, of which the first is their size
    (`sync.tables.parquet_tasks.read_files`). For other sources, Spark's estimate counts.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    return sum(_size_of_source(leaves.apply(at)) for at in range(leaves.size()))


def _size_of_source(leaf: Any) -> int:
    return int(leaf.start() if leaf.nodeName() == "Range" else leaf.stats().sizeInBytes())


def coalesced(rows: DataFrame) -> DataFrame:
    """Return the rows in one partition if they are small.

    The results of inner joins, full outer joins and unions must be coalesced again.
    """
    return rows.coalesce(1) if size_of(rows) <= SMALL_BYTES else rows


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty DataFrame, in a form that Spark recognises as empty."""
    columns = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema)
    return spark.range(0).select(*columns)


def union(first: DataFrame, *others: DataFrame) -> DataFrame:
    """Return the rows of all DataFrames by column name; missing columns are null."""
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return coalesced(first)


def without_repartitioning(spark: SparkSession) -> AbstractContextManager[None]:
    """Prevent Spark from repartitioning rows within the block, as far as possible."""
    return configured(spark, _IN_PLACE)


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Select the columns of `schema`, in its order and cast to its types."""
    return rows.select(*(F.col(each.name).cast(each.dataType) for each in schema))
