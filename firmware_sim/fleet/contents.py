"""Summarise the events of a segment for the expected results.

Events of the lane `system` are kept unchanged; of other lanes, only counts, sums and times.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sync.segment import Event

SYSTEM: Final = "system"
"""The lane of events about the gateway itself."""

_ERRORS: Final = ("Error", "Critical", "Alert", "Emergency")


class SystemEvent(NamedTuple):
    """An event of the lane `system`. Events sort in the order in which they were written."""

    epoch: str
    event: Event

    @property
    def time(self) -> int:
        """The event's time by the gateway's clock, in milliseconds since 1970 UTC."""
        return self.event.time

    def tag(self, name: str) -> int:
        """Return the value of a numeric tag."""
        return int(self.event.tags[name])


class Content(NamedTuple):
    """A summary of a segment's events.

    `kinds` counts events by kind. `latencies` are in milliseconds, by `qos`. A sensor is (source,
    name): `sums` has each sensor's number of values and their sum in millionths, `latest` the time
    of its last value. `times` has the times of all events, by whether the clock was synchronised;
    `until` is the time of the last event. All times are in milliseconds since 1970 UTC. `errors`
    counts events of level Error and above. `events` are the events, if the lane is `system`.
    """

    kinds: Counter[str]
    latencies: dict[int, list[int]]
    sums: dict[tuple[str, str], tuple[int, int]]
    latest: dict[tuple[str, str], int]
    times: dict[bool, array[int]]
    until: int
    errors: int
    events: tuple[SystemEvent, ...]


def content_of(events: list[Event], lane: str, epoch: str) -> Content:
    """Summarise a segment's events."""
    latencies: defaultdict[int, list[int]] = defaultdict(list)
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    times: defaultdict[bool, array[int]] = defaultdict(lambda: array("q"))
    latest = {}
    for event in events:
        times[event.clock].append(event.time)
        if event.qos is not None and event.latency_ms is not None:
            latencies[event.qos].append(event.latency_ms)
        if event.kind == "reading" and event.value is not None:
            sensor = event.source or "", event.name or ""
            values[sensor].append(event.value)
            latest[sensor] = event.time
    return Content(
        kinds=Counter(each.kind for each in events),
        latencies=dict(latencies),
        sums={key: (len(each), round(fsum(each) * 1_000_000)) for key, each in values.items()},
        latest=latest,
        times=dict(times),
        until=events[-1].time,
        errors=sum(each.level in _ERRORS for each in events),
        events=tuple(SystemEvent(epoch, each) for each in events) if lane == SYSTEM else (),
    )
