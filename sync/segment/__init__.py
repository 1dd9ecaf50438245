"""The segment format: encode events to a compact file, and decode it.

The package depends on cbor2 and the standard library only, so that other programs can use it.
"""

from sync.segment.decode import decode, decode_columns, digest_of, read_header
from sync.segment.encode import encode
from sync.segment.errors import REASONS, SegmentError
from sync.segment.identity import (
    SUFFIX,
    check_identity,
    identity_path,
    is_epoch,
    is_gateway,
    parse_identity,
)
from sync.segment.limits import MAX_DROPPED, MAX_EVENTS, MAX_FILE
from sync.segment.records import (
    KINDS,
    LANES,
    NO_TAGS,
    Dropped,
    Event,
    Identity,
    Segment,
    SegmentHeader,
)

__all__ = [
    "KINDS",
    "LANES",
    "MAX_DROPPED",
    "MAX_EVENTS",
    "MAX_FILE",
    "NO_TAGS",
    "REASONS",
    "SUFFIX",
    "Dropped",
    "Event",
    "Identity",
    "Segment",
    "SegmentError",
    "SegmentHeader",
    "check_identity",
    "decode",
    "decode_columns",
    "digest_of",
    "encode",
    "identity_path",
    "is_epoch",
    "is_gateway",
    "parse_identity",
    "read_header",
]
