"""The tables: their columns, how a batch writes its part, and how readers find their files.

`events` has a row for each event. `segments` has a row for each file that was ever read, with its
`fate`; the accepted rows are the ledger. Files are found by manifests alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
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

from sync.tables import arrow_schemas
from sync.tables.manifest import Manifest, live_files
from sync.tables.part_files import PartFile, to_parquet
from sync.tables.storage import LocalStorage, Storage

Paths = tuple[str, ...]

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
"""An event (docs/reference/tables.md), its gateway, epoch and lane, and when its segment
arrived at the centre."""

SEGMENTS: Final = from_arrow_schema(arrow_schemas.SEGMENTS)
"""A file that was read: its path below the fleet folder, when it arrived, its fate, the reason, and
its header if it has a valid one."""

DECODED: Final = from_arrow_schema(arrow_schemas.DECODED)
"""The rows that workers return (`sync.ingest.decoding`)."""

DAY: Final = StructField("day", DateType())
"""The event's day in UTC, by which files are divided."""

ACCEPTED: Final = "accepted"

ORDER: Final = ("gateway", "lane", "epoch", "seq")
"""Sort order of compacted events in their files: most reports read by lane, many one gateway."""

_PARQUET: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The folder of one attempt at one batch; no other attempt has the same.

    `folder` is below `tables`.
    """

    tables: Storage
    folder: str

    def write_events(self, events: DataFrame, files: int | None = None) -> dict[str, Paths]:
        """Write rows of `EVENTS` by day; return the files of each day.

        With `files`, a day has at most so many, sorted so that a reader of one gateway's lane skips
        most.
        """
        day = F.date_format("time", "yyyy-MM-dd").alias(DAY.name)
        rows = events.select(*EVENTS.fieldNames(), day)
        if files is not None:
            rows = rows.repartitionByRange(files, *ORDER) if files > 1 else rows.coalesce(1)
            rows = rows.sortWithinPartitions(DAY.name, *ORDER)
        folder = f"{self.folder}/events"
        rows.write.partitionBy(DAY.name).mode("errorifexists").parquet(self.tables.uri(folder))
        found: dict[str, list[str]] = {}
        for path in self._written(folder):
            found.setdefault(PurePosixPath(path).parent.name.partition("=")[2], []).append(path)
        return {day: tuple(paths) for day, paths in sorted(found.items())}

    def put_events(self, parts: Iterable[PartFile]) -> tuple[dict[str, Paths], int]:
        """Create a file of each part file; return the files of each day, and how many events."""
        found: dict[str, list[str]] = {}
        events = 0
        for number, part in enumerate(parts):
            path = f"{self.folder}/events/{DAY.name}={part.day}/{number:05}{_PARQUET}"
            self.tables.create(path, part.content)
            found.setdefault(part.day, []).append(path)
            events += part.events
        return {day: tuple(paths) for day, paths in sorted(found.items())}, events

    def put_segments(self, rows: Iterable[Mapping[str, Any]]) -> Paths:
        """Create a file with rows of `SEGMENTS`, given as maps; return it."""
        path = f"{self.folder}/segments/{0:05}{_PARQUET}"
        self.tables.create(path, to_parquet(sorted(rows, key=_by_lane), arrow_schemas.SEGMENTS))
        return (path,)

    def write_segments(self, segments: DataFrame) -> Paths:
        """Write rows of `SEGMENTS` to one file; return it."""
        rows = segments.select(*SEGMENTS.fieldNames()).coalesce(1)
        rows = rows.sortWithinPartitions("gateway", "epoch", "lane", "first_seq")
        folder = f"{self.folder}/segments"
        rows.write.mode("errorifexists").parquet(self.tables.uri(folder))
        return self._written(folder)

    def _written(self, folder: str) -> Paths:
        return tuple(sorted(file.path for file in self.tables.files(folder, _PARQUET)))


def _by_lane(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return (row["gateway"] or "", row["epoch"] or "", row["lane"] or "", row["first_seq"] or 0)


def read_events(
    spark: SparkSession, tables: Storage | Path, manifests: Iterable[Manifest]
) -> DataFrame:
    """Read the events of the files that the manifests leave: `EVENTS` and `DAY`."""
    found = live_files(manifests).events
    return read_event_files(spark, tables, [path for paths in found.values() for path in paths])


def read_event_files(
    spark: SparkSession, tables: Storage | Path, files: Sequence[str]
) -> DataFrame:
    """Read the events of some of the files of `live_files`: `EVENTS` and `DAY`."""
    return _read(spark, tables, files, EVENTS).withColumn(DAY.name, F.to_date("time"))


def read_segments(
    spark: SparkSession, tables: Storage | Path, manifests: Iterable[Manifest]
) -> DataFrame:
    """Read the rows of the files that the manifests leave: `SEGMENTS`."""
    return _read(spark, tables, live_files(manifests).segments, SEGMENTS)


def read_segment_files(
    spark: SparkSession, tables: Storage | Path, files: Sequence[str]
) -> DataFrame:
    """Read the rows of some of the files of `live_files`: `SEGMENTS`."""
    return _read(spark, tables, files, SEGMENTS)


def refused(segments: DataFrame) -> DataFrame:
    """Select the rows of files that are still refused, each path and content once.

    A file that was accepted later, or is a duplicate of an accepted one, is left out.
    """
    taken = segments.where(F.col("fate").isin(ACCEPTED, "duplicate")).select("sha256")
    bad = segments.where(F.col("fate").isin("bad", "fork"))
    left = bad.join(taken, on="sha256", how="left_anti")
    return left.select(*SEGMENTS.fieldNames()).dropDuplicates(["path", "sha256"])


def _read(
    spark: SparkSession, tables: Storage | Path, files: Sequence[str], schema: StructType
) -> DataFrame:
    if not files:
        return spark.createDataFrame([], schema)
    storage = LocalStorage(tables) if isinstance(tables, Path) else tables
    return spark.read.schema(schema).parquet(*(escape_glob(storage.uri(each)) for each in files))


def escape_glob(path: str) -> str:
    """Escape the characters that Hadoop would take for a pattern: a folder may be named `[a]`."""
    return "".join(f"\\{char}" if char in "\\*?[]{}" else char for char in path)
