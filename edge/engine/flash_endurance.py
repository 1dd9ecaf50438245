"""Rules that estimate how long a flash card lasts at the rate at which it is written.

A card wears out by the bytes that its controller writes: those that the host writes, times an
unknown factor. Manufacturers rate the bytes that the host may write.
"""

from __future__ import annotations

from typing import Final

DEFAULT_WRITE_CYCLES: Final = 500
"""Assumed number of full writes of an unrated card. Cards for cameras, with three bits per cell,
are rated at 500 to 1,000 cycles and more; unrated cards are worse."""

DAY: Final = 86_400.0
YEAR: Final = 365.0
"""Days in a year."""

MIN_MEASURED_SECONDS: Final = 3_600.0
"""Minimum seconds of measurement for an estimate, because a start of the gateway writes more than
the hour after it."""


def endurance(rated: int, size: int) -> int:
    """Return the bytes that may be written to a card of `size` bytes: `rated`, if that is not 0."""
    return rated or DEFAULT_WRITE_CYCLES * size


def bytes_per_day(written: int, seconds: float) -> float | None:
    """Return the bytes written per day, or `None` if the measured time is too short."""
    return written / seconds * DAY if seconds >= MIN_MEASURED_SECONDS else None


def lifetime_years(endurance: int, per_day: float) -> float | None:
    """Return the years that a new card lasts, or `None` if nothing is written."""
    return endurance / per_day / YEAR if per_day > 0 else None
