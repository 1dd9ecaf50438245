"""Columns of numbers: times as steps, integers as they are, values as decimals where that is exact.

A value such as 21.53 is written as the integer 2153 and "two decimals": a fraction of a float's
size. Each is tried by the reader's own arithmetic first, so that what is read is what was written,
to the bit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from math import isfinite
from operator import sub
from typing import Any, Final

from sync.segment.absent import fields, presence, split, spread
from sync.segment.errors import SegmentError
from sync.segment.limits import MAX_DECIMALS, MAX_TIME, MIN_TIME
from sync.segment.typed_arrays import (
    DOUBLE,
    FLOATS,
    INTEGERS,
    SINGLE,
    pack_array,
    pack_integers,
    smallest,
    unpack_array,
)

_SAMPLES: Final = 16  # values looked at before all are tried
_NARROW: Final = 10**9  # integers of decimals stay below, so that 32 bits hold them


def pack_times(times: Sequence[int]) -> dict[str, Any]:
    """Write one or more times: the first, and the signed step to each that follows.

    Raises `ValueError` for a time before the year 1 or after the year 9999.
    """
    if min(times) < MIN_TIME or max(times) > MAX_TIME:
        raise ValueError("a time is outside the years 1 to 9999")
    return {"start": times[0], "steps": pack_integers(list(map(sub, times[1:], times)))}


def unpack_times(item: Any, rows: int) -> list[int]:
    """Read a column of `rows` times.

    Raises `SegmentError` with the reason `column`.
    """
    column = fields(item, ("start", "steps"))
    start = column.get("start")
    if type(start) is not int or "present" in column:
        raise SegmentError("column", "no start, or rows without a time")
    times = list(accumulate(unpack_array(column.get("steps"), INTEGERS, rows - 1), initial=start))
    if min(times) < MIN_TIME or max(times) > MAX_TIME:
        raise SegmentError("column", "a time outside the years 1 to 9999")
    return times


def pack_numbers(rows: Sequence[int | None]) -> dict[str, Any] | None:
    """Write a column of integers; None if no row has one.

    Raises `ValueError` for one that 64 bits do not hold.
    """
    column, values = split(rows)
    return {**column, "ints": pack_integers(values)} if values else None


def unpack_numbers(item: Any, rows: int, least: int, most: int) -> list[int | None]:
    """Read a column of `rows` rows of integers from `least` to `most`.

    Raises `SegmentError` with the reason `column`.
    """
    column = fields(item, ("ints",))
    present = presence(column, rows)
    values = unpack_array(column.get("ints"), INTEGERS, present.count("1"))
    if values and (min(values) < least or max(values) > most):
        raise SegmentError("column", "a number out of its range")
    return spread(values, present)


def pack_values(rows: Sequence[float | None]) -> dict[str, Any] | None:
    """Write a column of floats; None if no row has one.

    Raises `ValueError` for one that is not finite.
    """
    column, values = split(rows)
    if not values:
        return None
    if not all(map(isfinite, values)):
        raise ValueError("a value is not a finite number")
    exact = struct.pack(f"<{len(values)}d", *values)
    return {**column, **(_as_decimals(values, exact) or _as_floats(values, exact))}


def _as_decimals(values: Sequence[float], exact: bytes) -> dict[str, Any] | None:
    """Write values as integers with a number of decimals, if that is exact and narrow."""
    largest = max(map(abs, values))
    sample = values[:: max(1, len(values) // _SAMPLES)]
    for decimals in range(MAX_DECIMALS + 1):
        power = 10**decimals
        if largest * power >= _NARROW:
            return None
        if any(round(value * power) / power != value for value in sample):
            continue
        if not decimals:
            ints = list(map(int, values))
            again = list(map(float, ints))
        else:
            ints = [round(value * power) for value in values]
            again = [number / power for number in ints]
        if struct.pack(f"<{len(ints)}d", *again) == exact:
            return {"decimals": decimals, "ints": pack_array(smallest(ints), ints)}
    return None


def _as_floats(values: Sequence[float], exact: bytes) -> dict[str, Any]:
    """Write values as 32-bit floats if that loses nothing, else as 64-bit ones."""
    try:
        single = struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return {"floats": pack_array(DOUBLE, values)}
    again = struct.unpack(f"<{len(values)}f", single)
    if struct.pack(f"<{len(values)}d", *again) == exact:
        return {"floats": pack_array(SINGLE, values)}
    return {"floats": pack_array(DOUBLE, values)}


def unpack_values(item: Any, rows: int) -> list[float | None]:
    """Read a column of `rows` rows of floats.

    Raises `SegmentError` with the reason `column`.
    """
    column = fields(item, ("ints", "decimals", "floats"))
    present = presence(column, rows)
    count = present.count("1")
    if "floats" in column:
        floats = unpack_array(column["floats"], FLOATS, count)
        if not all(map(isfinite, floats)):
            raise SegmentError("column", "a value that is not a finite number")
        return spread(floats, present)
    decimals = column.get("decimals")
    if type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS:
        raise SegmentError("column", "neither floats nor decimals")
    power = 10**decimals
    ints = unpack_array(column.get("ints"), INTEGERS, count)
    return spread([number / power for number in ints], present)
