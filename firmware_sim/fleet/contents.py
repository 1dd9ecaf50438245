"""Summarise the events of a segment for the expected results.

Events of the lane `system` are kept unchanged; of other lanes, only counts, sums and times.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from firmware_sim.fleet.rows import EventRow

SYSTEM: Final = "system"
"""The lane of events about the gateway itself."""

_ERRORS: Final = ("Error", "Critical", "Alert", "Emergency")


class SystemEvent(NamedTuple):
    """An event of the lane `system`. Events sort in the order in which they were written."""

    epoch: str
    seq: int
    row: EventRow

    @property
    def time(self) -> int:
        """The event's time by the gateway's clock, in milliseconds since 1970 UTC."""
        return self.row.time

    def tag(self, name: str) -> int:
        """Return the value of a numeric tag."""
        return int(self.row.tags[name])


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


def content_of(rows: list[EventRow], lane: str, epoch: str, first_seq: int) -> Content:
    """Summarise a segment's events, given without their sequence numbers."""
    latencies: defaultdict[int, list[int]] = defaultdict(list)
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    times: defaultdict[bool, array[int]] = defaultdict(lambda: array("q"))
    latest = {}
    for row in rows:
        times[row.clock].append(row.time)
        if row.qos is not None and row.latency_ms is not None:
            latencies[row.qos].append(row.latency_ms)
        if row.kind == "reading" and row.value is not None:
            sensor = row.source or "", row.name or ""
            values[sensor].append(row.value)
            latest[sensor] = row.time
    events = [SystemEvent(epoch, seq, row) for seq, row in enumerate(rows, start=first_seq)]
    return Content(
        kinds=Counter(row.kind for row in rows),
        latencies=dict(latencies),
        sums={key: (len(each), round(fsum(each) * 1_000_000)) for key, each in values.items()},
        latest=latest,
        times=dict(times),
        until=rows[-1].time,
        errors=sum(row.level in _ERRORS for row in rows),
        events=tuple(events) if lane == SYSTEM else (),
    )
