"""Presence: what a priority is, and what a session's own presence brings about.

Who sees it is decided in `access`; nothing is sent here. Source: RFC 6121, sections 4.2, 4.4 and
4.7.2.3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOWEST: Final = -128
HIGHEST: Final = 127

_INTEGER: Final = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,3})[ \t\r\n]*")


class Appearance(NamedTuple):
    """What follows from a session's available presence.

    `initial`: it is the first, so that the session is told of others; `takes`: from now on it gets
    the account's messages, and did not before.
    """

    initial: bool
    takes: bool


def priority(text: str | None) -> int | None:
    """Read a priority, -128 to 127; `None` if it is none. An element without text says 0."""
    if not text:
        return 0
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    return number if LOWEST <= number <= HIGHEST else None


def appear(*, available: bool, before: int, now: int) -> Appearance:
    """Tell what an available presence brings about.

    Args:
        available: the session has sent such a presence before.
        before: its priority, if it has.
        now: the priority of this one.
    """
    took = available and before >= 0
    return Appearance(not available, now >= 0 and not took)
