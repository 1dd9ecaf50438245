"""Encode events as a segment.

The format is described in `docs/reference/segment-format.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cbor2

from sync.segment.columns import pack_numbers, pack_tags, pack_texts, pack_times, pack_values
from sync.segment.frame import pack_frame
from sync.segment.header import pack_header
from sync.segment.records import Event, SegmentHeader
from sync.segment.typed_arrays import pack_bits


def encode(header: SegmentHeader, events: Sequence[Event]) -> bytes:
    """Encode events as a segment; the last 32 bytes are its digest.

    `events` must have the sequence numbers `header.first_seq` to `header.last_seq`, in order.

    Raises `ValueError` for events that `decode` would not return unchanged: other sequence numbers
    than the header's, a value that is not finite, invalid Unicode, or a number out of range.
    """
    prefix = pack_header(header)
    if len(events) != header.count:
        raise ValueError(f"{len(events)} events, but the header's range has {header.count}")
    columns = _columns(header.first_seq, events)
    return pack_frame(prefix, cbor2.dumps({k: v for k, v in columns.items() if v is not None}))


def _columns(first: int, events: Sequence[Event]) -> dict[str, Any]:
    """Encode the columns of the body; a column is None if every row is None."""
    rows: dict[str, Any] = dict(zip(Event._fields, zip(*events, strict=True), strict=True))
    if rows["seq"] != tuple(range(first, first + len(events))):
        raise ValueError("the sequence numbers differ from the header's range")
    if not {None, 0, 1, 2}.issuperset(rows["qos"]):
        raise ValueError("a quality of service is not 0, 1 or 2")
    return {
        "time": pack_times(rows["time"]),
        "clock": _flags(rows["clock"]),
        "kind": pack_texts(rows["kind"]),
        "source": pack_texts(rows["source"]),
        "topic": pack_texts(rows["topic"]),
        "name": pack_texts(rows["name"]),
        "value": pack_values(rows["value"]),
        "unit": pack_texts(rows["unit"]),
        "level": pack_texts(rows["level"]),
        "text": pack_texts(rows["text"]),
        "qos": pack_numbers(rows["qos"]),
        "latency_ms": pack_numbers(rows["latency_ms"]),
        "tags": pack_tags(rows["tags"]),
    }


def _flags(rows: Sequence[bool]) -> bool | bytes:
    """Encode a flag for each row as a bitmap, or as one value if all flags are equal."""
    return rows[0] if len(set(rows)) == 1 else pack_bits(rows)
