"""Collect events into Parquet files in memory, one for each day.

This runs in Spark's workers: a part file is sent to the driver as bytes, and the driver creates it.
No task writes to the tables, so tasks that are interrupted or repeated leave nothing behind.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

HELD_BYTES: Final = 64 * 1024 * 1024
"""Uncompressed bytes of held events (some 400,000 readings, of all days) at which they become part
files. The part files are smaller: the driver must hold those of one task in memory."""

_INCREASING: Final = ("seq", "time")
"""Columns whose numbers increase in small steps, and which are therefore delta-encoded."""


class PartFile(NamedTuple):
    """A Parquet file: the day (as `2025-11-21`) of its events, their number, and its bytes."""

    day: str
    events: int
    content: bytes


class PartFiles:
    """The part files, one a day, of events that are held until they fill `HELD_BYTES`."""

    def __init__(self) -> None:
        self._held: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes = 0

    def add(self, day: str, events: pa.RecordBatch) -> Iterator[PartFile]:
        """Add a day's events; when `HELD_BYTES` are held in all, yield a part file for each day."""
        self._held[day].append(events)
        self._bytes += events.nbytes
        if self._bytes >= HELD_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[PartFile]:
        """Yield a part file for each day that has events."""
        for day in list(self._held):
            events = pa.Table.from_batches(self._held.pop(day))
            yield PartFile(day, events.num_rows, to_parquet(events))
        self._bytes = 0


def to_parquet(rows: pa.Table) -> bytes:
    """Encode a table as a Parquet file."""
    increasing = [name for name in _INCREASING if name in rows.column_names]
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=3,
        store_schema=False,
        use_dictionary=[name for name in rows.column_names if name not in increasing],
        column_encoding=dict.fromkeys(increasing, "DELTA_BINARY_PACKED"),
    )
    return sink.getvalue()
