"""The truth about one gateway: what each report must say of it once everything arrived.

Holds what arrives of one gateway, without its bytes. It is written from
docs/reference/reports.md, not from the centre's code, of which it knows nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firmware_sim.fleet import expected_uptime, expected_work
from firmware_sim.fleet.contents import SYSTEM, Told
from firmware_sim.fleet.lane_outcomes import Arrival, LaneTruth
from firmware_sim.fleet.rollout import Ran
from firmware_sim.fleet.times import decimal, iso, percentiles


@dataclass
class GatewayTruth:
    """All that is true of one gateway as of `as_of`, in ms since 1970 UTC."""

    name: str
    as_of: int
    lanes: dict[tuple[str, str], LaneTruth] = field(default_factory=dict)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    files: int = 0
    bad: list[Arrival] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Give all that arrived its fate, what came first before what came later."""
        for arrival in sorted(arrivals, key=lambda each: (each.arrived, each.path)):
            self.files += 1
            if arrival.bad:
                self.bad.append(arrival)
                continue
            self.arrivals.append(arrival.arrived)
            header = arrival.header
            lane = self.lanes.setdefault((header.epoch, header.lane), LaneTruth())
            if lane.take(arrival):
                for kind, number in arrival.content.kinds.items():
                    self.kinds[header.lane, kind] += number

    def accepted(self) -> Iterator[Arrival]:
        """Give all segments that are accepted, lane by lane in the order of their numbers."""
        for _, lane in sorted(self.lanes.items()):
            yield from (lane.accepted[start] for start in lane.starts)

    def told(self) -> list[Told]:
        """Give all events of the system lane, in their order."""
        return [each for arrival in self.accepted() for each in arrival.content.told]

    def versions(self) -> dict[str, Ran]:
        """Tell of each version what ran under it: a segment is of one version."""
        found: defaultdict[str, Ran] = defaultdict(Ran)
        for arrival in self.accepted():
            content = arrival.content
            found[arrival.header.software].add(content.errors, content.times)
        return dict(found)

    def last(self) -> Arrival:
        """Give the segment that was sealed last."""
        return max(
            self.accepted(), key=lambda each: (each.header.epoch, each.header.service_seconds)
        )

    def as_json(self) -> dict[str, Any]:
        """Give what truth.json says of the gateway."""
        told, forks = self.told(), [f for lane in self.lanes.values() for f in lane.forks.values()]
        return {
            "gateway": self.name,
            "files": self.files,
            "segments": sum(len(lane.starts) for lane in self.lanes.values()),
            "bad": len(self.bad),
            "lanes": self._lanes(told),
            "refused": [
                *(each.as_json("bad") for each in self.bad),
                *(each.as_json("fork") for each in forks),
            ],
            "availability": expected_uptime.availability(told) | self._reached(told),
            "outages": expected_uptime.outages(told),
            "clock": expected_uptime.clock(told),
            "delivery": self._delivery(),
            "lag": self._lag(),
            "sensors": self._sensors(),
            "queues": expected_work.queues(told),
            "refusals": expected_work.refusals(told),
            "repeats": expected_work.repeats(told),
            "notices": expected_work.notices(told),
            "growth": self._growth(told),
        }

    def _lanes(self, told: list[Told]) -> list[dict[str, Any]]:
        latest = max(epoch for epoch, _ in self.lanes)
        ends = {each.epoch: each for each in told}
        rows = []
        for (epoch, lane), truth in sorted(self.lanes.items()):
            end = ends.get(epoch)
            closed = end is not None and (end.row.kind, end.row.name) == ("system", "stop")
            last = truth.accepted[truth.starts[-1]].content.until if truth.starts else None
            since = end.time if end is not None and closed else last
            row = {
                "epoch": epoch,
                "lane": lane,
                "state": "closed" if closed else "torn" if epoch < latest else "open",
                "since": None if since is None else iso(since),
                "again": [iso(arrived) for arrived in sorted(truth.again)],
            }
            rows.append(row | truth.as_json())
        return rows

    def _reached(self, told: list[Told]) -> dict[str, Any]:
        sealed = [
            (each.header.epoch, each.header.service_seconds)
            for each in self.accepted()
            if each.header.lane == SYSTEM
        ]
        return expected_uptime.reached(told, self.arrivals, sealed, self.as_of)

    def _delivery(self) -> list[dict[str, Any]]:
        found: defaultdict[int, list[int]] = defaultdict(list)
        for arrival in self.accepted():
            for level, latencies in arrival.content.latencies.items():
                found[level] += latencies
        return [
            {"qos": level, "events": len(each), **percentiles(each)}
            for level, each in sorted(found.items())
        ]

    def _lag(self) -> list[dict[str, Any]]:
        found: defaultdict[bool, list[int]] = defaultdict(list)
        for arrival in self.accepted():
            for clock, times in arrival.content.times.items():
                found[clock] += [arrival.arrived - time for time in times]
        return [
            {"clock": clock, "events": len(each), **percentiles(each)}
            for clock, each in sorted(found.items(), reverse=True)
        ]

    def _sensors(self) -> list[dict[str, Any]]:
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        heard: dict[tuple[str, str], int] = {}
        for arrival in self.accepted():
            heard |= arrival.content.heard
            for key, (number, total) in arrival.content.sums.items():
                before = sums.get(key, (0, 0))
                sums[key] = before[0] + number, before[1] + total
        return [
            {
                "source": source,
                "name": name,
                "readings": number,
                "sum": decimal(total),
                "last": iso(heard[source, name]),
            }
            for (source, name), (number, total) in sorted(sums.items())
        ]

    def _growth(self, told: list[Told]) -> dict[str, Any]:
        sizes = [(each.header.sealed_at, each.size) for each in self.accepted()]
        times = (
            time for each in self.accepted() for of in each.content.times.values() for time in of
        )
        return expected_work.growth(told, sizes, times, self.last().header.disk_used)
