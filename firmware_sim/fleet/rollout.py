"""Compute what the report must show of software versions.

A segment is of one version, because a gateway stops and seals before an update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firmware_sim.fleet.times import iso


@dataclass
class VersionRun:
    """A version: its events, and those of level Error and above.

    `known` are the first and the last event while the clock was synchronised, `seen` those of all,
    in ms since 1970 UTC.
    """

    events: int = 0
    errors: int = 0
    known: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def add(self, errors: int, times: Mapping[bool, Sequence[int]]) -> None:
        """Add the events of a segment."""
        every = [time for of in times.values() for time in of]
        self.events += len(every)
        self.errors += errors
        self.known = _ends([*self.known, *times.get(True, ())])
        self.seen = _ends([*self.seen, *every])

    def __iadd__(self, other: VersionRun) -> VersionRun:
        self.events += other.events
        self.errors += other.errors
        self.known = _ends([*self.known, *other.known])
        self.seen = _ends([*self.seen, *other.seen])
        return self


def _ends(times: list[int]) -> list[int]:
    return [min(times), max(times)] if times else []


@dataclass
class Rollout:
    """All versions of a fleet."""

    _ran: dict[str, VersionRun] = field(default_factory=dict)
    _gateways: Counter[str] = field(default_factory=Counter)
    _current: Counter[str] = field(default_factory=Counter)
    _before: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, versions: dict[str, VersionRun], current: str) -> None:
        """Add the versions that one gateway ran, and its current one."""
        before = ""
        for name, ran in sorted(versions.items(), key=lambda each: each[1].seen[0]):
            self._ran.setdefault(name, VersionRun()).__iadd__(ran)
            self._gateways[name] += 1
            if before:
                self._before.setdefault(name, Counter())[before] += 1
            before = name
        self._current[current] += 1

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rows that `versions` must have, by version."""
        return [
            {
                "version": name,
                "gateways": self._gateways[name],
                "current": self._current[name],
                "first_seen": iso((ran.known or ran.seen)[0]),
                "last_seen": iso((ran.known or ran.seen)[1]),
                "events": ran.events,
                "errors": ran.errors,
                "before": self._most(name),
            }
            for name, ran in sorted(self._ran.items())
        ]

    def _most(self, name: str) -> str | None:
        """Return the version that most of its gateways ran before."""
        ran = self._before.get(name)
        return ran.most_common(1)[0][0] if ran else None
