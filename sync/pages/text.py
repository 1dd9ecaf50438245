"""How figures are written for people: counts, shares, lengths of time, moments.

An absent value is a dash. A share is never rounded up to what it is not.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from sync.common.text import noun

ABSENT = "–"  # noqa: RUF001
UNCOUNTED = 1e15
"""From here on floats leave whole numbers out."""

_THIN_SPACE = "\u2009"


def count(number: float | None) -> str:
    """Write a whole number with its thousands apart."""
    return ABSENT if number is None else f"{int(number):,}".replace(",", _THIN_SPACE)


def figure(value: float) -> str:
    """Write a number of an axis, whole or not, with its thousands apart."""
    return f"{value:,.6g}".replace(",", _THIN_SPACE)


def share(value: float | None) -> str:
    """Write a share of 1 in per cent, rounded down: 100 % is said of the whole alone."""
    return ABSENT if value is None else f"{math.floor(round(value * 10_000, 6)) / 100:.2f} %"


def milliseconds(value: float | None) -> str:
    """Write milliseconds as such below ten seconds, and as a length of time above."""
    if value is None:
        return ABSENT
    return f"{count(value)} ms" if abs(value) < 10_000 else duration(value / 1000)


def duration(value: float | None) -> str:
    """Write seconds in the two largest units that they fill."""
    if value is None:
        return ABSENT
    if value < 0:
        return f"-{duration(-value)}"
    if value < 60:
        return f"{value:.3g} s"
    left = round(value)
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def size(value: int | None) -> str:
    """Write bytes in the largest unit of 1,024 that they fill."""
    if value is None:
        return ABSENT
    at = float(value)
    for unit in ("B", "KiB", "MiB"):
        if at < 1024:
            return f"{at:.0f} {unit}" if unit == "B" else f"{at:.1f} {unit}"
        at /= 1024
    return f"{at:.1f} GiB"


def moment(value: datetime | None) -> str:
    """Write a time in UTC, to the second."""
    return ABSENT if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def plain(value: object) -> str:
    """Write anything else as it is."""
    return ABSENT if value is None else str(value)


def spaced(value: object) -> str:
    """Write a word of the reports as people write it."""
    return plain(value).replace("_", " ")


def synchronised(value: object) -> str:
    """Write the state of a clock; a dash where it is not known."""
    if value is None:
        return ABSENT
    return "synchronised" if value else "not synchronised"


def level(value: int | None) -> str:
    """Write a level of quality of service with its name."""
    names = {0: "0 plain", 1: "1 acknowledged", 2: "2 assured"}
    return ABSENT if value is None else names.get(value, str(value))


def instant(seconds: float) -> str:
    """Write a time, given in seconds since 1970, with the word UTC."""
    return f"{moment(datetime.fromtimestamp(seconds, UTC))} UTC"


def yes_no(value: object) -> str:
    """Write whether something is so; a dash where that is not known."""
    return ABSENT if value is None else ("yes" if value else "no")


def decimal(value: float | None) -> str:
    """Write a number that is not whole, to three figures; one that nobody counts by its power."""
    if value is None:
        return ABSENT
    return count(value) if 1_000 <= abs(value) < UNCOUNTED else f"{value:.3g}"


def ppm(value: float | None) -> str:
    """Write a drift in parts per million, with its sign."""
    return ABSENT if value is None else f"{value:+.1f} ppm"


def signed(value: float | None) -> str:
    """Write a difference in seconds with its sign, as a length of time."""
    if value is None:
        return ABSENT
    return f"+{duration(value)}" if value > 0 else duration(value)


def days(value: float | None) -> str:
    """Write days, rounded down: more time is not promised than there is."""
    return ABSENT if value is None else f"{count(math.floor(value))} d"


def day(value: object) -> str:
    """Write a date."""
    return ABSENT if value is None else str(value)[:10]


def plural(number: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun."""
    return f"{count(number)} {noun(number, one, many)}"
