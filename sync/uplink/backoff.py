"""How long to wait before the next try: full jitter, so that a fleet does not come back as one.

Pure: randomness is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

_DOUBLINGS = 30  # more only make numbers large: 2**30 s is beyond every bound


@dataclass(frozen=True, slots=True)
class Backoff:
    """Between which bounds tries are repeated."""

    least: float = 1.0
    """Seconds before any repeat: a centre that refuses is not asked faster."""

    most: float = 900.0
    """Seconds before a repeat at most: how long after an outage a gateway may be silent still."""

    denied: float = 60.0
    """Seconds from which to double where the centre does not know us: only a person mends that."""

    def __post_init__(self) -> None:
        """Refuse bounds that are not in order."""
        if not 0 < self.least <= self.denied <= self.most:
            raise ValueError("0 < least <= denied <= most")

    def delay(self, failures: int, chance: float) -> float:
        """Return seconds to wait after so many failures in a row (1 or more).

        `chance` is uniform in [0, 1): the wait is anywhere up to a bound that doubles.
        """
        return self._spread(2 * self.least, failures, chance)

    def delay_denied(self, failures: int, chance: float) -> float:
        """Return seconds to wait where the centre refused our token so many times in a row."""
        return max(self.denied / 2, self._spread(self.denied, failures, chance))

    def delay_told(self, after: float, failures: int, chance: float) -> float:
        """Return seconds to wait where the centre asked for `after` seconds: those and some more.

        What it asks for is bounded as everything is; the rest keeps a fleet from returning as one.
        """
        return min(self.most, max(0.0, after) + self.delay(failures, chance))

    def _spread(self, first: float, failures: int, chance: float) -> float:
        doubled = first * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS)
        return max(self.least, chance * min(self.most, doubled))
