"""Rules for a session's own presence: its priority, and the effects of available presence.

Source: RFC 6121, sections 4.2, 4.4 and 4.7.2.3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOWEST: Final = -128
HIGHEST: Final = 127

_INTEGER: Final = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,3})[ \t\r\n]*")


class Appearance(NamedTuple):
    """The effects of an available presence.

    `initial`: whether the session was unavailable before, so contacts' presence is sent to it.
    `takes`: whether the session starts to receive the account's messages.
    """

    initial: bool
    takes: bool


def priority(text: str | None) -> int | None:
    """Parse a priority from -128 to 127.

    Returns 0 for an empty text and `None` for an invalid one.
    """
    if not text:
        return 0
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    return number if LOWEST <= number <= HIGHEST else None


def appear(*, available: bool, before: int, now: int) -> Appearance:
    """Return the effects of an available presence.

    Args:
        available: whether the session was available before.
        before: the session's previous priority, if it was available.
        now: the session's new priority.
    """
    took = available and before >= 0
    return Appearance(not available, now >= 0 and not took)
