"""What Spark's workers do with segments: Arrow batches of files in, rows of the tables out.

Runs in the workers, for `mapInArrow`. Judges nothing: a segment that cannot be read becomes a row
that says why, and what is a duplicate is not known here.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sync.format import SegmentError, decode_columns, digest_of
from sync.format.limits import MAX_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_DAYS: Final = 32
"""Days (UTC) that the events of one segment may be spread over. A segment is sealed within minutes;
a clock that is set makes it two or three days. Each day is a file: this bounds how many."""

_DAY_MS: Final = 86_400_000

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

_TIME: Final = pa.timestamp("us", tz="UTC")  # the one unit that Spark takes from Arrow

_DROPPED: Final = pa.list_(
    pa.struct([("first_seq", pa.int64()), ("last_seq", pa.int64()), ("reason", pa.string())])
)

INSPECTED: Final = pa.schema(
    [
        ("path", pa.string()),
        ("arrived", _TIME),
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
        ("sealed_at", _TIME),
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

EXPLODED: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("lane", pa.string()),
        ("seq", pa.int64()),
        ("time", _TIME),
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
        ("tags", pa.map_(pa.string(), pa.string())),
        ("arrived", _TIME),
    ]
)
"""A row for each event: `EVENTS` of the tables."""


def inspect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read each file whole and give a row of `INSPECTED` for it, with its reason if it is bad."""
    for batch in batches:
        rows = [_inspected(*file) for file in _files(batch)]
        yield pa.RecordBatch.from_pylist(rows, schema=INSPECTED)


def explode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the events of each file as rows of `EXPLODED`.

    The files were inspected before. Raises SegmentError for one that has become bad since.
    """
    for batch in batches:
        for _, arrived, _, content in _files(batch):
            yield _exploded(arrived, content)


def _files(batch: pa.RecordBatch) -> Iterator[tuple[str, Any, int, bytes]]:
    columns = ("path", "modificationTime", "length", "content")
    yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


def _inspected(path: str, arrived: Any, size: int, content: bytes) -> dict[str, Any]:
    row = {
        "path": path,
        "arrived": arrived,
        "size": size,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        return row | _read(content)
    except SegmentError as error:
        return row | {"reason": error.reason, "detail": error.text}


def _read(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_FILE:
        raise SegmentError("size", f"more than {MAX_FILE} bytes")
    header, columns = decode_columns(content)
    days = {time // _DAY_MS for time in columns["time"]}
    if len(days) > MAX_DAYS:
        return {"reason": "days", "detail": f"events of {len(days)} days, more than {MAX_DAYS}"}
    return {
        **{name: getattr(header, name) for name in _PLAIN},
        "sealed_at": header.sealed_at * 1000,
        "digest": digest_of(content).hex(),
        "previous": header.previous.hex(),
        "config_hash": header.config_hash.hex(),
        "dropped": [dropped._asdict() for dropped in header.dropped],
    }


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


def _exploded(arrived: Any, content: bytes) -> pa.RecordBatch:
    header, columns = decode_columns(content)
    rows = header.count
    columns["tags"] = [list(tags.items()) for tags in columns["tags"]]
    columns["time"] = pa.array(columns["time"], _MILLISECONDS).cast(_TIME)
    for name in ("gateway", "epoch", "lane"):
        columns[name] = pa.repeat(pa.scalar(getattr(header, name)), rows)
    columns["arrived"] = pa.repeat(pa.scalar(arrived, _TIME), rows)
    return pa.RecordBatch.from_arrays(
        [_array(columns[field.name], field.type) for field in EXPLODED], schema=EXPLODED
    )


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
