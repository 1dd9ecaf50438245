"""Read the columns of a segment as Arrow arrays.

Columns of numbers without gaps, in the form that our encoder writes, are read as arrays, many times
as fast as row by row. All others, including invalid ones, are left to the readers of
`sync.segment`, which report errors. So both modules accept the same segments and read the same
rows, except for segments with more than `MAX_TEXT` bytes of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from cbor2 import CBORTag

from sync.segment import SegmentError, SegmentHeader, decode_columns
from sync.segment.decode import READERS
from sync.segment.limits import MAX_DECIMALS, MAX_TIME, MIN_TIME
from sync.segment.typed_arrays import CODES, FLOATS, INTEGERS
from sync.tables.arrow_schemas import TAGS, TIME

MAX_TEXT: Final = 32 * 1024 * 1024
"""Maximum bytes of text in all rows of a column, or in all tags, to limit a worker's memory: a
segment can store a long text once for 65,536 rows. A segment with more is refused. A gateway seals
a segment at 4 MiB of characters."""

_ALWAYS_FITS: Final = MAX_TEXT // 4
"""Number of characters that never need more than `MAX_TEXT` bytes."""

_EXACT: Final = 2**53
"""Integers up to here are exact as floats, so that dividing them rounds only once."""


def arrow_columns(data: bytes) -> tuple[SegmentHeader, dict[str, pa.Array]]:
    """Read a segment; return its header, and a dict with an Arrow array for each field of `Event`.

    Raises `SegmentError`, as `sync.segment.decode` does.
    """
    header, columns = decode_columns(data, _READERS)
    numbers = np.arange(header.count) + header.first_seq  # a range up to 2**63 would be floats
    return header, {**columns, "seq": pa.array(numbers)}


def _numbers(item: Any, tags: Sequence[int], count: int) -> np.ndarray[Any, Any] | None:
    """Read a typed array with one of `tags` and `count` numbers; return None for anything else."""
    if type(item) is not CBORTag or item.tag not in tags or type(item.value) is not bytes:
        return None
    kind = np.dtype(f"<{CODES[item.tag]}")
    if len(item.value) != count * kind.itemsize:
        return None
    return np.frombuffer(item.value, kind)


def _within(numbers: np.ndarray[Any, Any], least: int, most: int) -> bool:
    return not len(numbers) or least <= int(numbers.min()) <= int(numbers.max()) <= most


def _times(item: Any, rows: int) -> pa.Array:
    if type(item) is dict and item.keys() == {"start", "steps"} and type(item["start"]) is int:
        steps, start = _numbers(item["steps"], INTEGERS, rows - 1), item["start"]
        if steps is not None and MIN_TIME <= start <= MAX_TIME:
            steps = steps.astype(np.int64)
            if _within(steps, -(_EXACT // rows), _EXACT // rows):
                times = np.concatenate(([0], np.cumsum(steps))) + start
                if _within(times, MIN_TIME, MAX_TIME):
                    return pa.array(times * 1_000).view(TIME)
    times_ms = READERS["time"](item, rows)
    return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(TIME)


def _values(item: Any, rows: int) -> pa.Array:
    found = _floats(item, rows) if type(item) is dict else None
    return pa.array(READERS["value"](item, rows) if found is None else found, pa.float64())


def _floats(item: dict[str, Any], rows: int) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if item.keys() == {"floats"}:
        floats = _numbers(item["floats"], FLOATS, rows)
        return None if floats is None or not np.isfinite(floats).all() else floats.astype("f8")
    if item.keys() != {"ints", "decimals"}:
        return None
    ints, decimals = _numbers(item["ints"], INTEGERS, rows), item["decimals"]
    if type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS:
        return None
    if ints is None or not _within(ints, -_EXACT, _EXACT):
        return None
    return ints.astype(np.float64) / 10.0**decimals


def _integers(
    name: str, kind: pa.DataType, least: int, most: int
) -> Callable[[Any, int], pa.Array]:

    def read(item: Any, rows: int) -> pa.Array:
        if type(item) is dict and item.keys() == {"ints"}:
            numbers = _numbers(item["ints"], INTEGERS, rows)
            if numbers is not None and _within(numbers, least, most):
                return pa.array(numbers.astype(kind.to_pandas_dtype()))
        return pa.array(READERS[name](item, rows), kind)

    return read


def _flags(item: Any, rows: int) -> pa.Array:
    return pa.array(READERS["clock"](item, rows), pa.bool_())


def _texts(name: str) -> Callable[[Any, int], pa.Array]:

    def read(item: Any, rows: int) -> pa.Array:
        texts = READERS[name](item, rows)
        # No row has more text than the whole column.
        if item is not None and len(item["text"]) * rows > _ALWAYS_FITS:
            _require_small([text for text in texts if text])
        return pa.array(texts, pa.string())

    return read


def _tags(item: Any, rows: int) -> pa.Array:
    if item is None:
        return _no_tags(rows)
    pairs = [list(tags.items()) for tags in READERS["tags"](item, rows)]
    _require_small([text for row in pairs for pair in row for text in pair])
    return pa.array(pairs, TAGS)


@lru_cache(maxsize=64)
def _no_tags(rows: int) -> pa.Array:
    return pa.repeat(pa.scalar([], TAGS), rows)


def _require_small(texts: Sequence[str]) -> None:
    """Raise SegmentError if the texts are too long together, before an array of them is created."""
    size = sum(map(len, texts))
    if _ALWAYS_FITS < size <= MAX_TEXT:
        size = sum(len(text.encode()) for text in texts)
    if size > MAX_TEXT:
        raise SegmentError("column", f"more than {MAX_TEXT} bytes of text in all rows")


_READERS: Final[dict[str, Callable[[Any, int], pa.Array]]] = {
    "time": _times,
    "clock": _flags,
    **{name: _texts(name) for name in ("kind", "source", "topic", "name")},
    "value": _values,
    **{name: _texts(name) for name in ("unit", "level", "text")},
    "qos": _integers("qos", pa.int8(), 0, 2),
    "latency_ms": _integers("latency_ms", pa.int64(), -(2**53), 2**53),
    "tags": _tags,
}
