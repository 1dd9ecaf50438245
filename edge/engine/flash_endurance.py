"""For how long a card will last, by what was written to it so far: an estimate.

A card wears out by what its controller writes, which is more than what it is given, and by how much
nobody is told; makers rate what may be given to it. What was written is measured elsewhere.
"""

from __future__ import annotations

from typing import Final

DEFAULT_WRITE_CYCLES: Final = 500
"""How often a card may be written in full where its maker does not say. Cards for cameras with
three bits a cell are rated at 500 to 1,000 times and more, those without a rating are worse."""

DAY: Final = 86_400.0
YEAR: Final = 365.0
"""Days."""

MIN_MEASURED_SECONDS: Final = 3_600.0
"""Seconds that have to be measured for an estimate: a start writes more than an hour after."""


def endurance(rated: int, size: int) -> int:
    """Return how many bytes may be written to a card of `size` bytes; `rated` if it is not 0."""
    return rated or DEFAULT_WRITE_CYCLES * size


def bytes_per_day(written: int, seconds: float) -> float | None:
    """Return the bytes a day at the rate of `written` bytes in `seconds`, if those tell enough."""
    return written / seconds * DAY if seconds >= MIN_MEASURED_SECONDS else None


def lifetime_years(endurance: int, per_day: float) -> float | None:
    """Return the years that a new card lasts; `None` where nothing is written."""
    return endurance / per_day / YEAR if per_day > 0 else None
