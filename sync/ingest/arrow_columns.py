"""Read the columns of a segment as Arrow arrays, many times as fast as row by row.

Only columns in the form that our encoder writes are read here. All others, including invalid ones,
are left to the readers of `sync.segment`, which report errors. So both modules accept the same
segments and read the same rows, except for segments with more than `MAX_TEXT` bytes of text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cbor2 import CBORTag

from sync.segment import SegmentError, SegmentHeader, decode_columns
from sync.segment.columns import read_entries
from sync.segment.decode import READERS
from sync.segment.limits import MAX_DECIMALS, MAX_TAG_COLUMNS, MAX_TAGS, MAX_TIME, MIN_TIME
from sync.segment.typed_arrays import FLOATS, INTEGERS, UNSIGNED
from sync.tables.arrow_schemas import TAGS, TIME

MAX_TEXT: Final = 32 * 1024 * 1024
"""Most bytes of text in all rows of a column, or in all tags, to limit a worker's memory: a segment
can contain a long text once for 65,536 rows. A segment with more is refused. A gateway seals at
4 MiB of characters."""

_ALWAYS_FITS: Final = MAX_TEXT // 4
"""Characters that never need more bytes than `MAX_TEXT`."""

_DTYPES: Final = {
    64: "<u1", 69: "<u2", 70: "<u4", 72: "<i1", 77: "<i2", 78: "<i4", 79: "<i8",
    85: "<f4", 86: "<f8",
}  # fmt: skip

_EXACT: Final = 2**53
"""Integers up to here are exact as floats, so that dividing them rounds only once."""

_US: Final = 1_000


def arrow_columns(data: bytes) -> tuple[SegmentHeader, dict[str, pa.Array]]:
    """Read a segment; return its header, and a dict with an Arrow array for each field of `Event`.

    Raises `SegmentError`, as `sync.segment.decode` does.
    """
    header, columns = decode_columns(data, _READERS)
    numbers = np.arange(header.count) + header.first_seq  # a range up to 2**63 would be floats
    return header, {**columns, "seq": pa.array(numbers)}


def days_of(times: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the day of each time, in days since 1970 (UTC)."""
    micros = times.view(pa.int64()).to_numpy()
    return np.asarray(micros // (86_400_000 * _US), dtype=np.int64)


def distinct(days: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each of `days` once, in order. `days` is not empty; mostly all are equal."""
    return days[:1] if days.min() == days.max() else np.unique(days)


@lru_cache(maxsize=256)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)


def _repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _numbers(item: Any, tags: Sequence[int], count: int) -> np.ndarray[Any, Any] | None:
    """Read a typed array with one of `tags` and `count` numbers; return None for anything else."""
    if type(item) is not CBORTag or item.tag not in tags or type(item.value) is not bytes:
        return None
    kind = np.dtype(_DTYPES[item.tag])
    if len(item.value) != count * kind.itemsize:
        return None
    return np.frombuffer(item.value, kind)


def _bits(item: Any, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Read a bitmap of `rows` bits; return None for anything else."""
    if type(item) is not bytes or len(item) != (rows + 7) // 8:
        return None
    bits = np.unpackbits(np.frombuffer(item, np.uint8)).astype(bool)
    return None if bits[rows:].any() else bits[:rows]


def _present(column: dict[str, Any], rows: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return which rows have a value; None if the bitmap is invalid."""
    return _bits(column["present"], rows) if "present" in column else _all(rows)


@lru_cache(maxsize=256)
def _all(rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    every = np.ones(rows, bool)
    every.flags.writeable = False
    return every


def _distributed(values: pa.Array, present: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    """Return a value for each row: the next of `values` if the row is `present`, else null."""
    if len(values) == len(present):
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _times(item: Any, rows: int) -> pa.Array:
    if type(item) is dict and item.keys() == {"start", "steps"} and type(item["start"]) is int:
        steps, start = _numbers(item["steps"], INTEGERS, rows - 1), item["start"]
        if steps is not None and MIN_TIME <= start <= MAX_TIME:
            steps = steps.astype(np.int64)
            if not len(steps) or -_EXACT // rows < steps.min() <= steps.max() < _EXACT // rows:
                times = np.concatenate(([0], np.cumsum(steps))) + start
                if times.min() >= MIN_TIME and times.max() <= MAX_TIME:
                    return pa.array(times * _US).view(TIME)
    times_ms = READERS["time"](item, rows)
    return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(TIME)


def _flags(item: Any, rows: int) -> pa.Array:
    if item is True or item is False:
        return _repeated(item, pa.bool_(), rows)
    bits = _bits(item, rows)
    return pa.array(READERS["clock"](item, rows) if bits is None else bits, pa.bool_())


def _kinds(item: Any, rows: int) -> pa.Array:
    found = _strings(item, rows)
    if found is None or found.null_count:
        return _texts_from_rows(READERS["kind"](item, rows))
    return found


def _texts(item: Any, rows: int) -> pa.Array:
    if item is None:
        return _nulls(pa.string(), rows)
    found = _strings(item, rows)
    return _texts_from_rows(READERS["text"](item, rows)) if found is None else found


def _texts_from_rows(texts: Sequence[str | None]) -> pa.Array:
    _require_small_texts([text for text in texts if text])
    return pa.array(texts, pa.string())


def _require_small_texts(texts: Sequence[str]) -> None:
    characters = sum(map(len, texts))
    _require_small(characters)  # many references to one long text are too long to encode
    if characters > _ALWAYS_FITS:
        _require_small(sum(len(text.encode()) for text in texts))


def _require_small(size: int) -> None:
    """Raise SegmentError for too much text, before an array with it is created."""
    if size > MAX_TEXT:
        raise SegmentError("column", f"more than {MAX_TEXT} bytes of text in all rows")


def _strings(item: Any, rows: int) -> pa.Array | None:
    """Read a column of strings; None if our encoder would write it otherwise."""
    if type(item) is not dict or not item.keys() <= _TEXT_KEYS:
        return None
    present = _present(item, rows)
    if present is None:
        return None
    count = int(np.count_nonzero(present))
    if item.keys() <= {"present", "text"} and type(item.get("text")) is str:
        _require_small(len(item["text"].encode()) * count)
        return _distributed(_repeated(item["text"], pa.string(), count), present)
    texts = read_entries(item, count)
    entries = pa.array(texts, pa.string())
    if "index" in item:
        index = _numbers(item["index"], UNSIGNED, count)
        if index is None or int(index.max(initial=0)) >= len(texts):
            return None
        if max(map(len, texts), default=0) * count > _ALWAYS_FITS:
            _require_small(int(pc.binary_length(entries).to_numpy()[index].sum()))
        return _indexed(entries, index, present)
    if len(entries) != count:
        return None
    _require_small_texts(texts)
    return _distributed(entries, present)


def _indexed(
    entries: pa.Array,
    index: np.ndarray[Any, Any],
    present: np.ndarray[Any, np.dtype[np.bool_]],
) -> pa.Array:
    """Return the entry that `index` names for each present row, and null for the others."""
    if len(index) == len(present):
        return entries.take(pa.array(index))
    places = np.zeros(len(present), index.dtype)
    places[present] = index
    return entries.take(pa.array(places, mask=~present))


_TEXT_KEYS: Final = frozenset({"present", "text", "width", "lengths", "index"})


def _values(item: Any, rows: int) -> pa.Array:
    if item is None:
        return _nulls(pa.float64(), rows)
    if type(item) is dict:
        present = _present(item, rows)
        numbers = None if present is None else _floats(item, int(present.sum()))
        if present is not None and numbers is not None:
            return _distributed(pa.array(numbers), present)
    return pa.array(READERS["value"](item, rows), pa.float64())


def _floats(item: dict[str, Any], count: int) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    keys = item.keys() - {"present"}
    if keys == {"floats"}:
        floats = _numbers(item["floats"], FLOATS, count)
        return floats.astype(np.float64) if floats is not None and _finite(floats) else None
    decimals = item.get("decimals")
    if keys != {"ints", "decimals"} or type(decimals) is not int:
        return None
    ints = _numbers(item["ints"], INTEGERS, count)
    if ints is None or not 0 <= decimals <= MAX_DECIMALS or not _within(ints, -_EXACT, _EXACT):
        return None
    return ints.astype(np.float64) / 10.0**decimals


def _finite(numbers: np.ndarray[Any, Any]) -> bool:
    return bool(np.isfinite(numbers).all())


def _within(numbers: np.ndarray[Any, Any], least: int, most: int) -> bool:
    return not len(numbers) or least <= int(numbers.min()) <= int(numbers.max()) <= most


def _integers(name: str, kind: pa.DataType, most: int) -> Callable[[Any, int], pa.Array]:
    """Return the reader of a column of integers up to `most`, from 0 (int8) or from -`most`."""
    least = 0 if kind == pa.int8() else -most

    def read(item: Any, rows: int) -> pa.Array:
        if item is None:
            return _nulls(kind, rows)
        if type(item) is dict and item.keys() <= {"present", "ints"}:
            present = _present(item, rows)
            if present is not None:
                numbers = _numbers(item.get("ints"), INTEGERS, int(present.sum()))
                if numbers is not None and _within(numbers, least, most):
                    return _distributed(pa.array(numbers.astype(kind.to_pandas_dtype())), present)
        return pa.array(READERS[name](item, rows), kind)

    return read


def _tags(item: Any, rows: int) -> pa.Array:
    if item is None:
        return _no_tags(rows)
    if type(item) is dict and item.keys() == {"columns"} and type(item["columns"]) is dict:
        keys = list(item["columns"])
        if 0 < len(keys) <= MAX_TAG_COLUMNS:
            columns = _tag_columns(item["columns"], rows)
            if len(columns) == len(keys):
                return _map(keys, columns, rows)
    return _tags_from_rows(READERS["tags"](item, rows))


def _tag_columns(items: Mapping[str, Any], rows: int) -> list[pa.Array]:
    """Read columns of tags, up to the first that our encoder would write otherwise."""
    columns: list[pa.Array] = []
    total = size = 0
    for key, item in items.items():
        column = _strings(item, rows)
        if column is None:
            break
        count = rows - column.null_count
        total += count
        if total > MAX_TAGS:
            break
        size += len(key.encode()) * count + (pc.sum(pc.binary_length(column)).as_py() or 0)
        _require_small(size)
        columns.append(column)
    return columns


def _tags_from_rows(tags: Sequence[Mapping[str, str]]) -> pa.Array:
    pairs = [list(each.items()) for each in tags]
    _require_small_texts([text for row in pairs for pair in row for text in pair])
    return pa.array(pairs, TAGS)


@lru_cache(maxsize=64)
def _no_tags(rows: int) -> pa.Array:
    return _repeated([], TAGS, rows)


def _map(keys: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    """Combine the columns of all keys into maps: each row has the keys that are present."""
    valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    present = np.column_stack(valid)
    row, key = np.nonzero(present)
    offsets = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int32)
    values = pa.concat_arrays(columns).take(pa.array(key * rows + row))
    return pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(keys, pa.string()).take(pa.array(key)), values
    )


_READERS: Final[dict[str, Callable[[Any, int], pa.Array]]] = {
    "time": _times,
    "clock": _flags,
    "kind": _kinds,
    "source": _texts,
    "topic": _texts,
    "name": _texts,
    "value": _values,
    "unit": _texts,
    "level": _texts,
    "text": _texts,
    "qos": _integers("qos", pa.int8(), 2),
    "latency_ms": _integers("latency_ms", pa.int64(), 2**53),
    "tags": _tags,
}
