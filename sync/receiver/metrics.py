"""Counters of the receiver.

No gateway is a label, so that a fleet of any size has the same number of time series.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from sync.common.metrics import Family, Histogram, labels, single

PREFIX: Final = "fieldpost_centre_"

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT"})

DURABLE_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds, in seconds, of the time a disk takes: from a fast one to one that soon fails."""

ARRIVED_S: Final = {"5m": 300.0, "1h": 3_600.0, "1d": 86_400.0}
"""How long ago, in seconds at most, a gateway's last request may be to count under a label."""


class Metrics:
    """Counts of one receiver since its start. Called from its event loop and its threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, int, str]] = Counter()
        self._segments: Counter[str] = Counter({"new": 0, "same": 0, "other": 0})
        self._durable = Histogram(DURABLE_S)
        self._turned_away: Counter[str] = Counter()
        self._arrivals: dict[str, float] = {}
        self.body_bytes = 0

    def answered(self, method: str, status: int, reason: str) -> None:
        """Count a request; `reason` is one of the receiver's words, or `ok`."""
        self._requests[method if method in METHODS else "other", status, reason] += 1

    def turned_away(self, reason: str) -> None:
        """Count a connection that was refused, or cut; `reason` is one of the receiver's words."""
        self._turned_away[reason] += 1

    def arrived(self, gateway: str) -> None:
        """Note that an enrolled gateway asked for something."""
        self._arrivals[gateway] = self._clock()

    def landed(self, outcome: str, seconds: float) -> None:
        """Count a segment by what became of it, and the time until it was durable."""
        self._segments[outcome] += 1
        self._durable.observe(seconds)

    def families(self, enrolled: int) -> Iterator[Family]:
        """All that is counted; `enrolled` gateways there are."""
        requests = (
            (labels(method=method, status=str(status), reason=reason), float(count))
            for (method, status, reason), count in sorted(self._requests.items())
        )
        yield Family("requests_total", "counter", "Requests, by their answer.", requests)
        away = ((labels(reason=each), float(n)) for each, n in sorted(self._turned_away.items()))
        meaning = "Connections that were refused or cut, by the reason."
        yield Family("connections_refused_total", "counter", meaning, away)
        yield single("body_bytes_total", "counter", "Bytes of bodies received.", self.body_bytes)
        segments = ((labels(outcome=each), float(n)) for each, n in self._segments.items())
        yield Family("segments_total", "counter", "Segments, by what became of them.", segments)
        meaning = "Seconds until a segment was durable: fsync of its file and its folders."
        yield Family("durable_seconds", "histogram", meaning, self._durable.samples())
        meaning = "Enrolled gateways, by their last request to this receiver since its start."
        yield Family("gateways", "gauge", meaning, self._by_arrival(enrolled))

    def _by_arrival(self, enrolled: int) -> Iterator[tuple[str, float]]:
        now = self._clock()
        ages = [now - at for at in list(self._arrivals.values())]
        before = 0
        for label, most in ARRIVED_S.items():
            within = sum(age <= most for age in ages)
            yield labels(last=label), within - before
            before = within
        yield labels(last="longer"), len(ages) - before
        yield labels(last="none"), max(0, enrolled - len(ages))
