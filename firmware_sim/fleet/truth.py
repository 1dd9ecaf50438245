"""The results that each report must show after all segments of a gateway, or fleet, arrived.

Written from docs/reference/reports.md, independently of the centre's code.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from firmware_sim.fleet import expected
from firmware_sim.fleet.contents import SYSTEM, SystemEvent
from firmware_sim.fleet.shipping import Delivery
from firmware_sim.fleet.times import decimal, iso, percentiles
from sync.segment import SegmentHeader

_NOTHING: Final = bytes(32)


@dataclass
class LaneTruth:
    """The accepted, repeated and contradicting segments of a lane in one epoch.

    The files of a gateway are processed in order of arrival.
    """

    accepted: dict[int, Delivery] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    followers: set[bytes] = field(default_factory=set)
    again: list[int] = field(default_factory=list)
    forks: dict[bytes, Delivery] = field(default_factory=dict)

    def take(self, arrival: Delivery) -> bool:
        """Record a segment as accepted, repeated or a fork; return whether it is accepted."""
        header = arrival.sealed.header
        same = self.accepted.get(header.first_seq)
        if same is not None and same.sealed.digest == arrival.sealed.digest:
            self.again.append(arrival.arrived)
        elif header.previous in self.followers or self._overlaps(header):
            self.forks.setdefault(arrival.sealed.digest, arrival)
        else:
            insort(self.starts, header.first_seq)
            self.accepted[header.first_seq] = arrival
            self.followers.add(header.previous)
            return True
        return False

    def _overlaps(self, header: SegmentHeader) -> bool:
        at = bisect_right(self.starts, header.last_seq) - 1
        if at < 0:
            return False
        return self.accepted[self.starts[at]].sealed.header.last_seq >= header.first_seq

    def as_json(self) -> dict[str, Any]:
        """Return the lane's row of the table `completeness`, without the column `state`."""
        headers = [self.accepted[start].sealed.header for start in self.starts]
        received = sum(header.count for header in headers)
        last = headers[-1].last_seq if headers else 0
        holes = self._holes()
        events = {n for h in headers for d in h.dropped for n in range(d.first_seq, d.last_seq + 1)}
        declared = sum(len(events.intersection(range(*hole))) for hole in holes)
        return {
            "first": headers[0].first_seq if headers else None,
            "last": last or None,
            "expected": last,
            "received": received,
            "missing": last - received,
            "declared": declared,
            "unexplained": last - received - declared,
            "repeated": len(self.again),
            "forks": len(self.forks),
            "chain_breaks": self._breaks(),
        }

    def _holes(self) -> list[tuple[int, int]]:
        """Return the missing ranges of sequence numbers as (first, last + 1)."""
        holes, expected = [], 1
        for start in self.starts:
            if start > expected:
                holes.append((expected, start))
            expected = self.accepted[start].sealed.header.last_seq + 1
        return holes

    def _breaks(self) -> int:
        """Count segments whose `previous` is not the digest of the segment directly before."""
        breaks, expected, digest = 0, 1, _NOTHING
        for start in self.starts:
            each = self.accepted[start]
            breaks += start == expected and each.sealed.header.previous != digest
            expected, digest = each.sealed.header.last_seq + 1, each.sealed.digest
        return breaks


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
    bad: list[Delivery] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)

    def take(self, arrivals: Iterable[Delivery]) -> None:
        """Record the outcome of all arrivals, in order of arrival."""
        for arrival in sorted(arrivals, key=lambda each: (each.arrived, each.path)):
            self.files += 1
            if arrival.damaged:
                self.bad.append(arrival)
                continue
            self.arrivals.append(arrival.arrived)
            header = arrival.sealed.header
            lane = self.lanes.setdefault((header.epoch, header.lane), LaneTruth())
            if lane.take(arrival):
                for kind, number in arrival.sealed.content.kinds.items():
                    self.kinds[header.lane, kind] += number

    def accepted(self) -> Iterator[Delivery]:
        """Generate all accepted segments, lane by lane, by ascending sequence numbers."""
        for _, lane in sorted(self.lanes.items()):
            yield from (lane.accepted[start] for start in lane.starts)

    def events(self) -> list[SystemEvent]:
        """Return all events of the lane `system` in order."""
        return [each for arrival in self.accepted() for each in arrival.sealed.content.events]

    def versions(self) -> dict[str, VersionRun]:
        """Return the events of each software version of the gateway."""
        found: defaultdict[str, VersionRun] = defaultdict(VersionRun)
        for arrival in self.accepted():
            times = arrival.sealed.content.times
            seen = [time for of in times.values() for time in of]
            run = found[arrival.sealed.header.software]
            run.add(len(seen), arrival.sealed.content.errors, times.get(True, ()), seen)
        return dict(found)

    def last(self) -> Delivery:
        """Return the accepted segment that was sealed last."""
        sealed = attrgetter("sealed.header.epoch", "sealed.header.service_seconds")
        return max(self.accepted(), key=sealed)

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
            "sessions": expected.sessions(events),
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
            closed = end is not None and (end.event.kind, end.event.name) == ("system", "stop")
            last = truth.accepted[truth.starts[-1]].sealed.content.until if truth.starts else None
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
            (each.sealed.header.epoch, each.sealed.header.service_seconds)
            for each in self.accepted()
            if each.sealed.header.lane == SYSTEM
        ]
        return expected.arrivals_and_state(events, self.arrivals, sealed, self.as_of)

    def _delivery(self) -> list[dict[str, Any]]:
        found: defaultdict[int, list[int]] = defaultdict(list)
        for arrival in self.accepted():
            for level, latencies in arrival.sealed.content.latencies.items():
                found[level] += latencies
        return [
            {"qos": level, "events": len(each), **percentiles(each)}
            for level, each in sorted(found.items())
        ]

    def _lag(self) -> list[dict[str, Any]]:
        found: defaultdict[bool, list[int]] = defaultdict(list)
        for arrival in self.accepted():
            for clock, times in arrival.sealed.content.times.items():
                found[clock] += [arrival.arrived - time for time in times]
        return [
            {"clock": clock, "events": len(each), **percentiles(each)}
            for clock, each in sorted(found.items(), reverse=True)
        ]

    def _sensors(self) -> list[dict[str, Any]]:
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        latest: dict[tuple[str, str], int] = {}
        for arrival in self.accepted():
            latest |= arrival.sealed.content.latest
            for key, (number, total) in arrival.sealed.content.sums.items():
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
        sizes = [(each.sealed.header.sealed_at, each.size) for each in self.accepted()]
        times = (
            expected.counted_at(time, each.arrived)
            for each in self.accepted()
            for of in each.sealed.content.times.values()
            for time in of
        )
        return expected.growth(events, sizes, times, self.last().sealed.header.disk_used)


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
