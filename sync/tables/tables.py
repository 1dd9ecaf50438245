"""The tables in Spark: their columns, and how they are read.

`events` has a row for each event. `segments` has a row for each file that was ever read, with its
result in `fate`; the accepted rows are the ledger. Spark reads the files that Delta Lake's log
names, so it needs no package for Delta Lake, and none for object stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from sync.tables import arrow_schemas
from sync.tables.delta import Snapshot
from sync.tables.parquet_tasks import read_files

EVENTS: Final = from_arrow_schema(arrow_schemas.EVENTS)
"""An event (docs/reference/tables.md), its gateway, epoch and lane, and when its segment
arrived at the centre."""

SEGMENTS: Final = from_arrow_schema(arrow_schemas.SEGMENTS)
"""The columns of the table `segments`, with a row for each file: its path below the fleet folder,
when it arrived, the result of its ingest and the reason, and its header if that is valid."""

DAY: Final = StructField("day", DateType())
"""The column with the event's day in UTC, by which `events` is partitioned."""

ACCEPTED: Final = "accepted"


def read_events(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Read all events, with the columns `EVENTS` and `DAY`."""
    return read_event_files(spark, snapshot, snapshot.event_files)


def read_event_files(spark: SparkSession, snapshot: Snapshot, files: Iterable[str]) -> DataFrame:
    """Read some event files, paths as in `Snapshot.days`: the columns `EVENTS` and `DAY`.

    `DAY` is that of a file's partition: an event with an implausible time has another day than its
    time says (`sync.ingest.decoding`).
    """
    sizes = {path: snapshot.sizes[path] for path in files}
    schema = StructType([*EVENTS.fields, DAY])
    return read_files(spark, snapshot.storage, sizes, schema, _with_day)


def read_segments(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Read the rows of the table of segments: `SEGMENTS`."""
    sizes = {path: snapshot.sizes[path] for path in snapshot.segment_files}
    return read_files(spark, snapshot.storage, sizes, SEGMENTS)


def refused(segments: DataFrame) -> DataFrame:
    """Select the rows of files that are still refused, each path and content once.

    A file that was accepted later, or is a duplicate of an accepted one, is left out.
    """
    accepted = segments.where(F.col("fate").isin(ACCEPTED, "duplicate")).select("sha256")
    bad = segments.where(F.col("fate").isin("bad", "fork"))
    left = bad.join(accepted, on="sha256", how="left_anti")
    return left.select(*SEGMENTS.fieldNames()).dropDuplicates(["path", "sha256"])


def _with_day(path: str, rows: pa.Table) -> pa.Table:
    day = date.fromisoformat(path.split("/")[1].removeprefix(f"{DAY.name}="))
    return rows.append_column(DAY.name, pa.repeat(pa.scalar(day), len(rows)))
