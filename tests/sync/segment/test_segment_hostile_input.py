"""Decoding untrusted bytes ends in a `SegmentError` with the right reason."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import cbor2
import pytest
from cbor2 import CBORTag

from sync.ingest.arrow_columns import arrow_columns
from sync.segment import REASONS, SegmentError, columns, decode, decode_columns, encode, read_header
from sync.segment import frame as frames
from sync.segment import limits as bounds
from sync.segment.header import unpack_header
from tests.helpers.segments import header, readings

PREFIX = struct.Struct(">4sBBH")


def seal(data: bytes) -> bytes:
    """Return the bytes with their checksum appended."""
    return data + sha256(data).digest()


def frame(head: bytes, packed: bytes, major: int = 1, minor: int = 0) -> bytes:
    """Return a segment of these parts with a valid frame."""
    return seal(PREFIX.pack(b"\x89FPS", major, minor, len(head)) + head + packed)


def parts(count: int = 2) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the maps of a valid header and a valid body."""
    data = encode(header(1, count), readings(count))
    length = PREFIX.unpack_from(data)[3]
    head = cbor2.loads(data[8 : 8 + length])
    return head, cbor2.loads(zlib.decompress(data[8 + length : -32]))


def forged(
    head: dict[str, Any] | None = None, body: dict[str, Any] | None = None, count: int = 2
) -> bytes:
    """Return a valid segment with some keys of header and body replaced, or removed (`...`)."""
    maps = parts(count)
    for target, changes in zip(maps, (head or {}, body or {}), strict=True):
        target.update(changes)
        for key in [key for key, value in changes.items() if value is ...]:
            del target[key]
    return frame(cbor2.dumps(maps[0]), zlib.compress(cbor2.dumps(maps[1])))


def reason(data: bytes) -> str:
    with pytest.raises(SegmentError) as caught:
        decode(data)
    for read in (decode_columns, arrow_columns):
        with pytest.raises(SegmentError) as again:
            read(data)
        assert (again.value.reason, again.value.text) == (caught.value.reason, caught.value.text)
    assert caught.value.reason in REASONS
    assert str(caught.value) == f"{caught.value.reason}: {caught.value.text}"
    return caught.value.reason


def with_body(raw: bytes) -> bytes:
    return frame(HEAD, zlib.compress(raw))


def with_header(raw: bytes) -> bytes:
    return frame(raw, PACKED)


def u8(*numbers: int) -> CBORTag:
    return CBORTag(64, bytes(numbers))


def test_forged_segment_without_changes_is_valid() -> None:
    assert len(decode(forged()).events) == 2


HEAD, BODY = (cbor2.dumps(part) for part in parts())
PACKED = zlib.compress(BODY)
BAD_FRAMES = {
    "empty": (b"", "short"),
    "too short": (b"\x89FPS" + bytes(35), "short"),
    "another kind of file": (seal(b"PK\3\4" + bytes(100)), "magic"),
    "next major version": (b"\x89FPS\x02\x00" + bytes(60), "version"),
    "major version 0": (b"\x89FPS\x00\x00" + bytes(60), "version"),
    "wrong checksum": (forged()[:-1] + bytes([forged()[-1] ^ 1]), "checksum"),
    "header longer than the file": (
        seal(PREFIX.pack(b"\x89FPS", 1, 0, 65_535) + bytes(99)),
        "header",
    ),
    "no body": (frame(HEAD, b""), "inflate"),
    "body not compressed": (frame(HEAD, b"not compressed"), "inflate"),
    "truncated body": (frame(HEAD, PACKED[:-5]), "inflate"),
    "bytes after the body": (frame(HEAD, PACKED + b"\0"), "inflate"),
}


