"""What Spark's workers do with segments: Arrow batches of files in, rows of the tables out.

Runs in the workers, for `mapInArrow`. A file's row tells what its header says, or why it cannot be
read; the events of all files come as parts. Judges nothing: what is a duplicate is not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

from sync.ingest.arrow_columns import TAGS, TIME, arrow_columns, days_of, distinct
from sync.segment import SegmentError, digest_of
from sync.segment.limits import MAX_FILE
from sync.tables.part_files import PartFile, PartFiles

MAX_DAYS: Final = 32
"""Days (UTC) that the events of one segment may be spread over. A segment is sealed within minutes;
a clock that is set makes it two or three days. Each day is a file: this bounds how many."""

_FIRST_DAY: Final = date(1970, 1, 1)

_DROPPED: Final = pa.list_(
    pa.struct([("first_seq", pa.int64()), ("last_seq", pa.int64()), ("reason", pa.string())])
)

INSPECTED: Final = pa.schema(
    [
        ("path", pa.string()),
        ("arrived", TIME),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("lane", pa.string()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("digest", pa.string()),
        ("previous", pa.string()),
        ("boot", pa.string()),
        ("sealed_at", TIME),
        ("service_seconds", pa.float64()),
        ("clock", pa.bool_()),
        ("firmware", pa.string()),
        ("software", pa.string()),
        ("config_hash", pa.string()),
        ("disk_used", pa.int64()),
        ("dropped", _DROPPED),
    ]
)
"""A row for each file: `SEGMENTS` of the tables without `fate`."""

_FATE: Final = INSPECTED.get_field_index("reason")

JUDGED: Final = INSPECTED.insert(_FATE, pa.field("fate", pa.string()))
"""A row for each file, when it was judged: `SEGMENTS` of the tables."""

EXPLODED: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("lane", pa.string()),
        ("seq", pa.int64()),
        ("time", TIME),
        ("clock", pa.bool_()),
        ("kind", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("level", pa.string()),
        ("text", pa.string()),
        ("qos", pa.int8()),
        ("latency_ms", pa.int64()),
        ("tags", TAGS),
        ("arrived", TIME),
    ]
)
"""A row for each event: `EVENTS` of the tables."""


TAKEN: Final = pa.schema(
    [*INSPECTED, ("day", pa.string()), ("events", pa.int64()), ("content", pa.binary())]
)
"""A row for each file, in the columns of `INSPECTED`, or for each piece of a part, in what is left:
a part's pieces follow one another, and the last one tells the number of events."""

PIECE_BYTES: Final = 1024 * 1024
"""Bytes of a piece of a part: Spark pickles rows for the driver, and copies each five times."""


def decode_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read each file once and whole; gives rows of `TAKEN`.

    A file that cannot be read is a row with its reason. The events of all that can be read are in
    the parts, whatever the ledger says of them.
    """
    parts = PartFiles(EXPLODED)
    for batch in batches:
        rows = []
        for path, arrived, size, content in _files(batch):
            row, columns = _inspected(path, arrived, size, content)
            rows.append(row)
            if columns is not None:
                for day, events in _by_day(row, columns):
                    yield from _rows(parts.add(day, events))
        yield pa.RecordBatch.from_pylist(rows, schema=TAKEN)
    yield from _rows(parts.finish())


def _rows(parts: Iterable[PartFile]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for start in range(0, len(part.content), PIECE_BYTES):
            piece = part.content[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(part.content)
            row = {"day": part.day, "events": part.events if last else None, "content": piece}
            yield pa.RecordBatch.from_pylist([row], schema=TAKEN)


def _files(batch: pa.RecordBatch) -> Iterator[tuple[str, Any, int, bytes]]:
    columns = ("path", "modificationTime", "length", "content")
    yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def _inspected(
    path: str, arrived: Any, size: int, content: bytes
) -> tuple[dict[str, Any], dict[str, pa.Array] | None]:
    """Give the row of a file, and the columns of its events; None for those of a bad one."""
    row = {
        "path": path,
        "arrived": arrived,
        "size": size,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        told, columns = _read(content)
    except SegmentError as error:
        return row | {"reason": error.reason, "detail": error.text}, None
    return row | told, columns


def _read(content: bytes) -> tuple[dict[str, Any], dict[str, pa.Array] | None]:
    if len(content) > MAX_FILE:
        raise SegmentError("size", f"more than {MAX_FILE} bytes")
    header, columns = arrow_columns(content)
    days = distinct(days_of(columns["time"]))
    if len(days) > MAX_DAYS:
        text = f"events of {len(days)} days, more than {MAX_DAYS}"
        return {"reason": "days", "detail": text}, None
    told = {
        **{name: getattr(header, name) for name in _PLAIN},
        "sealed_at": header.sealed_at * 1000,
        "digest": digest_of(content).hex(),
        "previous": header.previous.hex(),
        "config_hash": header.config_hash.hex(),
        "dropped": [dropped._asdict() for dropped in header.dropped],
    }
    return told, columns


_PLAIN: Final = (
    "gateway",
    "epoch",
    "lane",
    "first_seq",
    "last_seq",
    "boot",
    "service_seconds",
    "clock",
    "firmware",
    "software",
    "disk_used",
)


def _by_day(
    row: Mapping[str, Any], columns: Mapping[str, pa.Array]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Give the events of a file as rows of `EXPLODED`, by their day in UTC."""
    days = days_of(columns["time"])
    events = _exploded(row, columns)
    found = distinct(days)
    for day in found:
        chosen = events if len(found) == 1 else events.filter(pa.array(days == day))
        yield (_FIRST_DAY + timedelta(days=int(day))).isoformat(), chosen


def _exploded(row: Mapping[str, Any], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    count = len(columns["seq"])
    given = {name: row[name] for name in ("gateway", "epoch", "lane", "arrived")}
    arrays = [
        pa.repeat(pa.scalar(given[field.name], field.type), count)
        if field.name in given
        else columns[field.name]
        for field in EXPLODED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EXPLODED)
