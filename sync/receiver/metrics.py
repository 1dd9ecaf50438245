"""What the receiver counts, and the text in which Prometheus reads it.

The text is version 0.0.4 of Prometheus' format, written here: a library would bring a registry of
the whole process, for what takes a screen. No gateway is a label, so that a fleet of any size has
as many series. Counts alone: opens no socket and looks at no file.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

PREFIX: Final = "fieldpost_centre_"

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT"})

DURABLE_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds, in seconds, of the time a disk takes: from a fast one to one that soon fails."""

ARRIVED_S: Final = {"5m": 300.0, "1h": 3_600.0, "1d": 86_400.0}
"""How long ago, in seconds at most, a gateway's last request may be to count under a label."""


class Family(NamedTuple):
    """One metric: its name without the prefix, its kind and meaning, and its samples."""

    name: str
    kind: str
    meaning: str
    samples: Iterable[tuple[str, float]]
    """Of each: what follows the name (labels, a suffix), and the value."""


class Histogram:
    """How many values were at most as large as each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self) -> Iterator[tuple[str, float]]:
        """The samples of a family of kind `histogram`."""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'_bucket{{le="{bound}"}}', total
        yield "_sum", self._sum
        yield "_count", total


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


def single(name: str, kind: str, meaning: str, value: float) -> Family:
    """A family of one sample."""
    return Family(name, kind, meaning, [("", value)])


def labels(**values: str) -> str:
    """Write labels; all values are words of ours, which need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in values.items()) + "}"


def exposition(families: Iterable[Family]) -> str:
    """The text that Prometheus reads."""
    lines = []
    for family in families:
        name = f"{PREFIX}{family.name}"
        lines += [f"# HELP {name} {family.meaning}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{suffix} {value:.17g}" for suffix, value in family.samples]
    return "\n".join(lines) + "\n"
