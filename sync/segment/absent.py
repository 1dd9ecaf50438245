"""What every column shares: a map of few keys, and rows without a value told by a bitmap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, TypeVar, cast

from sync.segment.errors import SegmentError
from sync.segment.typed_arrays import pack_bits, unpack_bits

Value = TypeVar("Value", str, int, float)


def split(rows: Sequence[Value | None]) -> tuple[dict[str, Any], Sequence[Value]]:
    """Part rows into a column's beginning (the bitmap, where some are absent) and the values.

    Without any value there is no column, and so no bitmap.
    """
    absent = rows.count(None)  # mostly none or all: then no row is looked at
    if not absent:
        return {}, cast("Sequence[Value]", rows)
    if absent == len(rows):
        return {}, ()
    present = [row is not None for row in rows]
    values = cast("list[Value]", list(compress(rows, present)))
    return {"present": pack_bits(present)}, values


def fields(column: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return the column's map, which may have `present` and the `allowed` keys alone.

    Raises `SegmentError` with the reason `column`.
    """
    if not isinstance(column, dict):
        raise SegmentError("column", "not a map")
    if not column.keys() <= {"present", *allowed}:
        raise SegmentError("column", "a key that no column of its kind has")
    return column


def presence(column: dict[str, Any], rows: int) -> str:
    """Return for each row 1 or 0, whether it has a value.

    Raises `SegmentError` with the reason `column`.
    """
    if "present" not in column:
        return "1" * rows
    return unpack_bits(column["present"], rows)


def spread(values: Sequence[Value], present: str) -> list[Value | None]:
    """Put the values, as many as there are ones in `present`, back into their rows."""
    if len(values) == len(present):
        return list(values)
    coming = iter(values)
    return [next(coming) if digit == "1" else None for digit in present]
