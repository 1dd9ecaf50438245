"""What a segment holds, summed up: all that the truth about a fleet needs of its events.

Keeps the events of the system lane as they are, of the others only sums. Judges nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from firmware_sim.fleet.rows import Row

SYSTEM: Final = "system"
"""The lane in which a gateway tells of itself."""

_ERRORS: Final = ("Error", "Critical", "Alert", "Emergency")


class Told(NamedTuple):
    """An event of the system lane in its place. Its order is that in which it was written."""

    epoch: str
    seq: int
    row: Row

    @property
    def time(self) -> int:
        """When it was, by the gateway's clock, in ms since 1970 UTC."""
        return self.row.time

    def tag(self, name: str) -> int:
        """Read a tag that is a count."""
        return int(self.row.tags[name])


class Content(NamedTuple):
    """Events by kind, latencies by level, values and the last time by sensor, and more.

    The sums are of (source, name), in millionths, with the count of values; `heard` tells when
    each was heard last. `times` are those of all events, in ms since 1970 UTC, apart by whether the
    clock was synchronised; the last one's is `until`. `errors` counts events of the level Error
    and above. `told` are the events of the system lane.
    """

    kinds: Counter[str]
    latencies: dict[int, list[int]]
    sums: dict[tuple[str, str], tuple[int, int]]
    heard: dict[tuple[str, str], int]
    times: dict[bool, array[int]]
    until: int
    errors: int
    told: tuple[Told, ...]


def content_of(rows: list[Row], lane: str, epoch: str, first_seq: int) -> Content:
    """Sum up what the rows of a segment say."""
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
    told = [Told(epoch, seq, row) for seq, row in enumerate(rows, start=first_seq)]
    return Content(
        kinds=Counter(row.kind for row in rows),
        latencies=dict(latencies),
        sums={key: (len(each), round(fsum(each) * 1_000_000)) for key, each in values.items()},
        heard=heard,
        times=dict(times),
        until=rows[-1].time,
        errors=sum(row.level in _ERRORS for row in rows),
        told=tuple(told) if lane == SYSTEM else (),
    )
