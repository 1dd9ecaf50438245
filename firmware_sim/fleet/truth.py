"""The results that each report must show after all segments of a gateway, or fleet, arrived.

Written from docs/reference/reports.md, independently of the centre's code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firmware_sim.fleet import expected
from firmware_sim.fleet.contents import SYSTEM, SystemEvent
from firmware_sim.fleet.lane_outcomes import Arrival, LaneTruth
from firmware_sim.fleet.times import decimal, iso, percentiles


@dataclass
class VersionRun:
    """The events of a software version: how many there are, and when they happened.

    All events of a segment are of one version, because a gateway seals when it stops for an update.

    `errors` is the number of events of level Error and above. `seen` has the times of the first and
    the last event, `known` those of the first and the last event with a synchronised clock, in
    milliseconds since 1970 UTC.
    """

    events: int = 0
    errors: int = 0
    known: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def add(self, events: int, errors: int, known: Iterable[int], seen: Iterable[int]) -> None:
        """Add further events, whose counts and times are given as in the fields of these names."""
        self.events += events
        self.errors += errors
        self.known = _ends([*self.known, *known])
        self.seen = _ends([*self.seen, *seen])


def _ends(times: list[int]) -> list[int]:
    return [min(times), max(times)] if times else []


@dataclass
class GatewayTruth:
    """A gateway's arrived segments, and its expected results at `as_of` (ms since 1970 UTC)."""

    name: str
    as_of: int
    lanes: dict[tuple[str, str], LaneTruth] = field(default_factory=dict)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    files: int = 0
    bad: list[Arrival] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Record the outcome of all arrivals, in order of arrival."""
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
        """Generate all accepted segments, lane by lane, by ascending sequence numbers."""
        for _, lane in sorted(self.lanes.items()):
            yield from (lane.accepted[start] for start in lane.starts)

    def events(self) -> list[SystemEvent]:
        """Return all events of the lane `system` in order."""
        return [each for arrival in self.accepted() for each in arrival.content.events]

    def versions(self) -> dict[str, VersionRun]:
        """Return the events of each software version of the gateway."""
        found: defaultdict[str, VersionRun] = defaultdict(VersionRun)
        for arrival in self.accepted():
            times = arrival.content.times
            seen = [time for of in times.values() for time in of]
            run = found[arrival.header.software]
            run.add(len(seen), arrival.content.errors, times.get(True, ()), seen)
        return dict(found)

    def last(self) -> Arrival:
        """Return the accepted segment that was sealed last."""
        return max(
            self.accepted(), key=lambda each: (each.header.epoch, each.header.service_seconds)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the gateway's object in truth.json."""
        events = self.events()
        forks = [fork for lane in self.lanes.values() for fork in lane.forks.values()]
        return {
            "gateway": self.name,
            "files": self.files,
            "segments": sum(len(lane.starts) for lane in self.lanes.values()),
            "bad": len(self.bad),
            "lanes": self._lanes(events),
            "refused": [
                *(each.as_json("bad") for each in self.bad),
                *(each.as_json("fork") for each in forks),
            ],
            "availability": expected.availability(events) | self._arrivals(events),
            "outages": expected.outages(events),
            "clock": expected.clock(events),
            "delivery": self._delivery(),
            "lag": self._lag(),
            "sensors": self._sensors(),
            "queues": expected.queues(events),
            "refusals": expected.refusals(events),
            "repeats": expected.repeats(events),
            "notices": expected.notices(events),
            "growth": self._growth(events),
        }

    def _lanes(self, events: list[SystemEvent]) -> list[dict[str, Any]]:
        latest = max(epoch for epoch, _ in self.lanes)
        ends = {each.epoch: each for each in events}
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

    def _arrivals(self, events: list[SystemEvent]) -> dict[str, Any]:
        sealed = [
            (each.header.epoch, each.header.service_seconds)
            for each in self.accepted()
            if each.header.lane == SYSTEM
        ]
        return expected.arrivals_and_state(events, self.arrivals, sealed, self.as_of)

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
        latest: dict[tuple[str, str], int] = {}
        for arrival in self.accepted():
            latest |= arrival.content.latest
            for key, (number, total) in arrival.content.sums.items():
                before = sums.get(key, (0, 0))
                sums[key] = before[0] + number, before[1] + total
        return [
            {
                "source": source,
                "name": name,
                "readings": number,
                "sum": decimal(total),
                "last": iso(latest[source, name]),
            }
            for (source, name), (number, total) in sorted(sums.items())
        ]

    def _growth(self, events: list[SystemEvent]) -> dict[str, Any]:
        sizes = [(each.header.sealed_at, each.size) for each in self.accepted()]
        times = (
            expected.counted_at(time, each.arrived)
            for each in self.accepted()
            for of in each.content.times.values()
            for time in of
        )
        return expected.growth(events, sizes, times, self.last().header.disk_used)


@dataclass
class Rollout:
    """The software versions of a fleet: the rows of the report's table `versions`."""

    _runs: dict[str, VersionRun] = field(default_factory=dict)
    _gateways: Counter[str] = field(default_factory=Counter)
    _current: Counter[str] = field(default_factory=Counter)
    _before: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, versions: dict[str, VersionRun], current: str) -> None:
        """Add the versions that one gateway has run, and the version that it runs at the end."""
        before = ""
        for name, run in sorted(versions.items(), key=lambda each: each[1].seen[0]):
            of_all = self._runs.setdefault(name, VersionRun())
            of_all.add(run.events, run.errors, run.known, run.seen)
            self._gateways[name] += 1
            if before:
                self._before.setdefault(name, Counter())[before] += 1
            before = name
        self._current[current] += 1

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rows that `versions` must have, sorted by version."""
        return [
            {
                "version": name,
                "gateways": self._gateways[name],
                "current": self._current[name],
                "first_seen": iso((run.known or run.seen)[0]),
                "last_seen": iso((run.known or run.seen)[1]),
                "events": run.events,
                "errors": run.errors,
                "before": self._most(name),
            }
            for name, run in sorted(self._runs.items())
        ]

    def _most(self, name: str) -> str | None:
        """Return the version that most gateways ran directly before this one, or None."""
        ran = self._before.get(name)
        return ran.most_common(1)[0][0] if ran else None
