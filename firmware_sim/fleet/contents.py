"""Summarise the events of a segment, as far as the truth needs them.

Events of the system lane are kept as they are, of the other lanes only sums.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from firmware_sim.fleet.rows import EventRow

SYSTEM: Final = "system"
"""The lane in which a gateway tells of itself."""

_ERRORS: Final = ("Error", "Critical", "Alert", "Emergency")


class SystemEvent(NamedTuple):
    """An event of the system lane with its position. Sorts in the order of writing."""

    epoch: str
    seq: int
    row: EventRow

    @property
    def time(self) -> int:
        """The event's time by the gateway's clock, in ms since 1970 UTC."""
        return self.row.time

    def tag(self, name: str) -> int:
        """Return a tag that is a count."""
        return int(self.row.tags[name])


class Content(NamedTuple):
    """Events by kind, latencies by level, sums and last times by sensor, and more.

    Sums are by (source, name), in millionths, with the number of values; `heard` has the last time
    of each. `times` are those of all events, in ms since 1970 UTC, separately by whether the clock
    was synchronised; `until` is the last one's. `errors` counts events of level Error and above.
    `events` are the events of the system lane.
    """

    kinds: Counter[str]
    latencies: dict[int, list[int]]
    sums: dict[tuple[str, str], tuple[int, int]]
    heard: dict[tuple[str, str], int]
    times: dict[bool, array[int]]
    until: int
    errors: int
    events: tuple[SystemEvent, ...]


def content_of(rows: list[EventRow], lane: str, epoch: str, first_seq: int) -> Content:
    """Summarise the rows of a segment."""
    latencies: defaultdict[int, list[int]] = defaultdict(list)
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    times: defaultdict[bool, array[int]] = defaultdict(lambda: array("q"))
    heard = {}
    for row in rows:
        times[row.clock].append(row.time)
        if row.qos is not None and row.latency_ms is not None:
            latencies[row.qos].append(row.latency_ms)
        if row.kind == "reading" and row.value is not None:
            sensor = row.source or "", row.name or ""
            values[sensor].append(row.value)
            heard[sensor] = row.time
    events = [SystemEvent(epoch, seq, row) for seq, row in enumerate(rows, start=first_seq)]
    return Content(
        kinds=Counter(row.kind for row in rows),
        latencies=dict(latencies),
        sums={key: (len(each), round(fsum(each) * 1_000_000)) for key, each in values.items()},
        heard=heard,
        times=dict(times),
        until=rows[-1].time,
        errors=sum(row.level in _ERRORS for row in rows),
        events=tuple(events) if lane == SYSTEM else (),
    )
