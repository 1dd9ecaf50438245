"""The data types of a segment: header, events and identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

LANES: Final = ("readings", "logs", "system")
"""The lanes (parts) of the event log. Each has its own sequence numbers and share of the disk, so
that many events in one lane do not displace those of the others."""

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
"""The values of `Event.kind`: categories of events."""

NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})


class Identity(NamedTuple):
    """The identity of a segment: a range of sequence numbers of a lane in an epoch of a gateway."""

    gateway: str
    epoch: str
    lane: str
    first_seq: int
    last_seq: int


class Event(NamedTuple):
    """An event at a gateway.

    `seq` counts from 1 without a gap in its (epoch, lane). `time` is milliseconds since 1970 UTC by
    the gateway's clock, and `clock` is whether the clock was synchronised. `value` is a finite
    float. `qos` is 0, 1 or 2. `latency_ms` is the number of milliseconds from accepting a message
    to delivering it.
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
    """A range of events that the gateway dropped; `reason` is a keyword, such as `backlog-full`."""

    first_seq: int
    last_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """A segment's header: its identity, and the state of the gateway when the segment was sealed.

    `previous` is the digest of the preceding segment of the lane and epoch (32 bytes; zeros for the
    first). `boot` is the kernel's id of the boot. `sealed_at` is milliseconds since 1970 UTC by the
    gateway's clock, `clock` whether this clock was synchronised, `service_seconds` the gateway's
    service time. `firmware` and `software` are the versions of the operating system and of
    Fieldpost. `config_hash` is the hash of the configuration, `disk_used` the size of the gateway's
    folder in bytes. `dropped` are the ranges that the lane lost since its preceding segment.
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
        """The segment's identity."""
        return Identity(self.gateway, self.epoch, self.lane, self.first_seq, self.last_seq)

    @property
    def count(self) -> int:
        """The number of events in the segment."""
        return self.last_seq - self.first_seq + 1


class Segment(NamedTuple):
    """A decoded segment: its header, its events in order and its digest (32 bytes)."""

    header: SegmentHeader
    events: tuple[Event, ...]
    digest: bytes
