"""What must become of each file at the centre, by docs/reports.md: the truth to hold it against.

Works on what arrives of one gateway, in the order of arrival. It is written from the document, not
from the centre's code, of which it knows nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firmware_sim.fleet.sealing import Content
    from sync.format import SegmentHeader

_NOTHING: Final = bytes(32)
_PERCENTILES: Final = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file that arrived: what its segment is and holds; a `bad` one is none."""

    arrived: int
    path: str
    header: SegmentHeader
    digest: bytes
    content: Content
    bad: bool = False


@dataclass
class LaneTruth:
    """What is accepted of a lane, and how much was not."""

    accepted: dict[int, Arrival] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    followers: set[bytes] = field(default_factory=set)
    repeated: int = 0
    forks: set[bytes] = field(default_factory=set)

    def take(self, arrival: Arrival) -> bool:
        """Give a segment its fate; true if it is accepted."""
        header = arrival.header
        same = self.accepted.get(header.first_seq)
        if same is not None and same.digest == arrival.digest:
            self.repeated += 1
        elif header.previous in self.followers or self._overlaps(header):
            self.forks.add(arrival.digest)
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
        return self.accepted[self.starts[at]].header.last_seq >= header.first_seq

    def as_json(self) -> dict[str, Any]:
        """Give the row that the report on completeness must have."""
        headers = [self.accepted[start].header for start in self.starts]
        received = sum(header.count for header in headers)
        last = headers[-1].last_seq if headers else 0
        holes = self._holes()
        told = {n for h in headers for d in h.dropped for n in range(d.first_seq, d.last_seq + 1)}
        declared = sum(len(told.intersection(range(*hole))) for hole in holes)
        return {
            "first": headers[0].first_seq if headers else None,
            "last": last or None,
            "expected": last,
            "received": received,
            "missing": last - received,
            "declared": declared,
            "unexplained": last - received - declared,
            "repeated": self.repeated,
            "forks": len(self.forks),
            "chain_breaks": self._breaks(),
        }

    def _holes(self) -> list[tuple[int, int]]:
        """Give the ranges that are missing, their ends excluded."""
        holes, expected = [], 1
        for start in self.starts:
            if start > expected:
                holes.append((expected, start))
            expected = self.accepted[start].header.last_seq + 1
        return holes

    def _breaks(self) -> int:
        """Count segments that come right behind another one, and do not name its digest."""
        breaks, expected, digest = 0, 1, _NOTHING
        for start in self.starts:
            each = self.accepted[start]
            breaks += start == expected and each.header.previous != digest
            expected, digest = each.header.last_seq + 1, each.digest
        return breaks


@dataclass
class GatewayTruth:
    """All that is true of one gateway once everything arrived."""

    name: str
    lanes: dict[tuple[str, str], LaneTruth] = field(default_factory=dict)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    latencies: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    files: int = 0
    segments: int = 0
    bad: int = 0

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Give all that arrived its fate, what came first before what came later."""
        for arrival in sorted(arrivals, key=lambda each: (each.arrived, each.path)):
            self.files += 1
            if arrival.bad:
                self.bad += 1
                continue
            header = arrival.header
            lane = self.lanes.setdefault((header.epoch, header.lane), LaneTruth())
            if lane.take(arrival):
                self._add(header.lane, arrival.content)

    def _add(self, lane: str, content: Content) -> None:
        self.segments += 1
        for kind, number in content.kinds.items():
            self.kinds[lane, kind] += number
        for level, latencies in content.latencies.items():
            self.latencies[level] += latencies
        for key, (number, total) in content.sums.items():
            before = self.sums.get(key, (0, 0))
            self.sums[key] = before[0] + number, before[1] + total

    def as_json(self) -> dict[str, Any]:
        """Give what truth.json says of the gateway."""
        return {
            "gateway": self.name,
            "files": self.files,
            "segments": self.segments,
            "bad": self.bad,
            "lanes": [
                {"epoch": epoch, "lane": lane, **truth.as_json()}
                for (epoch, lane), truth in sorted(self.lanes.items())
            ],
            "delivery": [
                {"qos": level, "events": len(found), **percentiles(found)}
                for level, found in sorted(self.latencies.items())
            ],
            "sensors": [
                {"source": source, "name": name, "readings": number, "sum": decimal(total)}
                for (source, name), (number, total) in sorted(self.sums.items())
            ],
        }


def percentiles(values: list[int]) -> dict[str, int]:
    """Give p50, p95, p99 and the maximum by nearest rank."""
    ordered = sorted(values)
    ranks = {f"p{share}_ms": -(-share * len(ordered) // 100) for share in _PERCENTILES}
    return {**{name: ordered[rank - 1] for name, rank in ranks.items()}, "max_ms": ordered[-1]}


def decimal(millionths: int) -> str:
    """Write a number of millionths as a decimal, exactly."""
    sign, digits = "-" if millionths < 0 else "", abs(millionths)
    return f"{sign}{digits // 1_000_000}.{digits % 1_000_000:06d}"
