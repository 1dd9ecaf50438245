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
    data = cbor2.dumps(_as_map(header))
    try:
        same = unpack_header(data, VERSION) == header
    except SegmentError as error:
        raise ValueError(f"the header is not valid: {error.text}") from None
    if not same:
        raise ValueError("the header has a field of the wrong type")
    return data


def _as_map(header: SegmentHeader) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "gateway": header.gateway,
        "epoch": header.epoch,
        "lane": header.lane,
        "first": header.first_seq,
        "last": header.last_seq,
        "count": header.count,
        "previous": header.previous,
        "boot": header.boot,
        "sealed": header.sealed_at,
        "service": header.service_seconds,
        "clock": header.clock,
        "firmware": header.firmware,
        "software": header.software,
        "config": header.config_hash,
        "disk": header.disk_used,
    }
    if header.dropped:
        fields["dropped"] = [list(dropped) for dropped in header.dropped]
    return fields


def unpack_header(data: bytes, version: tuple[int, int]) -> SegmentHeader:
    """Decode a header; ignore unknown keys, which belong to a newer minor version.

    Raises `SegmentError` with the reason `header`, `identity` or `count`.
    """
    if len(data) > MAX_HEADER:
        raise SegmentError("header", f"the header is longer than {MAX_HEADER} bytes")
    fields = load_map(data, "header")
    for key, check in _CHECKS.items():
        if not check(fields.get(key)):
            raise SegmentError("header", f"`{key}` is missing or invalid")
    identity = Identity(*(fields[key] for key in ("gateway", "epoch", "lane", "first", "last")))
    check_identity(identity)
    if fields["count"] != identity.last_seq - identity.first_seq + 1:
        raise SegmentError("count", "`count` differs from the range `first` to `last`")
    return SegmentHeader(
        *identity,
        previous=fields["previous"],
        boot=fields["boot"],
        sealed_at=fields["sealed"],
        service_seconds=fields["service"],
        clock=fields["clock"],
        firmware=fields["firmware"],
        software=fields["software"],
        config_hash=fields["config"],
        disk_used=fields["disk"],
        dropped=_dropped(fields.get("dropped", [])),
        version=version,
    )


def _integer(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME


def _name(value: Any) -> bool:
    return isinstance(value, str)  # `check_identity` checks the rest


def _digest(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == DIGEST_SIZE


def _hash(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) <= MAX_HASH


def _seconds(value: Any) -> bool:
    return isinstance(value, float) and isfinite(value) and value >= 0


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "gateway": _name,
    "epoch": _name,
    "lane": _name,
    "first": _integer(1, MAX_SEQ),
    "last": _integer(1, MAX_SEQ),
    "count": _integer(1, MAX_SEQ),
    "previous": _digest,
    "boot": _text,
    "sealed": _integer(MIN_TIME, MAX_TIME),
    "service": _seconds,
    "clock": _flag,
    "firmware": _text,
    "software": _text,
    "config": _hash,
    "disk": _integer(0, MAX_SEQ),
}


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
