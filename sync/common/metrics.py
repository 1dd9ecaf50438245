"""Prometheus metrics: histograms, and the text exposition format, version 0.0.4.

Written here because prometheus_client costs 4 MB of memory and a registry of the whole process.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Family(NamedTuple):
    """A metric with all its samples; the name has no prefix yet."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, float]]
    """Pairs of a suffix (labels, `_sum`, ...) and a value."""


class Histogram:
    """Counts of values by upper bounds.

    Attributes:
        bounds: the upper bounds, ascending.
        total: the sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, infinity last, and the number of values up to it."""
        yield from zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True)

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield the samples of a family of kind `HISTOGRAM`."""
        count = 0
        for bound, count in self.cumulative():
            yield f"_bucket{labels(le='+Inf' if bound == float('inf') else str(bound))}", count
        yield "_sum", self.total
        yield "_count", count


def single(name: str, kind: str, meaning: str, value: float | None) -> Family:
    """Return a family of one sample without labels, or of none when the value is unknown."""
    return Family(name, kind, meaning, [] if value is None else [("", value)])


def labels(**values: str) -> str:
    """Format labels. The values must need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in values.items()) + "}"


def exposition(prefix: str, families: Iterable[Family]) -> str:
    """Format metrics as Prometheus reads them; `prefix` begins each name."""
    lines: list[str] = []
    for family in families:
        name = f"{prefix}{family.name}"
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{suffix} {value:.17g}" for suffix, value in family.samples]
    return "\n".join(lines) + "\n"
