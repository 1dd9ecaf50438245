"""The levels of events, as XEP-0337 has them (section 4, "type"), the least first."""

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

RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}

NEVER: Final = "never"
"""In place of a level where none is meant."""


def at_least(level: str) -> tuple[str, ...]:
    """Return a level and those above it; none for `NEVER`."""
    return () if level == NEVER else LEVELS[RANKS[level] :]
