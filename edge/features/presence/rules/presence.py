"""Rules for a session's own presence: its priority (RFC 6121, sections 4.7.2.3 and 8.5.2.1)."""

from __future__ import annotations

import re
from typing import Final

LOWEST: Final = -128
HIGHEST: Final = 127

_INTEGER: Final = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,3})[ \t\r\n]*")


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


def accepts_messages(priority: int) -> bool:
    """Return whether a session with a priority gets its account's messages (section 8.5.2.1)."""
    return priority >= 0
