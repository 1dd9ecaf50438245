"""Prometheus metrics: histograms, and the text exposition format, version 0.0.4.

Replaces prometheus_client, which takes 4 MB of memory and needs a process-wide registry. Format:
https://prometheus.io/docs/instrumenting/exposition_formats/.
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
    """A metric with all its samples; `name` is without the prefix that `exposition` adds."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, float]]
    """Pairs of a suffix (labels, `_sum`, ...) and a value."""


class Histogram:
    """A Prometheus histogram: counts of values by upper bounds.

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

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield the histogram's samples, as the `Family` needs them."""
        count = 0
        bounds = (*map(str, self.bounds), "+Inf")
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield f"_bucket{labels(le=bound)}", count
        yield "_sum", self.total
        yield "_count", count


def single(name: str, kind: str, meaning: str, value: float | None) -> Family:
    """Return a family with one sample without labels, or with no sample if `value` is None."""
    return Family(name, kind, meaning, [] if value is None else [("", value)])


def labels(**values: str) -> str:
    """Format labels. The values must not contain quotes, backslashes or line feeds."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in values.items()) + "}"


def exposition(prefix: str, families: Iterable[Family]) -> str:
    """Format metrics in the text exposition format; `prefix` is put before each name."""
    lines: list[str] = []
    for family in families:
        name = f"{prefix}{family.name}"
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{suffix} {value:.17g}" for suffix, value in family.samples]
    return "\n".join(lines) + "\n"
