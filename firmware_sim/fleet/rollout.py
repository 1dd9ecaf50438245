"""Compute the rows of the report's table `versions`, on software versions.

All events of a segment are from one version, because a gateway seals when it stops for an update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from firmware_sim.fleet.times import iso


@dataclass
class VersionRun:
    """The events of a software version: how many there are, and when they happened.

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
class Rollout:
    """The software versions of a fleet."""

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
