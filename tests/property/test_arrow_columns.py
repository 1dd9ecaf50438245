"""Reading a segment as Arrow arrays gives the same rows and errors as `decode`."""

from __future__ import annotations

import os
import random
import struct
import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import cbor2
from cbor2 import CBORTag
from hypothesis import given, settings
from hypothesis import strategies as st

from sync.ingest.arrow_columns import arrow_columns
from sync.segment import Event, SegmentError, SegmentHeader, decode, encode
from tests.helpers.segment_strategies import segments

EXAMPLES = 4_000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 12

SPOILT: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 7, 2**64, 0.5, "", "ab"),
    *(b"", b"\x00", b"\xff\xff", [], {}, CBORTag(64, b"")),
)
"""Wrong values, one of which replaces the expected one."""


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Return the events of the Arrow arrays as `decode` does, with values as their bits."""
    header, columns = arrow_columns(data)
    found = {name: array.to_pylist() for name, array in columns.items()}
    found["time"] = [micros // 1000 for micros in columns["time"].cast("int64").to_pylist()]
    found["tags"] = [dict(tags) for tags in found["tags"]]
    assert tuple(found) == Event._fields
    assert all(len(rows) == header.count for rows in found.values())
    return [exact(dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True)]


def exact(row: dict[str, Any]) -> dict[str, Any]:
    value = row["value"]
    return row | {"value": None if value is None else struct.pack("<d", value)}


def rows_or_error(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Return the rows, or the reason why there are none."""
    try:
        return read(data)
    except SegmentError as error:
        return error.reason, error.text


def plain(data: bytes) -> list[dict[str, Any]]:
    return [exact(event._asdict()) for event in decode(data).events]


@settings(max_examples=EXAMPLES, deadline=None)
@given(segments())
def test_arrow_arrays_hold_the_same_rows(content: tuple[SegmentHeader, list[Event]]) -> None:
    data = encode(*content)
    assert rows_of(data) == plain(data)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(segments(), st.randoms(use_true_random=False))
def test_both_readers_treat_spoilt_segments_alike(
    content: tuple[SegmentHeader, list[Event]], chance: random.Random
) -> None:
    data = encode(*content)
    length = 8 + struct.unpack_from(">H", data, 6)[0]
    body = cbor2.loads(zlib.decompress(data[length:-32]))
    for _ in range(chance.randrange(1, 3)):
        spoil(body, chance)
    forged = data[:length] + zlib.compress(cbor2.dumps(body))
    forged += sha256(forged).digest()
    assert rows_or_error(rows_of, forged) == rows_or_error(plain, forged)


def spoil(body: dict[str, Any], chance: random.Random) -> None:
    """Change something somewhere in the map of a body."""
    target: Any = body
    while True:
        key = chance.choice(sorted(target))
        if not isinstance(target[key], dict) or not target[key] or chance.random() < 0.1:
            break
        target = target[key]
    target[key] = spoilt(target[key], chance)
    if chance.random() < 0.2:
        del target[key]
    if chance.random() < 0.1:
        target[chance.choice(("present", "text", "index", "width", "lengths", "ints"))] = (
            chance.choice(SPOILT)
        )


def spoilt(item: Any, chance: random.Random) -> Any:
    if isinstance(item, CBORTag) and chance.random() < 0.8:
        if chance.random() < 0.4:
            return CBORTag(chance.choice((64, 69, 70, 72, 77, 78, 79, 85, 86)), item.value)
        return CBORTag(item.tag, spoilt(item.value, chance))
    if isinstance(item, bytes) and item and chance.random() < 0.8:
        changed = bytearray(item)
        changed[chance.randrange(len(changed))] ^= chance.randrange(256)
        return chance.choice((bytes(changed), bytes(changed[:-1]), bytes(changed) + b"\x00"))
    if isinstance(item, str) and chance.random() < 0.6:
        return chance.choice((item + "x", item[:-1], item * 2))
    if type(item) is int and chance.random() < 0.6:
        return item + chance.choice((-1, 1, 10**15))
    return cbor2.loads(cbor2.dumps(chance.choice(SPOILT)))
