"""What the uplink needs of others: the store's side, the gateway's facts, a way to the centre.

Protocols and plain records alone. The gateway implements the first two, `https` the third.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from sync.segment import Dropped, Event, Identity
from sync.uplink.responses import Outcome


class LaneState(NamedTuple):
    """What a lane holds that no segment has yet.

    `bytes` is about what its payload takes; `oldest` is the service second in which the oldest of
    its events was written, None if there is none; `urgent` is that of the oldest urgent one.
    """

    lane: str
    events: int
    bytes: int
    oldest: float | None
    urgent: float | None = None


class Draft(NamedTuple):
    """What the next segment of a lane holds: one event or more, in order and without a gap.

    `previous` is the digest of the segment before (32 zero bytes for the first), `dropped` the
    ranges that the lane lost since: at most `sync.segment.MAX_DROPPED` of them.
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
    """How far a lane of an epoch has come: the last number that is sealed, and its digest."""

    last: int
    digest: bytes


class SendOrder(Enum):
    """Which of the waiting segments is meant."""

    OLDEST = "oldest"
    NEWEST = "newest"


class BacklogUnavailable(Exception):
    """The store cannot do it just now (its disk is full, it is closing): it is tried again later.

    The text goes into a notice. Whatever else a backlog raises is a fault, and ends the loop.
    """


class Backlog(Protocol):
    """The store's side. Each call is one transaction, durable when it returns."""

    async def lanes(self) -> Sequence[LaneState]:
        """Say what each lane holds that is not sealed."""
        ...

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        """Return the lane's oldest events: as many as fit, at least one; None if there is none."""
        ...

    async def seal(self, draft: Draft, data: bytes, digest: bytes) -> bool:
        """Put the segment in and take its events out, in one transaction.

        False, and nothing is done, if the lane's chain moved on since the draft.
        """
        ...

    async def next_waiting(self, order: SendOrder = SendOrder.OLDEST) -> WaitingSegment | None:
        """Return the oldest segment that is to be sent, or the newest."""
        ...

    async def epoch(self) -> str:
        """Return the epoch that is counted in now."""
        ...

    async def sealed_at(self, epoch: str, lane: str, seq: int) -> bytes | None:
        """Return the digest of the segment that a number is sealed in; None if it is not known.

        It need not end there: then no segment that does is ours, since none is ever cut again.
        """
        ...

    async def heads(self) -> Mapping[str, HighWatermark]:
        """Say how far each lane of the current epoch is sealed; lanes without a segment too."""
        ...

    async def begin_epoch(self, reason: str) -> str:
        """Seal all events in the epoch that they were counted in, and count in a new one.

        One transaction. `reason` is a word; returns the new epoch.
        """
        ...

    async def acknowledge(self, digest: bytes) -> None:
        """Note that the centre holds this segment: it need not be kept."""
        ...

    async def set_aside(self, digest: bytes, reason: str) -> None:
        """Keep this segment, never send it again, and log that as an event."""
        ...


class GatewayState(NamedTuple):
    """What a header says of the gateway at the moment of sealing: see `SegmentHeader`."""

    boot: str
    sealed_at: int
    service_seconds: float
    clock: bool
    firmware: str
    software: str
    config_hash: bytes
    disk_used: int


class GatewayStateSource(Protocol):
    """Who can tell the gateway's state."""

    async def state(self) -> GatewayState:
        """Return the state of this moment."""
        ...


class Transport(Protocol):
    """A way to the centre."""

    async def put(self, waiting: WaitingSegment) -> Outcome:
        """Offer a segment once, within a bounded time; what goes wrong is an outcome too."""
        ...

    async def heads(self, gateway: str, epoch: str) -> Mapping[str, HighWatermark] | Outcome:
        """Ask how far the lanes of an epoch are there, within a bounded time.

        An outcome where that cannot be known just now, or ever (`Refused`).
        """
        ...

    async def close(self) -> None:
        """Give up what is kept open between two segments."""
        ...


class Notice(NamedTuple):
    """Something to be told to people: `name` is a word for tables, `text` says it in a sentence."""

    name: str
    text: str


SendNotice: TypeAlias = Callable[[Notice], Awaitable[None]]
"""Tells people. It may raise `BacklogUnavailable`: the notice is told again later."""
