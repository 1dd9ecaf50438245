"""Decode segments in Spark's tasks, which read the files and create the data files themselves.

Names, sizes and statistics alone pass through the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sync.ingest.decoding import decode_files
from sync.storage.storage import File, Storage
from sync.tables.arrow_schemas import DECODED
from sync.tables.spark_session import TASK_BYTES

OPEN_COST: Final = 8 * 1024
"""Bytes that are added to the size of each file when files are divided: opening and decoding a file
takes as long as reading one or two ordinary segments."""


def decode_in_tasks(
    spark: SparkSession, segments: Storage, tables: Storage, files: Sequence[File]
) -> list[dict[str, Any]]:
    """Decode files as `decode_files` does, a part of them in each task."""
    parts = divide(files, spark.sparkContext.defaultParallelism)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                rows = decode_files(segments, tables, parts[number])
                yield pa.RecordBatch.from_pylist(rows, DECODED)

    tasks = spark.range(0, len(parts), 1, len(parts))
    rows: list[dict[str, Any]] = (
        tasks.mapInArrow(decode, from_arrow_schema(DECODED)).toArrow().to_pylist()
    )
    return rows


def divide(files: Sequence[File], cores: int) -> list[list[File]]:
    """Divide files, in order, into parts of about equal work: one for each core, or more.

    Each file counts `OPEN_COST` more than its size. A part has some `TASK_BYTES` at most.
    """
    total = sum(file.size + OPEN_COST for file in files)
    parts: list[list[File]] = [[] for _ in range(max(cores, -(-total // TASK_BYTES)))]
    done = 0
    for file in files:
        parts[done * len(parts) // total].append(file)
        done += file.size + OPEN_COST
    return [part for part in parts if part]
