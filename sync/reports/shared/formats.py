"""Formatting of numbers, durations and times for people.

An absent value is written as a dash, one that cannot be right as `unknown`. A percentage is rounded
down, so that only the whole is written as 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from sync.common.text import noun
from sync.reports.shared.thresholds import FORECAST_D

ABSENT = "–"  # noqa: RUF001 - an en dash is meant
UNKNOWN = "unknown"
EXPONENT_FROM = 1e15
"""Floats from this number on are written with an exponent."""

_NARROW_SPACE = "\u202f"
_SECONDS = "%Y-%m-%d %H:%M:%S"
_QOS = {0: "0 plain", 1: "1 acknowledged", 2: "2 assured"}


def count(number: float | None) -> str:
    """Format a whole number with separated thousands."""
    return ABSENT if number is None else f"{int(number):,}".replace(",", _NARROW_SPACE)


def axis_number(value: float) -> str:
    """Format a number on the axis of a plot, with separated thousands."""
    return f"{value:,.6g}".replace(",", _NARROW_SPACE)


def decimal(value: float | None) -> str:
    """Format a fractional number with three significant digits."""
    if value is None:
        return ABSENT
    return count(value) if 1_000 <= abs(value) < EXPONENT_FROM else f"{value:.3g}"


def percentage(share: float | None) -> str:
    """Format a share (0 to 1) in per cent, rounded down."""
    return ABSENT if share is None else f"{math.floor(round(share * 10_000, 6)) / 100:.2f} %"


def or_unknown(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a format that writes an absent value as `unknown`, and others as `write` does."""
    return lambda value: UNKNOWN if value is None else write(value)


def ppm(value: float | None) -> str:
    """Format a drift in parts per million, with its sign."""
    return ABSENT if value is None else f"{value:+.1f} ppm"


def size(value: float | None) -> str:
    """Format a number of bytes in the largest binary unit that it fills."""
    if value is None:
        return ABSENT
    if value < 0:
        return f"-{size(-value)}"
    scaled = float(value)
    for unit in ("B", "KiB", "MiB"):
        if scaled < 1024:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} GiB"


def duration(seconds: float | None) -> str:
    """Format seconds in at most two units, such as `1 h 5 min`."""
    if seconds is None:
        return ABSENT
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3g} s"
    left = round(seconds)
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def signed_duration(seconds: float | None) -> str:
    """Format a difference in seconds with its sign."""
    if seconds is None:
        return ABSENT
    return f"+{duration(seconds)}" if seconds > 0 else duration(seconds)


def milliseconds(value: float | None) -> str:
    """Format milliseconds: as milliseconds below ten seconds, as a duration above."""
    if value is None:
        return ABSENT
    return f"{count(value)} ms" if abs(value) < 10_000 else duration(value / 1000)


def days(value: float | None) -> str:
    """Format the days of a forecast, rounded down; more than `FORECAST_D` as `over 400 d`."""
    if value is None:
        return ABSENT
    return f"over {FORECAST_D} d" if value > FORECAST_D else f"{count(math.floor(value))} d"


def moment(value: datetime | None, zone: tzinfo = UTC) -> str:
    """Format a time to the second, followed by the zone's abbreviation unless the zone is UTC."""
    if value is None:
        return ABSENT
    return f"{value.astimezone(UTC):{_SECONDS}}" if zone is UTC else named_moment(value, zone)


def named_moment(value: datetime, zone: tzinfo = UTC) -> str:
    """Format a time to the second, always followed by the zone's abbreviation at that time."""
    local = value.astimezone(zone)
    name = local.strftime("%Z")
    return f"{local:{_SECONDS}} {name if name.isalpha() else f'UTC{name}'}"


def zone_name(zone: tzinfo) -> str:
    """Return the name of a time zone, such as `UTC` or `Europe/Berlin`."""
    return "UTC" if zone is UTC else str(zone)


def plain(value: object) -> str:
    """Format a value that needs no special format."""
    return ABSENT if value is None else str(value)


def yes_no(value: object) -> str:
    """Format a flag as `yes` or `no`."""
    return ABSENT if value is None else ("yes" if value else "no")


def synchronised(value: object) -> str:
    """Format whether a clock is synchronised."""
    if value is None:
        return ABSENT
    return "synchronised" if value else "not synchronised"


def qos(value: int | None) -> str:
    """Format a level of quality of service with its name."""
    return ABSENT if value is None else _QOS.get(value, str(value))


def plural(number: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun."""
    return f"{count(number)} {noun(number, one, many)}"
