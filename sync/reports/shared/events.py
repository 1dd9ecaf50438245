"""Levels of events, and column expressions that read events (docs/reference/events.md)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

MAX_COUNT: Final = 1_000_000_000_000
"""The highest count that is accepted from a gateway: sums of such counts do not overflow."""

ERROR_LEVELS: Final = ("Error", "Critical", "Alert", "Emergency")
"""The levels of log events (XEP-0337, section 4, "type") that count as errors."""

LEVELS: Final = ("Debug", "Informational", "Notice", "Warning", *ERROR_LEVELS)
"""All levels, from the least to the most severe."""


def count_of(value: Column) -> Column:
    """Parse a count that a gateway sent as text or float; null if it is not a valid count."""
    number = value.try_cast("double")
    return F.when(number.between(0, MAX_COUNT), number.cast("long"))


def text_tag(name: str) -> Column:
    """Return an event's tag; null if it is absent."""
    return F.element_at("tags", F.lit(name))


def tag(name: str) -> Column:
    """Parse an event's tag as a count; null if the tag is absent or not a valid count."""
    return count_of(text_tag(name))


def occurrences() -> Column:
    """Return an event's value as a number of occurrences; 1 if the value is not a valid count."""
    return F.coalesce(count_of(F.col("value")), F.lit(1))


def is_system_event(kind: str, *names: str) -> Column:
    """Return whether an event of the system lane has this kind and, if given, one of the names."""
    found = (F.col("lane") == "system") & (F.col("kind") == kind)
    return found & F.col("name").isin(*names) if names else found
