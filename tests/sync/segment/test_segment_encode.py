"""The encoder: what it refuses, and the size of what it encodes."""

from __future__ import annotations

import json
import math
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from sync.segment import (
    MAX_DROPPED,
    Dropped,
    Event,
    columns,
    decode,
    encode,
    frame,
    read_header,
)
from sync.segment import limits as bounds
from sync.segment.columns import pack_tags, pack_texts, pack_values, unpack_values
from sync.segment.typed_arrays import pack_integers
from tests.helpers import segment_reader
from tests.helpers.segments import header, readings

GOLDEN = Path(__file__).parents[2] / "data"


def event(**changes: Any) -> Event:
    return Event(1, 1_790_000_000_000, True, "log")._replace(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        *({"value": value} for value in (math.nan, math.inf, -math.inf)),
        {"time": bounds.MAX_TIME + 1},
        {"time": bounds.MIN_TIME - 1},
        {"qos": 3},
        {"qos": -1},
        {"latency_ms": 2**63},
        {"latency_ms": -(2**63) - 1},
        {"text": "\ud800"},
        {"tags": {"\udfff": "x"}},
        {"seq": 2},
    ],
)
def test_unencodable_events_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(header(), [event(**changes)])


def test_events_must_match_the_header() -> None:
    events = readings(3)
    with pytest.raises(ValueError, match="3 events, but the header's range has 2"):
        encode(header(1, 2), events)
    with pytest.raises(ValueError, match="sequence numbers"):
        encode(header(2, 4), events)
    with pytest.raises(ValueError, match="sequence numbers"):
        encode(header(1, 3), [events[0], events[2], events[1]])


@pytest.mark.parametrize(
    "changes",
    [
        {"gateway": "Gw"},
        {"epoch": "1"},
        {"lane": "other"},
        {"previous": b""},
        {"boot": "x" * 129},
        {"service_seconds": float("nan")},
        {"service_seconds": 3},
        {"clock": 1},
        {"first_seq": 0},
        {"first_seq": True},
        {"dropped": tuple(Dropped(n, n, "full") for n in range(1, MAX_DROPPED + 2))},
        {"dropped": (Dropped(2, 1, "full"),)},
        {"dropped": [Dropped(1, 1, "full")]},
        {"version": (2, 0)},
    ],
)
def test_invalid_headers_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(header(**changes), [event()])


def test_largest_header_is_encoded() -> None:
    dropped = tuple(Dropped(2**63 - 1, 2**63 - 1, "\U0001f4a7" * 32) for _ in range(MAX_DROPPED))
    name = "\U0001f4a7" * 128
    largest = header(dropped=dropped, boot=name, firmware=name, software=name)
    assert read_header(encode(largest, [event()])) == largest


def test_golden_segments_are_decoded() -> None:
    for name in ("segment-readings", "segment-odd"):
        expected = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        data = (GOLDEN / f"{name}.seg").read_bytes()
        segment = decode(data)
        assert list(segment.events) == [Event(**fields) for fields in expected["events"]]
        assert segment.digest.hex() == expected["digest"]
        again = encode(segment.header, segment.events)
        assert segment_reader.read(again) == segment_reader.read(data)


def test_oversized_body_is_not_encoded(
    monkeypatch: pytest.MonkeyPatch, scale: Callable[[int, int], int]
) -> None:
    limit = scale(1024 * 1024, bounds.MAX_BODY)
    monkeypatch.setattr(frame, "MAX_BODY", limit)
    text = "x" * (limit // 64)
    events = [event(seq=seq, text=f"{seq:02d}" + text) for seq in range(1, 66)]
    with pytest.raises(ValueError, match="body is larger"):
        encode(header(1, 65), events)


def test_oversized_segment_is_not_encoded(
    monkeypatch: pytest.MonkeyPatch, scale: Callable[[int, int], int]
) -> None:
    limit = scale(1024 * 1024, bounds.MAX_FILE)
    monkeypatch.setattr(frame, "MAX_FILE", limit)
    chance = random.Random(1)
    noise = chance.randbytes(limit + 1024 * 1024).decode("latin-1")
    with pytest.raises(ValueError, match="segment is larger"):
        encode(header(), [event(text=noise)])


def test_too_many_tags_are_not_encoded(
    monkeypatch: pytest.MonkeyPatch, scale: Callable[[int, int], int]
) -> None:
    limit = scale(4_096, bounds.MAX_TAGS)
    monkeypatch.setattr(columns, "MAX_TAGS", limit)
    row = {str(key): "" for key in range(limit // 2)}
    assert pack_tags([row, row]) is not None
    with pytest.raises(ValueError, match="tags"):
        pack_tags([row, row, {"one": "more"}])


def test_many_tag_keys_take_linear_time() -> None:
    events = [event(seq=seq, tags={f"key{seq}": "x"}) for seq in range(1, 5_001)]
    tracemalloc.start()
    try:
        data = encode(header(1, 5_000), events)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decode(data).events == tuple(events)
    assert peak < 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        (["a", "a", None], {"present", "text"}),
        (["aa", "bb", "cc"], {"text", "width"}),
        (["a", "bb", "c"], {"text", "lengths"}),
        (["a", "b", "a", "b"], {"text", "width", "index"}),
        (["a", "bb", "a", "bb"], {"text", "lengths", "index"}),
        (["", "a", "", "a"], {"text", "lengths", "index"}),
    ],
)
def test_strings_use_the_smallest_form(rows: list[str | None], keys: set[str]) -> None:
    column = pack_texts(rows)
    assert column is not None
    assert column.keys() == keys


@pytest.mark.parametrize(
    ("rows", "form", "tag"),
    [
        ([1.0, 2.0], 0, 64),
        ([-1.0, 127.0], 0, 72),
        ([21.5, 300.25], 2, 69),
        ([-21.53], 2, 77),
        ([50.123456], 6, 70),
        ([-50.123456], 6, 78),
        ([struct.unpack("<f", struct.pack("<f", 0.1))[0]], None, 85),
        ([0.1, 1 / 3], None, 86),
        ([1e300], None, 86),
        ([-0.0], None, 85),
        ([0.5, -0.0], None, 85),
        ([1e9], None, 85),
    ],
)
def test_values_use_the_smallest_exact_form(rows: list[float], form: int | None, tag: int) -> None:
    column = pack_values(rows)
    assert column is not None
    assert column.get("decimals") == form
    assert column["floats" if form is None else "ints"].tag == tag
    again: list[Any] = unpack_values(column, len(rows))
    assert struct.pack(f"<{len(rows)}d", *again) == struct.pack(f"<{len(rows)}d", *rows)


def test_inexact_decimals_are_not_used() -> None:
    rows = [float(number) for number in range(1_000)]
    rows[501] = 1 / 3
    column = pack_values(rows)
    assert column is not None
    assert "floats" in column


def test_integers_use_the_smallest_type() -> None:
    edges = {
        64: [0, 255],
        72: [-128, 127],
        69: [0, 65_535],
        77: [-32_768, 32_767],
        70: [0, 2**32 - 1],
        78: [-(2**31), 2**31 - 1],
        79: [-(2**63), 2**63 - 1],
    }
    for tag, numbers in edges.items():
        packed = pack_integers(numbers)
        assert packed.tag == tag
        assert segment_reader.array(packed) == numbers
    assert pack_integers([]) == cbor2.CBORTag(64, b"")
    with pytest.raises(ValueError, match="64 bits"):
        pack_integers([2**63])
