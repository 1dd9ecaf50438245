"""Create the data files of the tables, and the actions that add them, with their statistics."""

from __future__ import annotations

import io
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from sync.tables import arrow_schemas
from sync.tables.delta import DAY, EVENTS, SEGMENTS
from sync.tables.part_files import PartFile, to_parquet
from sync.tables.storage import Storage

PREFIX: Final = 32
"""Characters to which the lowest and the highest text of a column are cut in the Delta log, which
has both for each file: enough for a query to skip files."""

_LAST: Final = "\U0010ffff"
_HIGHEST: Final = _LAST * 2 * PREFIX
"""The upper bound of a column without a better one: no name that is in use is greater."""

_MS: Final = timedelta(milliseconds=1)


def create_event_files(storage: Storage, parts: Iterable[PartFile]) -> list[AddAction]:
    """Create a data file from each part file, durably; return the actions that add them."""
    token = secrets.token_hex(8)
    actions = []
    for number, part in enumerate(parts):
        path = f"{DAY}={part.day}/{token}-{number:05}.parquet"
        storage.create(f"{EVENTS}/{path}", part.content)
        actions.append(add_action(path, part.content, part.day))
    return actions


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
