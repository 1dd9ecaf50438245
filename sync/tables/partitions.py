"""In how many partitions rows are worked: what is small in one, which needs no shuffle.

Between two stages Spark writes files, plans anew and starts tasks: for some thousand rows that
takes longer than the work itself. Rows that all are in one partition are together whatever they are
grouped, joined or sorted by, and so a report of small tables is one stage. Reads no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

SMALL_BYTES: Final = 32 * 1024 * 1024
"""Bytes of files up to which what is made of them is small: one task works off so many in seconds,
and sorts them within the driver's memory."""

_IN_PLACE: Final = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(2**62),
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
}
"""Joins would be made broadcasts, each of which is a job, and what is in one partition would be
divided for a join that is reckoned to be large, as any of a join is: the product is taken. What is
cached stays as it was divided."""


def size_of(rows: DataFrame) -> int:
    """Give the bytes of all that these rows are made of, as Spark reckons: of files, their sizes.

    What is read twice counts twice; of what is no file little may be known, and it counts as huge.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    return sum(int(leaves.apply(at).stats().sizeInBytes()) for at in range(leaves.size()))


def coalesced(rows: DataFrame) -> DataFrame:
    """Give the rows, in one partition if they are small.

    Those of an inner or a full outer join, and of a union, have to be gathered again.
    """
    return rows.coalesce(1) if size_of(rows) <= SMALL_BYTES else rows


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Give no rows of a schema, of which Spark knows that they are none."""
    columns = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema)
    return spark.range(0).select(*columns)


def union(first: DataFrame, *others: DataFrame) -> DataFrame:
    """Give the rows of all, by their columns' names; null where one lacks a column."""

    def both(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    return coalesced(reduce(both, others, first))


@contextmanager
def without_repartitioning(spark: SparkSession) -> Iterator[None]:
    """Have Spark leave rows where they are, as far as it can, for the length of the block."""
    before = {name: str(spark.conf.get(name)) for name in _IN_PLACE}
    for name, value in _IN_PLACE.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Select the columns of `schema`, in its order and cast to its types."""
    return rows.select(*(F.col(each.name).cast(each.dataType) for each in schema))
