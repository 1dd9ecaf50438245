"""An independent segment decoder, written from the format's documentation only."""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256
from typing import Any

import cbor2

CODES = {64: "B", 69: "H", 70: "I", 72: "b", 77: "h", 78: "i", 79: "q", 85: "f", 86: "d"}
TEXTS = ("kind", "source", "topic", "name", "unit", "level", "text")


def read(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the header's map, and each event as a dictionary of what it has."""
    magic, major, _minor, length = struct.unpack(">4sBBH", data[:8])
    assert (magic, major) == (b"\x89FPS", 1)
    assert sha256(data[:-32]).digest() == data[-32:]
    header = cbor2.loads(data[8 : 8 + length])
    body = cbor2.loads(zlib.decompress(data[8 + length : -32]))
    count = header["count"]
    clock = body["clock"]
    columns: dict[str, list[Any]] = {
        "seq": list(range(header["first"], header["last"] + 1)),
        "time": times(body["time"]),
        "clock": [clock] * count if isinstance(clock, bool) else bits(clock, count),
        "tags": tags(body.get("tags"), count),
    }
    for name in TEXTS:
        columns[name] = texts(body[name], count) if name in body else [None] * count
    for name in ("value", "qos", "latency_ms"):
        columns[name] = numbers(body[name], count) if name in body else [None] * count
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return header, [{k: v for k, v in row.items() if v not in (None, {})} for row in rows]


def array(tag: cbor2.CBORTag) -> list[Any]:
    """Return the numbers of a typed array (RFC 8746)."""
    return [number for (number,) in struct.iter_unpack("<" + CODES[tag.tag], tag.value)]


def bits(bitmap: bytes, count: int) -> list[bool]:
    return [bool(bitmap[place // 8] >> (7 - place % 8) & 1) for place in range(count)]


def values_by_row(column: dict[str, Any], count: int, values: list[Any]) -> list[Any]:
    """Return a value or None for each row."""
    if "present" not in column:
        return values
    remaining = list(values)
    return [remaining.pop(0) if present else None for present in bits(column["present"], count)]


def rows_with_value(column: dict[str, Any], count: int) -> int:
    """Return how many rows have a value."""
    return sum(bits(column["present"], count)) if "present" in column else count


def times(column: dict[str, Any]) -> list[int]:
    moments = [column["start"]]
    for step in array(column["steps"]):
        moments.append(moments[-1] + step)
    return moments


def texts(column: dict[str, Any], count: int) -> list[str | None]:
    text = column["text"]
    if "width" in column:
        many = len(text) // column["width"]
        entries = ["".join(text[k * many + n] for k in range(column["width"])) for n in range(many)]
    elif "lengths" in column:
        entries, at = [], 0
        for length in array(column["lengths"]):
            entries.append(text[at : at + length])
            at += length
    else:
        entries = [text]
    if "index" in column:
        values = [entries[place] for place in array(column["index"])]
    else:
        values = entries * rows_with_value(column, count) if len(entries) == 1 else entries
    return values_by_row(column, count, values)


def numbers(column: dict[str, Any], count: int) -> list[Any]:
    """Return the values of a column of integers, decimals or floats."""
    if "floats" in column:
        return values_by_row(column, count, array(column["floats"]))
    values = array(column["ints"])
    if "decimals" in column:
        values = [value / 10 ** column["decimals"] for value in values]
    return values_by_row(column, count, values)


def tags(column: dict[str, Any] | None, count: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(count)]
    if column is None:
        return found
    for key, values in column["columns"].items():
        for row, value in enumerate(texts(values, count)):
            if value is not None:
                found[row][key] = value
    if "rows" in column:
        rows = array(column["rows"])
        keys, values = texts(column["keys"], len(rows)), texts(column["values"], len(rows))
        for row, key, value in zip(rows, keys, values, strict=True):
            found[row][str(key)] = str(value)
    return found
