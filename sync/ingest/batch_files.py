"""The files of a batch, decoded by Spark's workers or, if they are few, in this process.

Both ways use the same functions on the same schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sync.common.errors import FleetError
from sync.ingest.decoding import decode_files
from sync.tables import arrow_schemas, tables
from sync.tables.part_files import PartFile
from sync.tables.storage import File, Storage

PIECES: Final = ("path", "sha256", *PartFile._fields)
"""The columns of `DECODED` from which part files are assembled."""

_FILE: Final = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", arrow_schemas.TIME),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)
"""The columns of Spark's file source."""


class BatchFiles(AbstractContextManager[object], Protocol):
    """The files of a batch that still exist. Within the block, the decoded rows are kept."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of `FILES` for each file."""
        ...

    def pieces(self, chosen: Sequence[str] | None) -> Iterable[Mapping[str, Any]]:
        """Return the columns `PIECES` of the rows of `DECODED`.

        With `chosen`, only the files with these paths are decoded, once more.
        """
        ...


class SparkFiles:
    """Files decoded by Spark's workers; see `BatchFiles`.

    Spark leaves out empty files: these are decoded in this process.
    """

    def __init__(self, spark: SparkSession, segments: Storage, files: Sequence[File]) -> None:
        self._spark = spark
        self._segments = segments
        self._paths = [file.path for file in files if file.size]
        self._empty = LocalFiles(segments, [file for file in files if not file.size])
        self._files = _read(spark, segments, self._paths)
        self._decoded = self._files.mapInArrow(decode_files, tables.DECODED)

    def __enter__(self) -> SparkFiles:
        """Keep the decoded rows on disk: in memory, they would leave the JVM too little heap."""
        self._decoded.persist(StorageLevel.DISK_ONLY)
        return self

    def __exit__(self, *_: object) -> None:
        """Discard what was decoded."""
        self._decoded.unpersist()

    def rows(self) -> list[dict[str, Any]]:
        """Decode the files; see `BatchFiles`. Raises FleetError if Spark has left out a file."""
        files = self._decoded.where(F.col("path").isNotNull()).select(*arrow_schemas.FILES.names)
        rows: list[dict[str, Any]] = files.toArrow().to_pylist()
        read = {self._segments.relative(row["path"]) for row in rows}
        for path in self._paths:
            if path not in read and self._segments.exists(path):
                uri = self._segments.uri(path)
                msg = f"Spark has not read {uri}; nothing was committed; ingest again"
                raise FleetError(msg)
        with self._empty:
            return rows + self._empty.rows()

    def pieces(self, chosen: Sequence[str] | None) -> Iterable[Mapping[str, Any]]:
        """Yield the pieces of part files one by one; see `BatchFiles`."""
        decoded = self._decoded
        if chosen is not None:
            paths = self._spark.createDataFrame([(path,) for path in chosen], "path string")
            left = self._files.join(F.broadcast(paths), on="path", how="left_semi")
            decoded = left.mapInArrow(decode_files, tables.DECODED)
        return map(Row.asDict, decoded.select(*PIECES).toLocalIterator())


def _read(spark: SparkSession, segments: Storage, paths: Sequence[str]) -> DataFrame:
    """Read files as rows of `_FILE`. Spark skips files that vanish after this call, not earlier."""
    source = spark.read.format("binaryFile").schema(from_arrow_schema(_FILE))
    try:
        return source.load(
            [tables.escape_glob(segments.uri(path)) for path in paths], ignoreMissingFiles=True
        )
    except AnalysisException:
        left = [path for path in paths if segments.exists(path)]
        if left == paths:
            raise
        return _read(spark, segments, left)


class LocalFiles:
    """Files decoded in this process, all in memory; see `BatchFiles`."""

    def __init__(self, segments: Storage, files: Sequence[File]) -> None:
        self._segments = segments
        self._files = files
        self._decoded: list[pa.RecordBatch] = []

    def __enter__(self) -> LocalFiles:
        """Decode the files."""
        self._decoded = self._decode(self._files)
        return self

    def __exit__(self, *_: object) -> None:
        """Discard what was decoded."""
        self._decoded = []

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of `FILES` for each file; see `BatchFiles`."""
        table = pa.Table.from_batches(self._decoded, arrow_schemas.DECODED)
        files = table.filter(pc.field("path").is_valid()).select(arrow_schemas.FILES.names)
        rows: list[dict[str, Any]] = files.to_pylist()
        return rows

    def pieces(self, chosen: Sequence[str] | None) -> Iterable[Mapping[str, Any]]:
        """Yield the pieces of part files; see `BatchFiles`."""
        decoded = self._decoded
        if chosen is not None:
            paths = set(chosen)
            decoded = self._decode(file for file in self._files if self._uri(file) in paths)
        for batch in decoded:
            yield from batch.select(PIECES).to_pylist()

    def _decode(self, files: Iterable[File]) -> list[pa.RecordBatch]:
        return list(decode_files(self._read(files)))

    def _read(self, files: Iterable[File]) -> Iterator[pa.RecordBatch]:
        """Yield a row of Spark's file source for each file; skip those that are gone."""
        for file in files:
            with suppress(FileNotFoundError):
                content = self._segments.read(file.path)
                arrived = round(file.modified * 1000) * 1000
                row = (self._uri(file), arrived, len(content), content)
                yield pa.RecordBatch.from_pylist([dict(zip(_FILE.names, row, strict=True))], _FILE)

    def _uri(self, file: File) -> str:
        return self._segments.uri(file.path)
