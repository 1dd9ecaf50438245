"""Validate the identity of a segment, and convert it to a path and back."""

from __future__ import annotations

import re
from typing import Final

from sync.segment.errors import SegmentError
from sync.segment.limits import MAX_EVENTS, MAX_SEQ
from sync.segment.records import LANES, Identity

SUFFIX: Final = ".seg"
"""The suffix of segment files."""

_GATEWAY: Final = re.compile(r"[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*", re.ASCII)
_EPOCH: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_RANGE: Final = re.compile(r"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})", re.ASCII)
_MAX_GATEWAY: Final = 255  # characters of a domain name


def is_gateway(name: str) -> bool:
    """Return whether `name` may be a gateway's name: a lower-case domain, safe as a folder name."""
    return len(name) <= _MAX_GATEWAY and _GATEWAY.fullmatch(name) is not None


def is_epoch(name: str) -> bool:
    """Return whether `name` is a ULID: 26 upper-case characters of Crockford's base 32."""
    return _EPOCH.fullmatch(name) is not None


def check_identity(identity: Identity) -> None:
    """Check that the names and the range of sequence numbers are valid.

    Raises `SegmentError` with the reason `identity` for an invalid name, `count` for an invalid
    range.
    """
    if not is_gateway(identity.gateway):
        raise SegmentError("identity", "the gateway is not a lower-case domain")
    if not is_epoch(identity.epoch):
        raise SegmentError("identity", "the epoch is not a ULID")
    if identity.lane not in LANES:
        raise SegmentError("identity", "the lane is unknown")
    first, last = identity.first_seq, identity.last_seq
    if not 1 <= first <= last <= MAX_SEQ:
        raise SegmentError("count", "the range of sequence numbers is invalid")
    if last - first >= MAX_EVENTS:
        raise SegmentError("count", f"the range has more than {MAX_EVENTS} events")


def identity_path(identity: Identity) -> str:
    """Return `GATEWAY/EPOCH/LANE/FIRST-LAST`, the name of a segment in URLs and folders."""
    gateway, epoch, lane, first, last = identity
    return f"{gateway}/{epoch}/{lane}/{first}-{last}"


def parse_identity(path: str) -> Identity:
    """Parse a path as written by `identity_path`; refuse variants, such as leading zeros.

    Raises `SegmentError` with the reason `identity` or `count`.
    """
    parts = path.split("/")
    if len(parts) != 4:
        raise SegmentError("identity", "the name must be GATEWAY/EPOCH/LANE/FIRST-LAST")
    numbers = _RANGE.fullmatch(parts[3])
    if numbers is None:
        raise SegmentError("identity", "the name must end with FIRST-LAST")
    identity = Identity(parts[0], parts[1], parts[2], int(numbers[1]), int(numbers[2]))
    check_identity(identity)
    return identity
