"""The interfaces between the uplink, the gateway's store and the transports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from sync.segment import Dropped, Event, Identity
from sync.uplink.responses import Outcome


class LaneState(NamedTuple):
    """The events of a lane that are not in a segment yet.

    `bytes` is the approximate size of their payload. `oldest` is the service second in which the
    oldest event was written, `urgent` that of the oldest urgent event; None if there is none.
    """

    lane: str
    events: int
    bytes: int
    oldest: float | None
    urgent: float | None = None


class Draft(NamedTuple):
    """The content of the next segment of a lane: at least one event, in order and without a gap.

    `previous` is the digest of the lane's previous segment (32 zero bytes for the first), `dropped`
    the ranges of numbers that the lane lost since that segment, at most `MAX_DROPPED` ranges.
    """

    epoch: str
    lane: str
    previous: bytes
    events: Sequence[Event]
    dropped: tuple[Dropped, ...]


class WaitingSegment(NamedTuple):
    """A sealed segment that the centre has not acknowledged."""

    identity: Identity
    digest: bytes
    data: bytes


class HighWatermark(NamedTuple):
    """The last sealed sequence number of a lane in an epoch, and the digest of its segment."""

    last: int
    digest: bytes


class SendOrder(Enum):
    """The order in which waiting segments are sent."""

    OLDEST = "oldest"
    NEWEST = "newest"


class BacklogUnavailable(Exception):
    """The store cannot be used now (full disk, shutdown); the operation is retried later.

    Its text is sent as a notice. Any other exception is a defect and ends the calling task.
    """


class Backlog(Protocol):
    """The uplink's view of the store. Each call is one transaction, durable when it returns."""

    async def lanes(self) -> Sequence[LaneState]:
        """Return the state of the unsealed events of each lane."""
        ...

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        """Return the lane's oldest events within the limits, at least one; None if it is empty."""
        ...

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        """Store the segment and delete its events, in one transaction.

        Return False and change nothing if another segment of the lane was sealed after the draft.
        """
        ...

    async def next_waiting(self, order: SendOrder = SendOrder.OLDEST) -> WaitingSegment | None:
        """Return the oldest or newest segment that waits to be sent."""
        ...

    async def epoch(self) -> str:
        """Return the current epoch."""
        ...

    async def digest_at(self, epoch: str, lane: str, seq: int) -> bytes | None:
        """Return the digest of the segment that contains a sequence number; None if unknown.

        A segment is never split, so that a different digest at this number means different events.
        """
        ...

    async def high_watermarks(self) -> Mapping[str, HighWatermark]:
        """Return each lane's last sealed number (0 if none) and digest in the current epoch."""
        ...

    async def begin_epoch(self, reason: str) -> str:
        """Seal all events of the current epoch and begin a new one, in one transaction.

        `reason` is a keyword (`EpochVerdict`). Return the new epoch.
        """
        ...

    async def acknowledge(self, digest: bytes) -> None:
        """Record that the centre has stored this segment, so that the gateway may delete it."""
        ...

    async def set_aside(self, digest: bytes, reason: str) -> None:
        """Keep this segment, never send it again, and log an event."""
        ...


class GatewayState(NamedTuple):
    """The gateway's state when a segment is sealed, for the fields of its `SegmentHeader`."""

    boot: str
    sealed_at: int
    service_seconds: float
    clock: bool
    firmware: str
    software: str
    config_hash: bytes
    disk_used: int


class GatewayStateSource(Protocol):
    """A source of the gateway's state."""

    async def state(self) -> GatewayState:
        """Return the current state."""
        ...


class Transport(Protocol):
    """A transport of segments to the centre."""

    async def put(self, waiting: WaitingSegment) -> Outcome:
        """Send a segment once, within a bounded time. A failure is an outcome, not an exception."""
        ...

    async def high_watermarks(
        self, gateway: str, epoch: str
    ) -> Mapping[str, HighWatermark] | Outcome:
        """Return the centre's last number and digest of each lane of an epoch, in a bounded time.

        Return the outcome if the query fails: `Rejection` if the centre does not support it.
        """
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...


class Notice(NamedTuple):
    """A message to the operator: `name` is a keyword, `text` a sentence."""

    name: str
    text: str


SendNotice: TypeAlias = Callable[[Notice], Awaitable[None]]
"""Sends a notice to the operator. If it raises `BacklogUnavailable`, the notice is sent later."""
