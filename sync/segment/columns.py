"""The columns of a segment's body: times, numbers, values, strings and tags.

Each column is a CBOR map. In its bitmap `present`, the bit of a row without a value is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, compress
from math import isfinite
from operator import sub
from typing import Any, Final, TypeVar, cast

from sync.segment.errors import SegmentError
from sync.segment.limits import MAX_DECIMALS, MAX_TAG_COLUMNS, MAX_TAGS, MAX_TIME, MIN_TIME
from sync.segment.typed_arrays import (
    DOUBLE,
    FLOATS,
    INTEGERS,
    SINGLE,
    UNSIGNED,
    pack_array,
    pack_bits,
    pack_integers,
    smallest_type,
    unpack_array,
    unpack_bits,
)

Value = TypeVar("Value", str, int, float)


def split_absent(rows: Sequence[Value | None]) -> tuple[dict[str, Any], Sequence[Value]]:
    """Return a column that has only the bitmap `present`, and the rows that are not None.

    The bitmap is omitted, so that the column is empty, if no row or every row is None.
    """
    absent = rows.count(None)  # usually none or all, which needs no bitmap
    if not absent:
        return {}, cast("Sequence[Value]", rows)
    if absent == len(rows):
        return {}, ()
    present = [row is not None for row in rows]
    values = cast("list[Value]", list(compress(rows, present)))
    return {"present": pack_bits(present)}, values


def column_fields(column: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Check that a column is a map whose keys are `present` or in `allowed`, and return it.

    Raises `SegmentError` with the reason `column`.
    """
    if not isinstance(column, dict):
        raise SegmentError("column", "the column is not a map")
    if not column.keys() <= {"present", *allowed}:
        raise SegmentError("column", "the column has an unknown key")
    return column


def unpack_presence(column: dict[str, Any], rows: int) -> str:
    """Return a string of digits, one for each row: 1 if it has a value, else 0.

    Raises `SegmentError` with the reason `column`.
    """
    if "present" not in column:
        return "1" * rows
    return unpack_bits(column["present"], rows)


def spread(values: Sequence[Value], present: str) -> list[Value | None]:
    """Return one item for each row: the next value where `present` is 1, else None."""
    if len(values) == len(present):
        return list(values)
    remaining = iter(values)
    return [next(remaining) if digit == "1" else None for digit in present]


# Values such as 21.53 are stored as the integer 2153 with two decimals, in a fraction of a float's
# size. The encoder checks with the decoder's own arithmetic that every bit is restored.
_SAMPLES: Final = 16  # values tried before all are
_MAX_INTEGER: Final = 10**9  # integers of decimals stay below, to fit 32 bits


def pack_times(times: Sequence[int]) -> dict[str, Any]:
    """Encode one or more times as the first time and the differences between successive times.

    Raises `ValueError` for a time before the year 1 or after the year 9999.
    """
    if min(times) < MIN_TIME or max(times) > MAX_TIME:
        raise ValueError("a time is outside the years 1 to 9999")
    return {"start": times[0], "steps": pack_integers(list(map(sub, times[1:], times)))}


def unpack_times(item: Any, rows: int) -> list[int]:
    """Decode a column of `rows` times.

    Raises `SegmentError` with the reason `column`.
    """
    column = column_fields(item, ("start", "steps"))
    start = column.get("start")
    if type(start) is not int or "present" in column:
        raise SegmentError("column", "`start` is missing, or some rows have no time")
    times = list(accumulate(unpack_array(column.get("steps"), INTEGERS, rows - 1), initial=start))
    if min(times) < MIN_TIME or max(times) > MAX_TIME:
        raise SegmentError("column", "a time is outside the years 1 to 9999")
    return times


def pack_numbers(rows: Sequence[int | None]) -> dict[str, Any] | None:
    """Encode a column of integers; return None if every row is None.

    Raises `ValueError` for an integer that does not fit 64 bits.
    """
    column, values = split_absent(rows)
    return {**column, "ints": pack_integers(values)} if values else None


def unpack_numbers(item: Any, rows: int, least: int, most: int) -> list[int | None]:
    """Decode a column of `rows` integers from `least` to `most`, or None for absent values.

    Raises `SegmentError` with the reason `column`.
    """
    column = column_fields(item, ("ints",))
    present = unpack_presence(column, rows)
    values = unpack_array(column.get("ints"), INTEGERS, present.count("1"))
    if values and (min(values) < least or max(values) > most):
        raise SegmentError("column", "a number is out of range")
    return spread(values, present)


