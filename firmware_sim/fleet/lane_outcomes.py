"""Compute the outcome at the centre of each file of a lane: accepted, repeated, fork or bad.

The files of a gateway are processed in order of arrival. Written from docs/reference/reports.md,
independently of the centre's code.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.fleet.times import iso

if TYPE_CHECKING:
    from firmware_sim.fleet.contents import Content
    from sync.segment import SegmentHeader

_NOTHING: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file of `size` bytes that arrived at the centre.

    If it is `bad`, the other fields describe the segment of which it is a damaged copy.
    """

    arrived: int
    path: str
    header: SegmentHeader
    digest: bytes
    content: Content
    size: int
    bad: bool = False

    def as_json(self, fate: str) -> dict[str, Any]:
        """Return the file's row in the report's table `quarantine`; `fate` is `bad` or `fork`."""
        return {"path": self.path, "arrived": iso(self.arrived), "size": self.size, "fate": fate}


@dataclass
class LaneTruth:
    """The accepted, repeated and contradicting segments of a lane in one epoch."""

    accepted: dict[int, Arrival] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    followers: set[bytes] = field(default_factory=set)
    again: list[int] = field(default_factory=list)
    forks: dict[bytes, Arrival] = field(default_factory=dict)

    def take(self, arrival: Arrival) -> bool:
        """Record a segment as accepted, repeated or a fork; return whether it is accepted."""
        header = arrival.header
        same = self.accepted.get(header.first_seq)
        if same is not None and same.digest == arrival.digest:
            self.again.append(arrival.arrived)
        elif header.previous in self.followers or self._overlaps(header):
            self.forks.setdefault(arrival.digest, arrival)
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
        """Return the lane's row of the table `completeness`, without the column `state`."""
        headers = [self.accepted[start].header for start in self.starts]
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
            expected = self.accepted[start].header.last_seq + 1
        return holes

    def _breaks(self) -> int:
        """Count segments whose `previous` is not the digest of the segment directly before."""
        breaks, expected, digest = 0, 1, _NOTHING
        for start in self.starts:
            each = self.accepted[start]
            breaks += start == expected and each.header.previous != digest
            expected, digest = each.header.last_seq + 1, each.digest
        return breaks
