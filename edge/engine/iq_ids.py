"""The ids of the gateway's own iqs, by which their answers find back.

An id names the epoch of the gateway, what was asked (a kind, one letter) and the row that it was
asked for. Whether an answer comes from whom was asked is for the feature to check: a peer may send
any id. Source: RFC 6120, section 8.2.3.
"""

from __future__ import annotations

from typing import NamedTuple


class IqId(NamedTuple):
    """What an id says: the epoch, the kind, and the row."""

    epoch: str
    kind: str
    row: int


def make(epoch: str, kind: str, row: int) -> str:
    """Make the id of an iq of the gateway's own."""
    return f"{epoch}-{row}-{kind}"


def parse(id: str) -> IqId | None:
    """Read an id that may be one of the gateway's own, or of some peer's."""
    epoch, dash, rest = id.partition("-")
    row, also, kind = rest.partition("-")
    if not (dash and also and row.isascii() and row.isdigit()) or len(row) > _DIGITS:
        return None
    return IqId(epoch, kind, int(row))


_DIGITS = 18
"""Of a row: what SQLite holds."""