def pack_values(rows: Sequence[float | None]) -> dict[str, Any] | None:
    """Encode a column of floats; return None if every row is None.

    Raises `ValueError` for a float that is not finite.
    """
    column, values = split_absent(rows)
    if not values:
        return None
    if not all(map(isfinite, values)):
        raise ValueError("a value is not a finite number")
    exact = struct.pack(f"<{len(values)}d", *values)
    return {**column, **(_as_decimals(values, exact) or _as_floats(values, exact))}


def _as_decimals(values: Sequence[float], exact: bytes) -> dict[str, Any] | None:
    """Encode values as integers and a number of decimals; return None if that is not exact.

    `exact` is the values as 64-bit floats, little-endian.
    """
    largest = max(map(abs, values))
    sample = values[:: max(1, len(values) // _SAMPLES)]
    for decimals in range(MAX_DECIMALS + 1):
        power = 10**decimals
        if largest * power >= _MAX_INTEGER:
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
            return {"decimals": decimals, "ints": pack_array(smallest_type(ints), ints)}
    return None


def _as_floats(values: Sequence[float], exact: bytes) -> dict[str, Any]:
    """Encode values as 32-bit floats if that is exact, else as 64-bit floats.

    `exact` is the values as 64-bit floats, little-endian.
    """
    try:
        single = struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        return {"floats": pack_array(DOUBLE, values)}
    again = struct.unpack(f"<{len(values)}f", single)
    if struct.pack(f"<{len(values)}d", *again) == exact:
        return {"floats": pack_array(SINGLE, values)}
    return {"floats": pack_array(DOUBLE, values)}


def unpack_values(item: Any, rows: int) -> list[float | None]:
    """Decode a column of `rows` floats, or None for absent values.

    Raises `SegmentError` with the reason `column`.
    """
    column = column_fields(item, ("ints", "decimals", "floats"))
    present = unpack_presence(column, rows)
    count = present.count("1")
    if "floats" in column:
        floats = unpack_array(column["floats"], FLOATS, count)
        if not all(map(isfinite, floats)):
            raise SegmentError("column", "a value is not a finite number")
        return spread(floats, present)
    decimals = column.get("decimals")
    if type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS:
        raise SegmentError("column", "the column has neither `floats` nor valid `decimals`")
    power = 10**decimals
    ints = unpack_array(column.get("ints"), INTEGERS, count)
    return spread([number / power for number in ints], present)


_TEXT_KEYS: Final = ("text", "width", "lengths", "index")


def pack_texts(rows: Sequence[str | None]) -> dict[str, Any] | None:
    """Encode a column of strings; return None if every row is None."""
    column, values = split_absent(rows)
    return {**column, **pack_strings(values)} if values else None


def pack_strings(values: Sequence[str]) -> dict[str, Any]:
    """Encode strings, as indexes into a dictionary if they repeat."""
    entries = list(dict.fromkeys(values))
    if len(entries) == 1:
        return {"text": entries[0]}
    if 2 * len(entries) > len(values):  # zlib compresses few repetitions without a dictionary
        return _joined(values)
    places = {entry: place for place, entry in enumerate(entries)}
    index = list(map(places.__getitem__, values))
    return {**_joined(entries), "index": pack_array(smallest_type((0, len(entries) - 1)), index)}


def _joined(entries: Sequence[str]) -> dict[str, Any]:
    """Encode two or more strings as one text.

    Strings of equal length are interleaved: all first characters, then all second characters, and
    so on. Counters and times differ in their last characters only, so that zlib compresses the
    others.
    """
    lengths = list(map(len, entries))
    text = "".join(entries)
    width = lengths[0]
    if width and lengths.count(width) == len(lengths):
        return {"text": "".join(text[place::width] for place in range(width)), "width": width}
    return {"text": text, "lengths": pack_integers(lengths)}


def unpack_texts(item: Any, rows: int) -> list[str | None]:
    """Decode a column of `rows` strings; absent values are None.

    Raises `SegmentError` with the reason `column`.
    """
    column = column_fields(item, _TEXT_KEYS)
    present = unpack_presence(column, rows)
    count = present.count("1")
    entries = read_entries(column, count)
    if "index" in column:
        index = unpack_array(column["index"], UNSIGNED, count)
        if max(index, default=0) >= len(entries):
            raise SegmentError("column", "an index is beyond the dictionary")
        values = [entries[place] for place in index]
    else:
        values = entries * count if len(entries) == 1 else entries
    if len(values) != count:
        raise SegmentError("column", "the number of strings differs from the number of rows")
    return spread(values, present)


def read_entries(column: dict[str, Any], most: int) -> list[str]:
    """Split the text of a column into its strings, of which there may be at most `most`.

    Raises `SegmentError` with the reason `column`.
    """
    text = column.get("text")
    if not isinstance(text, str):
        raise SegmentError("column", "the text is missing")
    if "width" in column:
        return _interleaved(text, column["width"], most)
    if "lengths" not in column:
        return [text]
    lengths = unpack_array(column["lengths"], UNSIGNED, 0, most)
    if sum(lengths) != len(text):
        raise SegmentError("column", "the lengths of the strings do not add up to the text's")
    return [
        text[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)
    ]


def _interleaved(text: str, width: Any, most: int) -> list[str]:
    """Split a text of at most `most` interleaved strings of `width` characters each."""
    if type(width) is not int or width < 1 or len(text) % width or len(text) // width > most:
        raise SegmentError("column", "`width` is invalid, or does not divide the text's length")
    count = len(text) // width
    return [text[place::count] for place in range(count)]


_TAG_KEYS: Final = ("columns", "rows", "keys", "values")


def pack_tags(rows: Sequence[Mapping[str, str]]) -> dict[str, Any] | None:
    """Encode tags as one column of strings for each key; return None if no row has tags.

    Tags with keys beyond the first `MAX_TAG_COLUMNS` are encoded singly as row, key and value, so
    that many different keys make a segment larger, but not slower to decode.

    Raises `ValueError` for more than `MAX_TAGS` tags.
    """
    if not any(rows):
        return None
    if sum(map(len, rows)) > MAX_TAGS:
        raise ValueError(f"more than {MAX_TAGS} tags")
    keys = list(dict.fromkeys(chain.from_iterable(rows)))
    tagged = [(place, row) for place, row in enumerate(rows) if row]
    columns = {key: _tag_column(key, tagged, len(rows)) for key in keys[:MAX_TAG_COLUMNS]}
    return {"columns": columns, **_rest(rows, frozenset(keys[MAX_TAG_COLUMNS:]))}


def _tag_column(
    key: str, tagged: Sequence[tuple[int, Mapping[str, str]]], rows: int
) -> dict[str, Any]:
    """Encode the values of one key; `tagged` are the rows that have tags, which are often few."""
    values = [tags[key] for _, tags in tagged if key in tags]
    if len(values) == rows:
        return pack_strings(values)
    present = bytearray(rows)
    for place, tags in tagged:
        present[place] = key in tags
    return {"present": pack_bits(present), **pack_strings(values)}


def _rest(rows: Sequence[Mapping[str, str]], keys: frozenset[str]) -> dict[str, Any]:
    """Encode the tags with these keys as three columns: the row, key and value of each tag."""
    if not keys:
        return {}
    pairs = [(place, key, row[key]) for place, row in enumerate(rows) for key in row if key in keys]
    places, names, values = zip(*pairs, strict=True)
    return {"rows": pack_integers(places), "keys": pack_texts(names), "values": pack_texts(values)}


def unpack_tags(item: Any, rows: int) -> list[dict[str, str]]:
    """Decode tags to one dict for each of `rows` rows.

    Raises `SegmentError` with the reason `column`.
    """
    tags = column_fields(item, _TAG_KEYS)
    columns = tags.get("columns")
    if not isinstance(columns, dict) or len(columns) > MAX_TAG_COLUMNS or "present" in tags:
        raise SegmentError("column", "`columns` of the tags is missing or invalid")
    found: list[dict[str, str]] = [{} for _ in range(rows)]
    total = 0
    for key, column in columns.items():
        values = unpack_texts(column, rows)
        total += rows - values.count(None)
        if total > MAX_TAGS:
            raise SegmentError("column", f"more than {MAX_TAGS} tags")
        for row, value in zip(found, values, strict=True):
            if value is not None:
                row[key] = value
    if "rows" in tags:
        _add_rest(found, tags, MAX_TAGS - total)
    return found


def _add_rest(found: list[dict[str, str]], tags: dict[str, Any], most: int) -> None:
    """Decode the tags whose keys have no column, at most `most` tags, and add them to `found`."""
    places = unpack_array(tags["rows"], UNSIGNED, 1, most)
    if max(places) >= len(found):
        raise SegmentError("column", "a tag is beyond the last row")
    names = unpack_texts(tags.get("keys"), len(places))
    values = unpack_texts(tags.get("values"), len(places))
    for place, name, value in zip(places, names, values, strict=True):
        if name is None or value is None or name in found[place]:
            raise SegmentError("column", "a tag has no key or no value, or is repeated")
        found[place][name] = value
