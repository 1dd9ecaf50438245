"""Collect events into Parquet files in memory, at any time one unfinished file for each day.

This runs in Spark's workers: a part file is sent to the driver as bytes, and the driver creates it.
No task writes to the tables, so tasks that are interrupted or repeated leave nothing behind.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

HELD_BYTES: Final = 32 * 1024 * 1024
"""Most uncompressed bytes of events that are held for all days: some 200,000 readings. At this
size, they become row groups of the part files."""

PART_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a part file after which it is finished: the driver holds a few at a time."""

OPEN_DAYS: Final = 64
"""Most days that have an unfinished part file: wrong clocks cause any number of days."""


_INCREASING: Final = ("seq", "time")
"""Columns whose numbers increase in small steps, and which are therefore delta-encoded."""


class PartFile(NamedTuple):
    """A Parquet file: the day (as `2025-11-21`) of its events, their number, and its bytes."""

    day: str
    events: int
    content: bytes


class PartFiles:
    """The unfinished part files, with at most `HELD_BYTES` of plain events and `OPEN_DAYS` days."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._open: dict[str, _Open] = {}
        self._held = 0

    def add(self, day: str, events: pa.RecordBatch) -> Iterator[PartFile]:
        """Add events of a day; yield the part files that are full."""
        if day not in self._open and len(self._open) == OPEN_DAYS:
            yield from self.finish()
        if day not in self._open:
            self._open[day] = _Open(self._schema)
        self._open[day].hold(events)
        self._held += events.nbytes
        if self._held >= HELD_BYTES:
            for each in self._open.values():
                each.write()
            self._held = 0
            for full in [day for day, each in self._open.items() if each.size >= PART_BYTES]:
                yield self._close(full)

    def finish(self) -> Iterator[PartFile]:
        """Yield all unfinished part files."""
        for day in list(self._open):
            yield self._close(day)
        self._held = 0

    def _close(self, day: str) -> PartFile:
        return PartFile(day, *self._open.pop(day).close())


def to_parquet(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> bytes:
    """Return rows of `schema` as a Parquet file."""
    sink = io.BytesIO()
    with _writer(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return sink.getvalue()


def _writer(sink: io.BytesIO, schema: pa.Schema) -> pq.ParquetWriter:
    increasing = [name for name in _INCREASING if name in schema.names]
    others = [name for name in schema.names if name not in increasing]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        store_schema=False,
        use_dictionary=others,
        column_encoding=dict.fromkeys(increasing, "DELTA_BINARY_PACKED"),
    )


class _Open:
    """An unfinished part file."""

    def __init__(self, schema: pa.Schema) -> None:
        self._held: list[pa.RecordBatch] = []
        self._sink = io.BytesIO()
        self._writer = _writer(self._sink, schema)
        self._events = 0

    @property
    def size(self) -> int:
        return self._sink.tell()

    def hold(self, events: pa.RecordBatch) -> None:
        self._held.append(events)

    def write(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._events += table.num_rows
            self._held = []

    def close(self) -> tuple[int, bytes]:
        self.write()
        self._writer.close()
        return self._events, self._sink.getvalue()
