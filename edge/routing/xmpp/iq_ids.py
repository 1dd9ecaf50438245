"""The ids of the gateway's own iqs, which identify the request that a result or error answers.

An id names the gateway's epoch, the kind of the request (one letter) and the row that it was sent
for. A peer may send any id, so the feature has to check who answers. Source: RFC 6120, section
8.2.3.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

_MAX_DIGITS: Final = 18
"""Maximum digits of a row number, so that SQLite can hold it."""


class IqId(NamedTuple):
    """The parts of an id: the epoch, the kind of the request, and its row."""

    epoch: str
    kind: str
    row: int


def make(epoch: str, kind: str, row: int) -> str:
    """Return the id of an iq of the gateway's own."""
    return f"{epoch}-{row}-{kind}"


@lru_cache(maxsize=1)  # the router and the feature parse the same id
def parse(id: str) -> IqId | None:
    """Parse an id; return `None` if it cannot be one of the gateway's own."""
    epoch, dash, rest = id.partition("-")
    row, second_dash, kind = rest.partition("-")
    if not (dash and second_dash and row.isascii() and row.isdigit()) or len(row) > _MAX_DIGITS:
        return None
    return IqId(epoch, kind, int(row))
