"""Read and write Parquet files in Spark's tasks, through the storage.

Spark itself reads local disks and what Hadoop has classes for; these tasks read every storage.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sync.storage.storage import Storage
from sync.tables.data_files import to_parquet
from sync.tables.spark_session import TASK_BYTES

BATCH_ROWS: Final = 10_000
"""Rows that a task passes to Spark at once: Spark's own default for Arrow."""

_WRITTEN: Final = "path string, size long"


def read_files(
    spark: SparkSession,
    storage: Storage,
    sizes: Mapping[str, int],
    schema: StructType,
    select: Callable[[str, pa.Table], pa.Table] = lambda path, rows: rows,
) -> DataFrame:
    """Read the columns `schema` of the files in `sizes`, which has their sizes in bytes.

    `select` gets the path and all rows of each file, and returns the rows that are wanted. Columns
    that it does not return are null.
    """
    paths, first = list(sizes), sum(sizes.values())
    columns = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                path = paths[number - first]
                rows = select(path, pq.read_table(pa.BufferReader(storage.read(path))))
                yield from _conformed(rows, columns).to_batches(BATCH_ROWS)

    # `size_of` takes the first number for the size: Spark knows no size of what a task reads.
    parts = max(1, min(len(paths), -(-first // TASK_BYTES)))
    return spark.range(first, first + len(paths), 1, parts).mapInArrow(read, schema)


def write_files(rows: DataFrame, storage: Storage, folder: str, by: str) -> dict[str, int]:
    """Write the rows of each task to files, `folder/BY=VALUE/...` for each value of column `by`.

    Returns the sizes in bytes of the files, by path. The files are durable, and do not have this
    column.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held)
        for value in pc.unique(table[by]).to_pylist():
            path = f"{folder}/{by}={value}/{secrets.token_hex(8)}.parquet"
            content = to_parquet(table.filter(pc.field(by) == value).drop_columns(by))
            storage.create(path, content)
            yield pa.RecordBatch.from_pydict({"path": [path], "size": [len(content)]})

    return dict(rows.mapInArrow(write, _WRITTEN).collect())


def _conformed(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    arrays = [
        rows[each.name].cast(each.type)
        if each.name in rows.column_names
        else pa.nulls(len(rows), each.type)
        for each in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)
