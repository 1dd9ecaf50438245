"""What was refused where no unit of work ran: counted here, told with the next heartbeat.

Connections too many, streams ended for what they sent, failed log-ins, a database that had no room:
to write an event for each would let a stranger fill the log. The rules are few and named by the
gateway; the sources told apart are bounded here, and folded by `store.refusals`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from edge.engine.refusal_log import OTHER_SOURCE

SOURCES: Final = 200
"""Sources and rules that are told apart from one heartbeat to the next, the rest as `other`: a part
of `limits.refusal_sources`, so that strangers leave room there for those who have an account."""


class Refusal(NamedTuple):
    """Who was refused something, and by which rule: a bare JID, or an address as `throttle.source`
    gives it."""

    source: str
    rule: str


class Tally:
    """How often each rule refused something, since it was last told."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sources: Counter[Refusal] = Counter()

    def add(self, rule: str, times: int = 1, source: str = "") -> None:
        """Count `times` refusals by `rule`, of a source if there is one."""
        if source:
            self._add(Refusal(source, rule), times)
        else:
            self._counts[rule] += times

    def _add(self, refusal: Refusal, times: int) -> None:
        if refusal not in self._sources and len(self._sources) >= SOURCES:
            refusal = refusal._replace(source=OTHER_SOURCE)
        self._sources[refusal] += times

    def take(self) -> Counter[str]:
        """Return what was counted without a source, and begin anew."""
        counts, self._counts = self._counts, Counter()
        return counts

    def take_sources(self) -> Counter[Refusal]:
        """Return what was counted of sources, and begin anew."""
        sources, self._sources = self._sources, Counter()
        return sources

    def put_back(self, counts: Counter[str], sources: Counter[Refusal]) -> None:
        """Count what was taken and could not be told."""
        self._counts += counts
        for refusal, times in sources.items():
            self._add(refusal, times)
