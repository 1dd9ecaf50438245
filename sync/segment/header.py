"""The header of a segment: a CBOR map that can be decoded without the body."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import cbor2

from sync.segment.cbor_guard import load_map
from sync.segment.errors import SegmentError
from sync.segment.identity import check_identity
from sync.segment.limits import (
    MAX_DROPPED,
    MAX_HASH,
    MAX_HEADER,
    MAX_NAME,
    MAX_SEQ,
    MAX_TIME,
    MAX_WORD,
    MIN_TIME,
)
from sync.segment.records import Dropped, Identity, SegmentHeader

VERSION: Final = (1, 0)
"""Major and minor version. Newer minor versions add keys or columns, which older readers ignore."""

DIGEST_SIZE: Final = 32
"""Size of a segment's digest (SHA-256), in bytes."""


def pack_header(header: SegmentHeader) -> bytes:
    """Encode a header.

    Raises `ValueError` for a header that `unpack_header` would refuse.
    """
    if header.version != VERSION:
        raise ValueError(f"only version {VERSION} can be encoded")
    fields: dict[str, Any] = {key: getattr(header, name) for key, (name, _) in _FIELDS.items()}
    if header.dropped:
        fields["dropped"] = [list(dropped) for dropped in header.dropped]
    data = cbor2.dumps(fields)
    try:
        same = unpack_header(data, VERSION) == header
    except SegmentError as error:
        raise ValueError(f"the header is not valid: {error.text}") from None
    if not same:
        raise ValueError("the header has a field of the wrong type")
    return data


def unpack_header(data: bytes, version: tuple[int, int]) -> SegmentHeader:
    """Decode a header; ignore unknown keys, which belong to a newer minor version.

    Raises `SegmentError` with the reason `header`, `identity` or `count`.
    """
    if len(data) > MAX_HEADER:
        raise SegmentError("header", f"the header is longer than {MAX_HEADER} bytes")
    fields = load_map(data, "header")
    for key, (_, is_valid) in _FIELDS.items():
        if not is_valid(fields.get(key)):
            raise SegmentError("header", f"`{key}` is missing or invalid")
    found = {name: fields[key] for key, (name, _) in _FIELDS.items()}
    identity = Identity(*(found[name] for name in Identity._fields))
    check_identity(identity)
    if found.pop("count") != identity.last_seq - identity.first_seq + 1:
        raise SegmentError("count", "`count` differs from the range `first` to `last`")
    return SegmentHeader(**found, dropped=_dropped(fields.get("dropped", [])), version=version)


def _integer(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _sized(kind: type[str | bytes], least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and least <= len(value) <= most


def _seconds(value: Any) -> bool:
    return isinstance(value, float) and isfinite(value) and value >= 0


_FIELDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "gateway": ("gateway", _sized(str, 0, MAX_HEADER)),  # `check_identity` checks the rest
    "epoch": ("epoch", _sized(str, 0, MAX_HEADER)),
    "lane": ("lane", _sized(str, 0, MAX_HEADER)),
    "first": ("first_seq", _integer(1, MAX_SEQ)),
    "last": ("last_seq", _integer(1, MAX_SEQ)),
    "count": ("count", _integer(1, MAX_SEQ)),
    "previous": ("previous", _sized(bytes, DIGEST_SIZE, DIGEST_SIZE)),
    "boot": ("boot", _sized(str, 0, MAX_NAME)),
    "sealed": ("sealed_at", _integer(MIN_TIME, MAX_TIME)),
    "service": ("service_seconds", _seconds),
    "clock": ("clock", lambda value: isinstance(value, bool)),
    "firmware": ("firmware", _sized(str, 0, MAX_NAME)),
    "software": ("software", _sized(str, 0, MAX_NAME)),
    "config": ("config_hash", _sized(bytes, 0, MAX_HASH)),
    "disk": ("disk_used", _integer(0, MAX_SEQ)),
}
"""The header's CBOR keys in order, each with its attribute of `SegmentHeader` and its check."""


def _dropped(ranges: Any) -> tuple[Dropped, ...]:
    """Decode the dropped ranges, each of them [first, last, reason]."""
    if not isinstance(ranges, list) or len(ranges) > MAX_DROPPED:
        raise SegmentError("header", f"`dropped` must be a list of at most {MAX_DROPPED} ranges")
    return tuple(map(_dropped_range, ranges))


def _dropped_range(item: Any) -> Dropped:
    number = _integer(1, MAX_SEQ)
    if not isinstance(item, list) or len(item) != 3 or not (number(item[0]) and number(item[1])):
        raise SegmentError("header", "a dropped range must be [first, last, reason]")
    first, last, reason = item
    if last < first or not isinstance(reason, str) or not 1 <= len(reason) <= MAX_WORD:
        raise SegmentError("header", "a dropped range must be [first, last, reason]")
    return Dropped(first, last, reason)