@pytest.mark.parametrize(("data", "expected"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_invalid_frames_are_refused(data: bytes, expected: str) -> None:
    assert reason(data) == expected


def test_sizes_are_limited() -> None:
    assert reason(seal(PREFIX.pack(b"\x89FPS", 1, 0, 0) + bytes(bounds.MAX_FILE))) == "size"
    assert reason(with_body(bytes(bounds.MAX_BODY + 1))) == "inflate"
    assert reason(with_body(bytes(bounds.MAX_BODY))) == "body", "the largest body"


def test_header_is_decoded_without_a_body() -> None:
    assert read_header(frame(HEAD, b"")).count == 2


def test_newer_minor_version_is_decoded() -> None:
    head, body = parts()
    head["battery"] = [1, {"volts": 3.7}]
    body["humidity"] = {"ints": u8(1, 2)}
    data = frame(cbor2.dumps(head), zlib.compress(cbor2.dumps(body)), minor=7)
    assert decode(data).header.version == (1, 7)
    assert decode(data).events == tuple(readings(2))


def test_zip_bomb_is_stopped_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, scale: Callable[[int, int], int]
) -> None:
    limit = scale(8 * 1024 * 1024, bounds.MAX_BODY)
    monkeypatch.setattr(frames, "MAX_BODY", limit)
    squeeze = zlib.compressobj(9)
    zeros = bytes(limit // 64)
    packed = b"".join(squeeze.compress(zeros) for _ in range(512)) + squeeze.flush()
    assert len(packed) < limit // 64
    tracemalloc.start()
    try:
        assert reason(frame(HEAD, packed)) == "inflate"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit


PLAIN = cbor2.dumps({"a": 1})
INVALID_CBOR = {
    "nothing": b"",
    "an integer": b"\x01",
    "an array": b"\x81\x01",
    "trailing bytes": PLAIN + b"\0",
    "a map that ends early": b"\xa2\x61a\x01",
    "a head that ends early": b"\xb9\x00",
    "a map of 2**64-1 pairs": b"\xbb" + b"\xff" * 8,
    "an array of 2**64-1 items": b"\xa1\x61a\x9b" + b"\xff" * 8,
    "a string of 2**64-1 bytes": b"\xa1\x61a\x5b" + b"\xff" * 8,
    "a text of 2**31 characters": b"\xa1\x61a\x7a\x80\x00\x00\x00",
    "a map of any length": b"\xbf\x61a\x01\xff",
    "an array of any length": b"\xa1\x61a\x9f\x01\xff",
    "a string of any length": b"\xa1\x61a\x5f\x41a\xff",
    "reserved information": b"\xa1\x61a\x1c",
    "a key that is no text": b"\xa1\x01\x01",
    "a key that is bytes": b"\xa1\x41a\x01",
    "a key twice": b"\xa2\x61a\x01\x61a\x02",
    "a key twice, written differently": b"\xa2\x61a\x01\x78\x01a\x02",
    "text that is not UTF-8": b"\xa1\x61a\x61\xff",
    "undefined": b"\xa1\x61a\xf7",
    "a simple value": b"\xa1\x61a\xf8\xff",
    "a break on its own": b"\xa1\x61a\xff",
    "nested maps": b"\xa1\x61a" * 10 + b"\x01",
    "deeply nested arrays": b"\xa1\x61a" + b"\x81" * 100_000 + b"\x01",
    "deeply nested tags": b"\xa1\x61a" + b"\xd8\x40" * 100_000 + b"\x41a",
    "too many items": cbor2.dumps({"a": [0] * 10_000}),
    "a date": cbor2.dumps({"a": CBORTag(0, "2026-01-01T00:00:00Z")}),
    "a big number": cbor2.dumps({"a": CBORTag(2, b"\xff" * 100)}),
    "a decimal fraction": cbor2.dumps({"a": CBORTag(4, [1, 1])}),
    "a shared value": cbor2.dumps({"a": CBORTag(28, CBORTag(29, 0))}),
    "a string reference": cbor2.dumps({"a": CBORTag(256, CBORTag(25, 0))}),
    "a regular expression": cbor2.dumps({"a": CBORTag(35, "(a+)+$")}),
    "a set": cbor2.dumps({"a": CBORTag(258, [1])}),
    "a tag of 64 bits": b"\xa1\x61a\xdb" + b"\xff" * 8 + b"\x01",
}


@pytest.mark.parametrize("raw", INVALID_CBOR.values(), ids=INVALID_CBOR.keys())
def test_invalid_cbor_is_refused_in_body_and_header(raw: bytes) -> None:
    assert reason(with_body(raw)) == "body"
    if len(raw) <= bounds.MAX_HEADER:
        assert reason(with_header(raw)) == "header"
        with pytest.raises(SegmentError, match="header"):
            read_header(with_header(raw))


def test_truncated_key_is_not_reported_as_repeated() -> None:
    with pytest.raises(SegmentError, match="longer than the data"):
        decode(with_body(b"\xa2\x61a\x01\x62a"))


BAD_HEADERS: list[tuple[str, Any, str]] = [
    ("gateway", ..., "header"),
    ("gateway", 7, "header"),
    ("gateway", "", "identity"),
    ("gateway", "..", "identity"),
    ("gateway", "a/../../etc", "identity"),
    ("gateway", "a..b", "identity"),
    ("gateway", ".a", "identity"),
    ("gateway", "-a", "identity"),
    ("gateway", "Gw.example", "identity"),
    ("gateway", "gw.example\n", "identity"),
    ("gateway", "g\u0660", "identity"),
    ("gateway", "a" * 256, "identity"),
    ("epoch", 1, "header"),
    ("epoch", "01J8ZQ4M7T5W3VX2A9B6C1D0E", "identity"),
    ("epoch", "01J8ZQ4M7T5W3VX2A9B6C1D0EI", "identity"),
    ("epoch", "81J8ZQ4M7T5W3VX2A9B6C1D0EF", "identity"),
    ("epoch", "01j8zq4m7t5w3vx2a9b6c1d0ef", "identity"),
    ("lane", None, "header"),
    ("lane", "../logs", "identity"),
    ("first", 0, "header"),
    ("first", -1, "header"),
    ("first", True, "header"),
    ("first", 1.0, "header"),
    ("first", 2**63, "header"),
    ("first", 3, "count"),
    ("first", 2, "count"),
    ("last", 2**63 - 1, "count"),
    ("last", 3, "count"),
    ("count", 1, "count"),
    ("count", 0, "header"),
    ("count", ..., "header"),
    ("previous", bytes(31), "header"),
    ("previous", "0" * 32, "header"),
    ("boot", "x" * 129, "header"),
    ("boot", b"x", "header"),
    ("sealed", bounds.MAX_TIME + 1, "header"),
    ("sealed", bounds.MIN_TIME - 1, "header"),
    ("sealed", 1.5, "header"),
    ("service", -1.0, "header"),
    ("service", float("nan"), "header"),
    ("service", float("inf"), "header"),
    ("service", 1, "header"),
    ("clock", 1, "header"),
    ("firmware", None, "header"),
    ("software", ["1"], "header"),
    ("config", bytes(65), "header"),
    ("disk", -1, "header"),
    ("disk", 2**63, "header"),
    ("dropped", {}, "header"),
    ("dropped", [[1, 2, "full"]] * 257, "header"),
    ("dropped", ["abc"], "header"),
    ("dropped", [[1, 2]], "header"),
    ("dropped", [[0, 2, "full"]], "header"),
    ("dropped", [[1, True, "full"]], "header"),
    ("dropped", [[2, 1, "full"]], "header"),
    ("dropped", [[1, 2, 3]], "header"),
    ("dropped", [[1, 2, ""]], "header"),
    ("dropped", [[1, 2, "x" * 33]], "header"),
]


@pytest.mark.parametrize(("key", "value", "expected"), BAD_HEADERS)
def test_invalid_header_fields_are_refused(key: str, value: Any, expected: str) -> None:
    data = forged({key: value})
    assert reason(data) == expected
    with pytest.raises(SegmentError) as caught:
        read_header(data)
    assert caught.value.reason == expected


def test_oversized_header_is_refused() -> None:
    with pytest.raises(SegmentError, match="longer than 65535 bytes"):
        unpack_header(bytes(65_536), (1, 0))


def test_too_many_events_are_refused() -> None:
    count = bounds.MAX_EVENTS + 1
    assert reason(forged({"last": count, "count": count})) == "count"


TEXT = {"text": "ab", "width": 1}
REST = {"columns": {}, "rows": u8(0), "keys": {"text": "k"}, "values": {"text": "v"}}
BAD_COLUMNS: list[tuple[str, Any]] = [
    ("time", ...),
    ("time", 5),
    ("time", None),
    ("time", {"steps": u8(1)}),
    ("time", {"start": 1}),
    ("time", {"start": 1.0, "steps": u8(1)}),
    ("time", {"start": True, "steps": u8(1)}),
    ("time", {"start": 1, "steps": u8(1, 2)}),
    ("time", {"start": 1, "steps": u8()}),
    ("time", {"start": 1, "steps": u8(1), "present": b"\xc0"}),
    ("time", {"start": bounds.MAX_TIME, "steps": u8(1)}),
    ("time", {"start": bounds.MIN_TIME, "steps": CBORTag(72, b"\xff")}),
    ("time", {"start": 2**64 - 1, "steps": u8(0)}),
    ("time", {"start": 0, "steps": CBORTag(86, bytes(8))}),
    ("time", {"start": 0, "steps": CBORTag(71, bytes(8))}),
    ("time", {"start": 0, "steps": CBORTag(69, bytes(3))}),
    ("time", {"start": 0, "steps": CBORTag(64, "x")}),
    ("time", {"start": 0, "steps": b"\x01"}),
    ("clock", ...),
    ("clock", 1),
    ("clock", b""),
    ("clock", b"\xc0\x00"),
    ("clock", b"\xc1"),
    ("kind", ...),
    ("kind", "log"),
    ("kind", {"text": "log", "present": b"\x80"}),
    ("kind", {"text": 5}),
    ("kind", {"text": "log", "more": 1}),
    ("source", {}),
    ("source", {"width": 1}),
    ("source", {"text": "abc", "width": 2}),
    ("source", {"text": "abc", "width": 1}),
    ("source", {"text": "ab", "width": 0}),
    ("source", {"text": "ab", "width": -1}),
    ("source", {"text": "ab", "width": True}),
    ("source", {"text": "ab", "width": 2.0}),
    ("source", {"text": "", "width": 1}),
    ("source", {"text": "ab", "lengths": u8(1, 2)}),
    ("source", {"text": "ab", "lengths": u8(1)}),
    ("source", {"text": "ab", "lengths": u8(1, 1, 0)}),
    ("source", {"text": "ab", "lengths": u8(2)} | {"index": u8(0, 1)}),
    ("source", {"text": "ab", "lengths": CBORTag(72, b"\x01\x01")}),
    ("source", {"text": "a", "lengths": u8(1), "index": u8(0)}),
    ("source", {**TEXT, "index": u8(0, 2)}),
    ("source", {**TEXT, "index": u8(0)}),
    ("source", {**TEXT, "index": u8(0, 1, 1)}),
    ("source", {**TEXT, "index": CBORTag(72, b"\x00\xff")}),
    ("source", {**TEXT, "present": b"\x80"}),
    ("source", {**TEXT, "present": b"\xe0"}),
    ("source", {**TEXT, "present": True}),
    ("source", {"text": "", "lengths": u8(), "index": u8(), "present": b"\x00"}),
    ("tags", {"columns": {"": {"text": "", "width": 1, "index": u8(), "present": b"\x00"}}}),
    ("value", {}),
    ("value", {"floats": u8(1, 2)}),
    ("value", {"floats": CBORTag(86, bytes(8))}),
    ("value", {"floats": CBORTag(86, struct.pack("<2d", 1, float("nan")))}),
    ("value", {"floats": CBORTag(85, struct.pack("<2f", 1, float("-inf")))}),
    ("value", {"ints": u8(1, 2)}),
    ("value", {"ints": u8(1, 2), "decimals": 7}),
    ("value", {"ints": u8(1, 2), "decimals": -1}),
    ("value", {"ints": u8(1, 2), "decimals": True}),
    ("value", {"ints": u8(1), "decimals": 0}),
    ("value", {"decimals": 0}),
    ("qos", {"ints": u8(0, 3)}),
    ("qos", {"ints": CBORTag(72, b"\x00\xff")}),
    ("qos", {"ints": u8(0)}),
    ("qos", {}),
    ("latency_ms", {"ints": CBORTag(71, bytes(16))}),
    ("latency_ms", "soon"),
    ("tags", []),
    ("tags", {}),
    ("tags", {"columns": []}),
    ("tags", {"columns": {}, "present": b"\xc0"}),
    ("tags", {"columns": {"node": {}}}),
    ("tags", {"columns": {str(key): {"text": ""} for key in range(65)}}),
    ("tags", {"columns": {}, "rows": u8()}),
    ("tags", {**REST, "rows": u8(2)}),
    ("tags", {**REST, "rows": u8(0, 0)}),
    ("tags", {"columns": {}, "rows": u8(0), "keys": {"text": "k"}}),
    ("tags", {"columns": {}, "rows": u8(0), "values": {"text": "v"}}),
    ("tags", {**REST, "keys": {"text": "k", "present": b"\0"}}),
    ("tags", {**REST, "columns": {"k": {"text": "v"}}}),
]


@pytest.mark.parametrize(("name", "column"), BAD_COLUMNS)
def test_invalid_columns_are_refused(name: str, column: Any) -> None:
    data = forged(body={name: column})
    assert reason(data) == "column"
    with pytest.raises(SegmentError, match=f"`{name}`: "):
        decode(data)
    assert read_header(data).count == 2


def test_few_bytes_cannot_expand_to_millions_of_tags(
    monkeypatch: pytest.MonkeyPatch, scale: Callable[[int, int], int]
) -> None:
    count = scale(4_096, bounds.MAX_EVENTS)
    limit = count * bounds.MAX_TAGS // bounds.MAX_EVENTS
    monkeypatch.setattr(columns, "MAX_TAGS", limit)
    head, body = parts()
    head |= {"last": count, "count": count}
    body = {
        "time": {"start": 0, "steps": u8(*bytes(count - 1))},
        "clock": True,
        "kind": {"text": "log"},
        "tags": {"columns": {f"key{number}": {"text": "value"} for number in range(64)}},
    }

    def data() -> bytes:
        return frame(cbor2.dumps(head), zlib.compress(cbor2.dumps(body)))

    assert len(data()) < 2_000
    assert reason(data()) == "column"
    tags = {f"key{number}": {"text": "value"} for number in range(16)}
    body["tags"] = {**REST, "columns": tags}
    assert reason(data()) == "column"
    body["tags"] = {"columns": tags}
    segment = decode(data())
    assert sum(len(event.tags) for event in segment.events) == limit


def test_column_without_values_may_have_a_dictionary() -> None:
    column = {"text": "x", "present": b"\0"}
    assert [event.source for event in decode(forged(body={"source": column})).events] == [None] * 2
