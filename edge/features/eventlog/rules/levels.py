"""The levels of events, from the least to the most severe (XEP-0337, section 4, "type")."""

from __future__ import annotations

from typing import Final

LEVELS: Final = (
    "Debug",
    "Informational",
    "Notice",
    "Warning",
    "Error",
    "Critical",
    "Alert",
    "Emergency",
)

EXTENTS: Final = ("Minor", "Medium", "Major")
"""The extents of events (XEP-0337, section 5.2, attribute `level`)."""

RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}

INFORMATIONAL: Final = "Informational"
"""The level of an event without a level (XEP-0337, section 5.1)."""

NEVER: Final = "never"
"""Value of an option, in place of a level, that selects no events."""


def at_least(level: str) -> tuple[str, ...]:
    """Return a level and all more severe levels; return an empty tuple for `NEVER`."""
    return () if level == NEVER else LEVELS[RANKS[level] :]
