"""Check the times that devices give: they are kept as text, and never used in calculations."""

from __future__ import annotations

import calendar
import re
from typing import Final

_DATE: Final = r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK: Final = r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?|24:00:00)"
_ZONE: Final = r"(?:Z|[+-](?:0[0-9]|1[0-4]):?[0-5][0-9])?"
_TIME: Final = re.compile(f"\\s*{_DATE}[T ]{_CLOCK}{_ZONE}\\s*", re.ASCII)

_LAST_SURE_DAY: Final = "28"
"""Every month has the days up to this one."""

_USUAL: Final = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3})?Z"
)
"""The form of most times, which is checked in less time than `_TIME`."""

SHOWN: Final = 40
"""Maximum characters of a device's value that the reason of a refusal repeats."""


def find_fault(text: str) -> str:
    """Return why a text is not a date and time (XEP-0082), or "" if it is.

    A missing time zone is allowed, as in XEP-0323, and so is one without a colon.
    """
    if _USUAL.fullmatch(text):
        return ""
    match = _TIME.fullmatch(text)
    if match is not None:
        year, month, day = match.groups()
        if day <= _LAST_SURE_DAY or int(day) <= _days(int(year), int(month)):
            return ""
    return f"timestamp {text[:SHOWN]!r} is not a time such as 2026-06-07T16:24:30Z"


def _days(year: int, month: int) -> int:
    """Return the number of days of a month; the year 0 is a leap year, as in ISO 8601."""
    return calendar.monthrange(year or 4, month)[1]
