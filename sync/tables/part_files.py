"""Gathers events into Parquet files in memory, one after another for each day: parts.

Runs in Spark's workers: a part travels to the driver as bytes, which creates the file. So no task
writes to the tables, and what a task that was tried twice or cut off has made is nowhere. Knows
nothing of segments, batches or storages.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

HELD_BYTES: Final = 32 * 1024 * 1024
"""Bytes of events, not yet compressed, that are held for all days: some 200,000 readings. They are
a group of rows in a part."""

PART_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a part, beyond which it takes no further group: the driver holds a few at a time."""

OPEN_DAYS: Final = 64
"""Days that have an unfinished part: clocks that are wrong give any number of days."""


_RISING: Final = ("seq", "time")
"""Columns in which each number is a little more than the one before."""


class PartFile(NamedTuple):
    """A whole Parquet file: the day (as `2025-11-21`) of its events, how many, and its bytes."""

    day: str
    events: int
    content: bytes


class PartFiles:
    """Parts under way, with at most `HELD_BYTES` of events in plain form and `OPEN_DAYS` days."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._open: dict[str, _Open] = {}
        self._held = 0

    def add(self, day: str, events: pa.RecordBatch) -> Iterator[PartFile]:
        """Take events of a day; gives the parts that are full by that."""
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
        """Give all that is left."""
        for day in list(self._open):
            yield self._close(day)
        self._held = 0

    def _close(self, day: str) -> PartFile:
        return PartFile(day, *self._open.pop(day).close())


def to_parquet(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> bytes:
    """Write rows of `schema`, given as maps, to a Parquet file in memory."""
    sink = io.BytesIO()
    with _writer(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return sink.getvalue()


def _writer(sink: io.BytesIO, schema: pa.Schema) -> pq.ParquetWriter:
    rising = [name for name in _RISING if name in schema.names]
    others = [name for name in schema.names if name not in rising]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        store_schema=False,
        use_dictionary=others,
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    )


class _Open:
    """A part that is not whole yet."""

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
