"""The segment: how events are written down for the road and read again.

Imports cbor2 and the standard library alone, so that anything can read a segment.
"""

from sync.common.enrolment import (
    Enrolment,
    EnrolmentError,
    format_enrolment,
    is_centre_url,
    new_token,
    parse_enrolment,
    read_enrolment,
    token_digest,
    write_enrolment,
)
from sync.segment.decode import decode, decode_columns, digest_of, read_header
from sync.segment.encode import encode
from sync.segment.errors import REASONS, SegmentError
from sync.segment.identity import (
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
    "Dropped",
    "Enrolment",
    "EnrolmentError",
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
    "format_enrolment",
    "identity_path",
    "is_centre_url",
    "is_epoch",
    "is_gateway",
    "new_token",
    "parse_enrolment",
    "parse_identity",
    "read_enrolment",
    "read_header",
    "token_digest",
    "write_enrolment",
]
