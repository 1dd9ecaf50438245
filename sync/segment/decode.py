"""Decode a segment from an untrusted source, completely or not at all.

The format is described in `docs/reference/segment-format.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sync.segment.cbor_guard import load_map
from sync.segment.columns import (
    unpack_numbers,
    unpack_tags,
    unpack_texts,
    unpack_times,
    unpack_values,
)
from sync.segment.errors import SegmentError
from sync.segment.frame import inflate, unpack_frame
from sync.segment.header import DIGEST_SIZE, unpack_header
from sync.segment.limits import MAX_SEQ
from sync.segment.records import Event, Segment, SegmentHeader
from sync.segment.typed_arrays import unpack_bits

Reader = Callable[[Any, int], Sequence[Any]]


def digest_of(data: bytes) -> bytes:
    """Return the digest of a valid segment: its last 32 bytes, the SHA-256 of all other bytes."""
    return bytes(data[-DIGEST_SIZE:])


def read_header(data: bytes) -> SegmentHeader:
    """Verify the checksum of a whole segment and decode its header only.

    Raises `SegmentError`.
    """
    frame = unpack_frame(data)
    return unpack_header(frame.header, frame.version)


def decode(data: bytes) -> Segment:
    """Decode a segment. Raises `SegmentError` and no other exception."""
    header, columns = decode_columns(data)
    events = tuple(map(Event._make, zip(*columns.values(), strict=True)))
    return Segment(header, events, digest_of(data))


def decode_columns(
    data: bytes, readers: Mapping[str, Reader] | None = None
) -> tuple[SegmentHeader, dict[str, Any]]:
    """Return a segment's header, and a dict from each field of `Event`, in order, to its values.

    Absent values are None; tags are a dict for each event, possibly empty. `readers` replaces
    `READERS` to decode columns to other types than lists. Raises `SegmentError`.
    """
    frame = unpack_frame(data)
    header = unpack_header(frame.header, frame.version)
    body = load_map(inflate(frame.packed), "body")
    columns: dict[str, Any] = {"seq": list(range(header.first_seq, header.last_seq + 1))}
    for name, read in (readers or READERS).items():
        try:
            columns[name] = read(body.get(name), header.count)
        except SegmentError as error:
            raise SegmentError(error.reason, f"`{name}`: {error.text}") from None
    return header, columns


def _flags(item: Any, rows: int) -> list[bool]:
    """Decode a flag for each row from a bitmap, or from one value that applies to all rows."""
    if isinstance(item, bool):
        return [item] * rows
    return [digit == "1" for digit in unpack_bits(item, rows)]


def _kinds(item: Any, rows: int) -> list[str | None]:
    kinds = unpack_texts(item, rows)
    if None in kinds:
        raise SegmentError("column", "some rows have no kind")
    return kinds


def _optional(unpack: Reader) -> Reader:
    return lambda item, rows: [None] * rows if item is None else unpack(item, rows)


def _tags(item: Any, rows: int) -> list[dict[str, str]]:
    return [{} for _ in range(rows)] if item is None else unpack_tags(item, rows)


READERS: Final[Mapping[str, Reader]] = {
    "time": unpack_times,
    "clock": _flags,
    "kind": _kinds,
    "source": _optional(unpack_texts),
    "topic": _optional(unpack_texts),
    "name": _optional(unpack_texts),
    "value": _optional(unpack_values),
    "unit": _optional(unpack_texts),
    "level": _optional(unpack_texts),
    "text": _optional(unpack_texts),
    "qos": _optional(partial(unpack_numbers, least=0, most=2)),
    "latency_ms": _optional(partial(unpack_numbers, least=-MAX_SEQ - 1, most=MAX_SEQ)),
    "tags": _tags,
}
"""The function that decodes each column of the body. Its arguments are the encoded column, None if
it is absent, and the number of rows. It raises `SegmentError` for an invalid column."""
