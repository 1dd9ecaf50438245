"""What gateways told of messages that went nowhere, and of what their limits refused.

Counts what the system lane says. The messages themselves are at the gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.central.reports.common import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("kind", StringType()),
        StructField("name", StringType()),
        StructField("times", LongType()),
        StructField("since", TimestampType()),
        StructField("until", TimestampType()),
    ]
)
"""How often each gateway told of a `message` (`dead`, `expired`, `evicted`, ...) or of a refusal by
a `limit` (the rule's name), first and last. An event of kind `limit` stands for as many refusals as
its value says."""


def notices(events: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each gateway, kind and name of which there are events."""
    system = events.where((F.col("lane") == "system") & F.col("kind").isin("message", "limit"))
    each = F.when(F.col("kind") == "limit", F.coalesce("value", F.lit(1.0))).otherwise(1.0)
    rows = system.groupBy("gateway", "kind", "name").agg(
        F.sum(each).alias("times"), F.min("time").alias("since"), F.max("time").alias("until")
    )
    return conform(rows, SCHEMA).orderBy("gateway", "kind", "name")
