"""What a segment is made of: events and the identity they are counted under.

Plain records, without behaviour: no I/O, no clock, no validation of where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

LANES: Final = ("readings", "logs", "system")
"""Each lane has a counter and a share of the bytes of its own: a flood pushes no other out."""

KINDS: Final = (
    "reading",
    "log",
    "message",
    "node",
    "queue",
    "share",
    "session",
    "device",
    "limit",
    "store",
    "uplink",
    "system",
)
"""What an event tells of; the word is the report's as well."""

NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})


class Identity(NamedTuple):
    """Which segment: a range of the sequence numbers of one lane, in one epoch of one gateway."""

    gateway: str
    epoch: str
    lane: str
    first_seq: int
    last_seq: int


class Event(NamedTuple):
    """One thing that happened at a gateway.

    `seq` counts from 1 without a gap in its (epoch, lane). `time` is milliseconds since 1970 UTC by
    the gateway's clock, and `clock` tells whether that clock was synchronised. `value` is a finite
    float. `qos` is 0, 1 or 2. `latency_ms` runs from taking a message into custody to delivering
    it.
    """

    seq: int
    time: int
    clock: bool
    kind: str
    source: str | None = None
    topic: str | None = None
    name: str | None = None
    value: float | None = None
    unit: str | None = None
    level: str | None = None
    text: str | None = None
    qos: int | None = None
    latency_ms: int | None = None
    tags: Mapping[str, str] = NO_TAGS


class Dropped(NamedTuple):
    """Events that the gateway gave up, and why: `reason` is a word, such as `backlog-full`."""

    first_seq: int
    last_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says of itself and of its gateway when it was sealed.

    `previous` is the digest of the segment before it in its lane (32 bytes; zeros for the first).
    `boot` names the gateway's run. `sealed_at` is milliseconds since 1970 UTC by the gateway's
    clock, `clock` whether that was synchronised, `service_seconds` the gateway's uptime over all
    its runs. `config_hash` is of the configuration's bytes, `disk_used` is the bytes that
    the gateway's folder takes. `dropped` tells the ranges of this lane lost since its last segment.
    """

    gateway: str
    epoch: str
    lane: str
    first_seq: int
    last_seq: int
    previous: bytes
    boot: str
    sealed_at: int
    service_seconds: float
    clock: bool
    firmware: str
    software: str
    config_hash: bytes
    disk_used: int
    dropped: tuple[Dropped, ...] = ()
    version: tuple[int, int] = (1, 0)

    @property
    def identity(self) -> Identity:
        """What the segment is counted under."""
        return Identity(self.gateway, self.epoch, self.lane, self.first_seq, self.last_seq)

    @property
    def count(self) -> int:
        """How many events the segment holds: sequence numbers have no gap within it."""
        return self.last_seq - self.first_seq + 1


class Segment(NamedTuple):
    """A segment as read: its header, its events in order and its digest (32 bytes)."""

    header: SegmentHeader
    events: tuple[Event, ...]
    digest: bytes
