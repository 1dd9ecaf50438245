"""What the ingest could not take: forks and bad segments, each once however often it was offered.

The files themselves are in the fleet folder's quarantine.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sync.reports.common import conform
from sync.reports.context import Report
from sync.tables.tables import refused

SCHEMA: Final = StructType(
    [
        StructField("path", StringType()),
        StructField("arrived", TimestampType()),
        StructField("size", LongType()),
        StructField("reason", StringType()),
        StructField("detail", StringType()),
    ]
)
"""Where the file lay when it was read, and why it was not taken. `size` in bytes."""

ROWS: Final = 1_000
"""Files that are listed, the latest of them: more than that is one cause, and fills no page."""


def quarantine(segments: DataFrame) -> DataFrame:
    """Give a row of `SCHEMA` for each file that was not taken: the latest `ROWS`, latest first."""
    return conform(refused(segments), SCHEMA).orderBy(F.desc("arrived"), "path").limit(ROWS)


def quarantined(segments: DataFrame) -> DataFrame:
    """Count all of them, by `fate`: one row each for `bad` and `fork`, where there are any."""
    left = refused(segments)
    return left.groupBy("fate").agg(F.count(F.lit(1)).alias("files")).orderBy("fate")


REPORT: Final = Report("quarantine", SCHEMA, (), lambda given: quarantine(given.segments()))
