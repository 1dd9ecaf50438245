"""The tables: what their columns are, how a batch writes its part, and how readers find it.

`events` has a row for each event. `segments` has a row for each file that was ever read, with what
became of it (`fate`): the accepted rows are the ledger. Files are found by manifests alone; this
module commits none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sync.central.manifest import Manifest

EVENTS: Final = StructType(
    [
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("lane", StringType()),
        StructField("seq", LongType()),
        StructField("time", TimestampType()),
        StructField("clock", BooleanType()),
        StructField("kind", StringType()),
        StructField("source", StringType()),
        StructField("topic", StringType()),
        StructField("name", StringType()),
        StructField("value", DoubleType()),
        StructField("unit", StringType()),
        StructField("level", StringType()),
        StructField("text", StringType()),
        StructField("qos", ByteType()),
        StructField("latency_ms", LongType()),
        StructField("tags", MapType(StringType(), StringType(), valueContainsNull=False)),
        StructField("arrived", TimestampType()),
    ]
)
"""An event (docs/segment-format.md), whose it is, and when its segment arrived at the centre."""

DROPPED: Final = ArrayType(
    StructType(
        [
            StructField("first_seq", LongType()),
            StructField("last_seq", LongType()),
            StructField("reason", StringType()),
        ]
    )
)
"""The ranges that a gateway says it gave up."""

SEGMENTS: Final = StructType(
    [
        StructField("path", StringType()),
        StructField("arrived", TimestampType()),
        StructField("size", LongType()),
        StructField("sha256", StringType()),
        StructField("fate", StringType()),
        StructField("reason", StringType()),
        StructField("detail", StringType()),
        StructField("gateway", StringType()),
        StructField("epoch", StringType()),
        StructField("lane", StringType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("digest", StringType()),
        StructField("previous", StringType()),
        StructField("boot", StringType()),
        StructField("sealed_at", TimestampType()),
        StructField("service_seconds", DoubleType()),
        StructField("clock", BooleanType()),
        StructField("firmware", StringType()),
        StructField("software", StringType()),
        StructField("config_hash", StringType()),
        StructField("disk_used", LongType()),
        StructField("dropped", DROPPED),
    ]
)
"""A file that was read: its path below the fleet folder, when it arrived, what became of it, why,
and what its header says, where it has one (`bad` ones have none)."""

DAY: Final = StructField("day", DateType())
"""The event's day in UTC: what files of events are divided by, and readers get as a column."""

ACCEPTED: Final = "accepted"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The folder that one try at one batch writes to: no other try has the same.

    `folder` is relative to `tables`, the tables' folder.
    """

    tables: Path
    folder: PurePosixPath

    def write_events(self, events: DataFrame) -> dict[str, tuple[str, ...]]:
        """Write rows of `EVENTS` by day; gives the files of each day, relative to `tables`."""
        target = self._target("events")
        day = F.date_format("time", "yyyy-MM-dd").alias(DAY.name)
        rows = events.select(*EVENTS.fieldNames(), day)
        rows.write.partitionBy(DAY.name).mode("errorifexists").parquet(target)
        files: dict[str, list[str]] = {}
        for path in self._written(events.sparkSession, target):
            files.setdefault(PurePosixPath(path).parent.name.partition("=")[2], []).append(path)
        return {day: tuple(sorted(paths)) for day, paths in sorted(files.items())}

    def write_segments(self, segments: DataFrame) -> tuple[str, ...]:
        """Write rows of `SEGMENTS` to one file; gives it, relative to `tables`."""
        target = self._target("segments")
        rows = segments.select(*SEGMENTS.fieldNames()).coalesce(1)
        rows.write.mode("errorifexists").parquet(target)
        return tuple(sorted(self._written(segments.sparkSession, target)))

    def _target(self, table: str) -> str:
        return str(self.tables.joinpath(self.folder, table))

    def _written(self, spark: SparkSession, target: str) -> list[str]:
        """List the files below `target`, by Spark: it knows the file system that they lie in."""
        root = self.tables.as_posix()
        files = spark.read.parquet(escape_glob(target)).inputFiles()
        paths = (PurePosixPath(unquote(urlsplit(uri).path)) for uri in files)
        return [path.relative_to(root).as_posix() for path in paths]


def read_events(spark: SparkSession, tables: Path, manifests: Iterable[Manifest]) -> DataFrame:
    """Read the events that the manifests name: `EVENTS` and `DAY`."""
    files = [path for each in manifests for paths in each.events.values() for path in paths]
    rows = _read(spark, tables, files, EVENTS)
    return rows.withColumn(DAY.name, F.to_date("time"))


def read_segments(spark: SparkSession, tables: Path, manifests: Iterable[Manifest]) -> DataFrame:
    """Read the files' rows that the manifests name: `SEGMENTS`."""
    return _read(spark, tables, [path for each in manifests for path in each.segments], SEGMENTS)


def _read(spark: SparkSession, tables: Path, files: Sequence[str], schema: StructType) -> DataFrame:
    if not files:
        return spark.createDataFrame([], schema)
    paths = [escape_glob(str(tables.joinpath(each))) for each in files]
    return spark.read.schema(schema).parquet(*paths)


def escape_glob(path: str) -> str:
    r"""Quote what Hadoop would take for a pattern: a folder may be called `[a]`."""
    return "".join(f"\\{char}" if char in "\\*?[]{}" else char for char in path)
