"""Segments round-trip exactly, and damaged segments are detected."""

from __future__ import annotations

import os
import random
import struct

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sync.segment import (
    Event,
    SegmentError,
    SegmentHeader,
    decode,
    decode_columns,
    digest_of,
    encode,
    read_header,
)
from tests.helpers import segment_reader
from tests.helpers.segment_strategies import segments
from tests.helpers.segments import header, logs, readings

EXAMPLES = 2_000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 25


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(segments())
def test_round_trip(content: tuple[SegmentHeader, list[Event]]) -> None:
    head, events = content
    data = encode(head, events)
    segment = decode(data)
    assert segment.header == head
    assert segment.events == tuple(events)
    assert [bits(event.value) for event in segment.events] == [bits(e.value) for e in events]
    assert segment.digest == digest_of(data) == data[-32:]
    assert read_header(data) == head


@settings(max_examples=EXAMPLES // 5, deadline=None)
@given(segments())
def test_independent_decoder_agrees(content: tuple[SegmentHeader, list[Event]]) -> None:
    head, events = content
    read, rows = segment_reader.read(encode(head, events))
    assert (read["first"], read["last"], read["boot"]) == (head.first_seq, head.last_seq, head.boot)
    assert [Event(**row) for row in rows] == events


@settings(max_examples=EXAMPLES // 5, deadline=None)
@given(segments())
def test_columns_equal_the_events(content: tuple[SegmentHeader, list[Event]]) -> None:
    head, events = content
    read, columns = decode_columns(encode(head, events))
    assert read == head
    assert tuple(columns) == Event._fields
    for name, rows in columns.items():
        assert rows == [getattr(event, name) for event in events]
    assert all(type(tags) is dict for tags in columns["tags"])


@settings(max_examples=EXAMPLES // 5, deadline=None)
@given(segments(), st.randoms(use_true_random=False))
def test_damaged_segment_is_never_decoded(
    content: tuple[SegmentHeader, list[Event]], chance: random.Random
) -> None:
    data = bytearray(encode(*content))
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    assume(bytes(data) != encode(*content))
    with pytest.raises(SegmentError):
        decode(bytes(data))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    for read in (decode, read_header, decode_columns):
        with pytest.raises(SegmentError):
            read(data)


def small() -> bytes:
    return encode(header(1, 3), readings(3))


def test_every_flipped_byte_of_a_small_segment_is_detected() -> None:
    data = small()
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= mask
            with pytest.raises(SegmentError):
                decode(bytes(damaged))
            with pytest.raises(SegmentError):
                read_header(bytes(damaged))


def test_truncated_segment_is_refused() -> None:
    data = small()
    for length in range(len(data)):
        with pytest.raises(SegmentError):
            decode(data[:length])


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(SegmentError):
        decode(small() + b"\0")


@pytest.mark.parametrize("events", [readings(500), logs(500)], ids=["readings", "logs"])
def test_realistic_events_round_trip(events: list[Event]) -> None:
    data = encode(header(1, 500), events)
    assert decode(data).events == tuple(events)
    assert len(data) < 16 * len(events)
