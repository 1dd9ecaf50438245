"""What a segment is made of: events and the identity they are counted under.

Plain records, without behaviour: no I/O, no clock, no validation of where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

LANES: Final = ("readings", "logs", "system")
"""Each lane has a counter and a share of the bytes of its own: a flood in one pushes no other out."""

KINDS: Final = (
    "reading",
    "log",
    "message",
    "queue",
    "share",
    "session",
    "limit",
    "store",
    "uplink",
    "system",
)
"""What an event tells of; the word is the report's as well."""

NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})


class Event(NamedTuple):
    """One thing that happened at a gateway.

    `seq` counts from 1 without a gap in its (epoch, lane). `time` is milliseconds since 1970 UTC by
    the gateway's clock, and `clock` tells whether that clock was synchronised. `value` is a finite
    float. `qos` is 0, 1 or 2. `latency_ms` runs from taking a message into custody to delivering it.
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
