"""Create the data files of the tables, and the actions that add them, with their statistics.

Spark's workers create the files of events. What an interrupted or repeated task leaves is in no
table's log, and maintenance removes it.
"""

from __future__ import annotations

import io
import json
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from sync.storage.storage import Storage
from sync.tables import arrow_schemas
from sync.tables.delta import DAY, EVENTS, SEGMENTS

HELD_BYTES: Final = 64 * 1024 * 1024
"""Uncompressed bytes of held events (some 400,000 readings, of all days) at which they become data
files. The memory of a worker holds a few times as much."""

PREFIX: Final = 32
"""Characters to which the lowest and the highest text of a column are cut in the Delta log, which
has both for each file: enough for a query to skip files."""

_INCREASING: Final = ("seq", "time")
"""Columns whose numbers increase in small steps, and which are therefore delta-encoded."""

_LAST: Final = "\U0010ffff"
_HIGHEST: Final = _LAST * 2 * PREFIX
"""The upper bound of a column without a better one: no name that is in use is greater."""

_MS: Final = timedelta(milliseconds=1)


class EventFiles:
    """Data files, one a day, of events that are held until they fill `HELD_BYTES`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._token = secrets.token_hex(8)
        self._count = 0
        self._held: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes = 0

    def add(self, day: str, events: pa.RecordBatch) -> list[AddAction]:
        """Add events of a day (`2025-11-21`); return the actions of files that are now created.

        When `HELD_BYTES` are held in all, a file is created for each day, durably.
        """
        self._held[day].append(events)
        self._bytes += events.nbytes
        return self.finish() if self._bytes >= HELD_BYTES else []

    def finish(self) -> list[AddAction]:
        """Create a file for each day that has events; return the actions that add them."""
        held, self._held, self._bytes = self._held, defaultdict(list), 0
        return [self._create(day, pa.Table.from_batches(found)) for day, found in held.items()]

    def _create(self, day: str, events: pa.Table) -> AddAction:
        path = f"{DAY}={day}/{self._token}-{self._count:05}.parquet"
        self._count += 1
        content = to_parquet(events)
        self._storage.create(f"{EVENTS}/{path}", content)
        return add_action(path, content, day)


def create_segments_file(storage: Storage, rows: Iterable[Mapping[str, Any]]) -> AddAction:
    """Create a data file with rows of `SEGMENTS`, durably; return the action that adds it."""
    table = pa.Table.from_pylist(sorted(rows, key=_by_lane), arrow_schemas.SEGMENTS)
    content = to_parquet(table)
    path = f"{secrets.token_hex(8)}.parquet"
    storage.create(f"{SEGMENTS}/{path}", content)
    return add_action(path, content)


def add_action(path: str, content: bytes, day: str | None = None) -> AddAction:
    """Return the action that adds the file `path` (below the table), in the partition `day`."""
    return AddAction(
        path=path,
        size=len(content),
        partition_values={} if day is None else {DAY: day},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(_statistics(pq.read_metadata(io.BytesIO(content))), ensure_ascii=False),
    )


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


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Combine the statistics of the row groups.

    Write them to JSON with characters as they are: delta-rs reads an escaped pair of surrogates as
    another character.

    All columns that can have bounds get some. If only some columns had bounds, delta-rs would treat
    the others as empty, and filters of pyarrow and pandas would find no rows.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        found = [group.column(at).statistics for group in groups]
        if "." in name or not all(found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        valued = [each for each in found if each.num_values]
        bounded = all(each.has_min_max for each in valued)
        if valued and (bounded or found[0].physical_type == "BYTE_ARRAY"):
            lowest[name] = _lower(min(each.min for each in valued) if bounded else "")
            highest[name] = _upper(max(each.max for each in valued) if bounded else _HIGHEST)
    return {
        "numRecords": metadata.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


def _lower(value: Any) -> Any:
    """Return a lower bound for JSON: a text cut to `PREFIX` characters, a time to milliseconds."""
    if isinstance(value, str):
        return value[:PREFIX]
    return _text(value) if isinstance(value, datetime) else value


def _upper(value: Any) -> Any:
    """Return an upper bound for JSON, not less than `value`; a longer text is cut to `PREFIX`."""
    if isinstance(value, str):
        if len(value) <= PREFIX:
            return value
        cut = value[:PREFIX].rstrip(_LAST)
        return cut[:-1] + _next(cut[-1]) if cut else _HIGHEST
    if isinstance(value, datetime):
        return _text(value + _MS if value.microsecond % 1000 else value)
    return value


def _next(character: str) -> str:
    """Return the next character; the code points of surrogates, which no text has, are skipped."""
    return "\ue000" if character == "\ud7ff" else chr(ord(character) + 1)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _by_lane(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return (row["gateway"] or "", row["epoch"] or "", row["lane"] or "", row["first_seq"] or 0)
