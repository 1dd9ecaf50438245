"""The files of a batch, decoded by Spark's workers or, if they are few, in this process.

Both ways use the same functions on the same schemas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sync.common.errors import FleetError
from sync.ingest.decoding import decode_files
from sync.tables import arrow_schemas, tables
from sync.tables.part_files import PartFile
from sync.tables.storage import File, Storage

PIECES: Final = ("path", "sha256", *PartFile._fields)
"""The columns of `DECODED` that name the files that were read and have the pieces of part files."""

_FILE: Final = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", arrow_schemas.TIME),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)
"""The columns of Spark's data source `binaryFile`."""


class LocalFiles:
    """Files that this process decodes, in memory. Files that no longer exist are skipped."""

    def __init__(self, segments: Storage, files: Sequence[File]) -> None:
        self._segments = segments
        self._files = files
        self._decoded: list[pa.RecordBatch] = []

    def rows(self) -> list[dict[str, Any]]:
        """Decode the files; return a row of `JUDGED` for each, with its path."""
        self._decoded = list(decode_files(self._read(None)))
        table = pa.Table.from_batches(self._decoded, arrow_schemas.DECODED)
        files = table.filter(pc.field("path").is_valid()).select(arrow_schemas.JUDGED.names)
        rows: list[dict[str, Any]] = files.to_pylist()
        return rows

    def pieces(self, chosen: Collection[str] | None) -> Iterator[dict[str, Any]]:
        """Yield the columns `PIECES` of the decoded rows.

        With `chosen`, decode the files with these paths once more, and no others.
        """
        decoded = self._decoded if chosen is None else decode_files(self._read(chosen))
        for batch in decoded:
            yield from batch.select(PIECES).to_pylist()

    def close(self) -> None:
        """Discard what was decoded."""
        self._decoded = []

    def _read(self, chosen: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield a row with the columns `_FILE` for each file, or for those with `chosen` paths."""
        for file in self._files:
            if chosen is None or file.path in chosen:
                with suppress(FileNotFoundError):
                    content = self._segments.read(file.path)
                    arrived = round(file.modified * 1000) * 1000
                    row = (file.path, arrived, len(content), content)
                    named = dict(zip(_FILE.names, row, strict=True))
                    yield pa.RecordBatch.from_pylist([named], _FILE)


class SparkFiles:
    """Files decoded by Spark's workers; the methods are those of `LocalFiles`.

    Spark leaves out empty files: these are decoded in this process. The decoded rows are on disk:
    in memory, they would leave the JVM too little heap.
    """

    def __init__(self, spark: SparkSession, segments: Storage, files: Sequence[File]) -> None:
        self._spark = spark
        self._segments = segments
        self._paths = [file.path for file in files if file.size]
        self._empty = LocalFiles(segments, [file for file in files if not file.size])
        self._decoded = self._decode(self._paths).persist(StorageLevel.DISK_ONLY)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of `JUDGED` for each file. Raises FleetError if Spark left out a file."""
        files = self._decoded.where(F.col("path").isNotNull()).select(*arrow_schemas.JUDGED.names)
        rows = [self._relative(row) for row in files.toArrow().to_pylist()]
        read = {row["path"] for row in rows}
        for path in self._paths:
            if path not in read and self._segments.exists(path):
                uri = self._segments.uri(path)
                raise FleetError(f"Spark has not read {uri}; nothing was committed; ingest again")
        return rows + self._empty.rows()

    def pieces(self, chosen: Collection[str] | None) -> Iterator[dict[str, Any]]:
        """Yield the same as `LocalFiles.pieces`, row by row from Spark."""
        decoded = self._decoded if chosen is None else self._decode(list(chosen))
        for row in decoded.select(*PIECES).toLocalIterator():
            yield self._relative(row.asDict())

    def close(self) -> None:
        """Discard what was decoded."""
        self._decoded.unpersist()

    def _decode(self, paths: Sequence[str]) -> DataFrame:
        """Decode the files that exist at this call; Spark itself skips those that vanish later."""
        source = self._spark.read.format("binaryFile").schema(from_arrow_schema(_FILE))
        names = [tables.escape_glob(self._segments.uri(path)) for path in paths]
        try:
            files = source.load(names, ignoreMissingFiles=True)
        except AnalysisException:
            left = [path for path in paths if self._segments.exists(path)]
            if len(left) == len(paths):
                raise
            return self._decode(left)
        return files.mapInArrow(decode_files, tables.DECODED)

    def _relative(self, row: dict[str, Any]) -> dict[str, Any]:
        """Replace Spark's URI, if a row has one, with the path below the fleet folder."""
        return row | {"path": row["path"] and self._segments.relative(row["path"])}


BatchFiles = LocalFiles | SparkFiles
"""The files of a batch, except vanished ones. Decoded rows are kept until `close` is called."""
