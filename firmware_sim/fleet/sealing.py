"""Number the events of a simulated lane, and seal them into a chain of segments.

Like a gateway, this seals a segment when it is full or old enough, and at a clean stop. Unsealed
events at a crash are sealed after the restart, or lost if a new epoch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from firmware_sim.fleet.bad_segments import newer_minor
from firmware_sim.fleet.contents import Content, content_of
from firmware_sim.fleet.rows import numbered
from firmware_sim.fleet.settings import DAY_S
from sync.segment import Dropped, Event, SegmentHeader, digest_of, encode

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan, Run
    from firmware_sim.fleet.rows import Stream

SEAL_EVENTS: Final = 2_000
"""Maximum number of events of a segment: the default of a gateway."""

EVICTED: Final = "backlog-full"
"""The reason that segment headers give for a range of evicted events."""

LEFT_D: Final = 4
"""Days from the end of the simulation until the folder fills up, with the fault `disk-full`."""

_SERVICE_S: Final = 500_000.0  # seconds that a gateway was in service before
_DISK: Final = 40_000_000  # bytes that its folder takes at the beginning
_GROWS: Final = 60_000.0  # bytes a day, with good housekeeping
_CAP: Final = 2**30  # bytes that its database may take, as a gateway is set by default
_EVERY: Final = 7  # of the segments of a window, one so often is of a newer version
_EVICT: Final = 0.8  # share of the window after which the backlog is full
_OLDEST: Final = 0.4  # share of the window of which all segments are evicted then


class SealedSegment(NamedTuple):
    """A segment, sealed at the true time `moment`; an `evicted` segment is never sent."""

    moment: float
    header: SegmentHeader
    data: bytes
    digest: bytes
    content: Content
    evicted: bool


class EvictedRange(NamedTuple):
    """A range of events that a gateway dropped from its full backlog at the true time `moment`."""

    moment: float
    epoch: str
    lane: str
    first_seq: int
    last_seq: int


@dataclass
class LaneSealer:
    """Seals the events of one lane. After `seal_all`, `evicted` is the evicted range, or None."""

    plan: Plan
    lane: str
    evicted: EvictedRange | None = None
    _events: list[Event] = field(default_factory=list)
    _first_seq: int = 1
    _previous: bytes = bytes(32)
    _deadline: float = inf
    _epoch: str = ""
    _renewal: float = inf
    _unsent_ranges: list[tuple[int, int]] = field(default_factory=list)

    def seal_all(self, events: Stream) -> Iterator[SealedSegment]:
        """Generate the segments that a gateway would have sealed by the end of the simulation."""
        self._begin(self.plan.life.runs[0])
        for moment, event in events:
            if moment > self._deadline:
                yield self._seal(self._deadline)
            if moment >= self._renewal:
                self._begin(self.plan.life.at(moment))
            if not self._events:
                self._deadline = self._due(moment)
            self._events.append(event)
            if len(self._events) == SEAL_EVENTS:
                yield self._seal(moment)
        if self._events and self._deadline <= self.plan.settings.length:
            yield self._seal(self._deadline)

    def _begin(self, run: Run) -> None:
        """Begin an epoch: sequence numbers restart at 1, and unsealed events are lost."""
        later = [each.on for each in self.plan.life.runs if each.on > run.on and each.renewed]
        self._epoch, self._renewal = run.epoch, min(later, default=inf)
        self._events, self._first_seq, self._previous = [], 1, bytes(32)
        self._deadline = inf

    def _due(self, moment: float) -> float:
        """Return the moment to seal a segment that begins at `moment`; infinity for never."""
        life = self.plan.life
        due, run = moment + self.plan.settings.seal, life.at(moment)
        if due <= run.off:
            return due
        if run.clean:
            return run.off
        back = life.running(run.off + 1e-3)
        return inf if back >= self._renewal else max(due, back)

    def _seal(self, moment: float) -> SealedSegment:
        plan, first = self.plan, self._first_seq
        last = first + len(self._events) - 1
        evicted = self._is_evicted(moment, last)
        header = self._header(moment, last)
        events = numbered(first, self._events)
        data = encode(header, events)
        if plan.within("minor-version", moment) and (last // 3) % _EVERY == 0:
            data = newer_minor(data)
        content = content_of(events, self.lane, self._epoch)
        sealed = SealedSegment(moment, header, data, digest_of(data), content, evicted)
        self._previous = sealed.digest
        self._first_seq, self._events, self._deadline = last + 1, [], inf
        return sealed

    def _is_evicted(self, moment: float, last: int) -> bool:
        """Return whether the segment will be evicted; when the backlog is full, set `evicted`."""
        window = self.plan.window("evictions")
        if window is None or self.lane != "readings" or moment < window[0]:
            return False
        length = window[1] - window[0]
        if moment < window[0] + _OLDEST * length:
            self._unsent_ranges.append((self._first_seq, last))
            return True
        at = window[0] + _EVICT * length
        if self.evicted is None and moment >= at and self._unsent_ranges:
            first, last = self._unsent_ranges[0][0], self._unsent_ranges[-1][1]
            self.evicted = EvictedRange(at, self._epoch, self.lane, first, last)
        return False

    def _header(self, moment: float, last: int) -> SegmentHeader:
        plan = self.plan
        run = plan.life.at(moment)
        lost = self.evicted
        dropped = () if lost is None else (Dropped(lost.first_seq, lost.last_seq, EVICTED),)
        copied = moment >= plan.copied
        return SegmentHeader(
            gateway=plan.name,
            epoch=self._epoch,
            lane=self.lane,
            first_seq=self._first_seq,
            last_seq=last,
            previous=self._previous,
            boot=run.boot[::-1] if copied else run.boot,
            sealed_at=plan.clock.wall(moment),
            service_seconds=round(_SERVICE_S + moment, 3),
            clock=plan.clock.synchronised(moment),
            firmware="image-7",
            software=run.version,
            config_hash=bytes(range(32)),
            disk_used=_disk(plan, moment),
            dropped=dropped,
        )


def _disk(plan: Plan, moment: float) -> int:
    grows = daily_growth(plan.settings.days) if "disk-full" in plan.faults else _GROWS
    return _DISK + int(grows * moment / DAY_S)


def daily_growth(days: int) -> float:
    """Return the bytes per day that fill the folder `LEFT_D` days after a simulation of `days`."""
    return (_CAP - _DISK) / (days + LEFT_D)
