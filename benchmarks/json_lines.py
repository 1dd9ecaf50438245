"""The usual alternative to segments: gzipped JSON lines of events, read by Spark's JSON reader."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sync.segment import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(segment: Path, path: Path) -> None:
    """Write the events of a segment as JSON lines, with all columns of their rows in the table."""
    header, events, _ = decode(segment.read_bytes())
    lane = {"gateway": header.gateway, "epoch": header.epoch, "lane": header.lane}
    rows = [
        lane | {name: value for name, value in event._asdict().items() if value is not None}
        for event in events
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.json.Encoder(enc_hook=dict).encode_lines(rows), 6))


def take(session: SparkSession, lines: Path, out: str) -> None:
    """Read all files below `lines` with a schema, and write the same table, partitioned by day."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    from sync.tables.tables import EVENTS

    fields = [
        StructField(each.name, LongType()) if each.name == "time" else each
        for each in EVENTS
        if each.name != "arrived"
    ]
    reader = session.read.schema(StructType(fields)).option("recursiveFileLookup", "true")
    columns = {
        "time": F.timestamp_millis("time"),
        "arrived": F.col("_metadata.file_modification_time"),
    }
    rows = reader.json(str(lines)).withColumns(columns)
    day = F.date_format("time", "yyyy-MM-dd")
    rows.withColumn("day", day).write.partitionBy("day").parquet(out)
