"""Who may have how much in what a session has been sent and has not taken yet.

What others send shares one half of a session's buffer, and one source's at most a quarter of it: so
nobody fills it for the others, and there is room for what the gateway itself has for the session.
Whoever has nothing there may have one stanza, however large. What becomes of a stanza that does not
fit is not decided here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HALF: Final = 2
QUARTER: Final = 4


class Room(NamedTuple):
    """So many stanzas, and so many bytes."""

    stanzas: int
    bytes: int

    def of(self, part: int) -> Room:
        """Return one part in so many."""
        return Room(self.stanzas // part, self.bytes // part)

    def takes(self, there: Room, size: int) -> bool:
        """Tell whether a stanza of `size` bytes has room beside what is there: the first has."""
        if not there.stanzas:
            return True
        return there.stanzas < self.stanzas and there.bytes + size <= self.bytes


NOTHING: Final = Room(0, 0)


class Shares:
    """What others have in one session's buffer; `room` is the whole of it."""

    __slots__ = ("_by_source", "_each", "_most", "all")

    def __init__(self, room: Room) -> None:
        self._most = room.of(HALF)
        self._each = room.of(QUARTER)
        self._by_source: dict[bytes, Room] = {}
        self.all = NOTHING

    def fits(self, source: bytes, size: int) -> bool:
        """Tell whether a stanza of a source, of `size` bytes, has room."""
        there = self._by_source.get(source, NOTHING)
        return self._most.takes(self.all, size) and self._each.takes(there, size)

    def add(self, source: bytes, size: int) -> None:
        """Note a stanza that is in the buffer now."""
        self._count(source, 1, size)

    def remove(self, source: bytes, size: int) -> None:
        """Note that a stanza is there no more."""
        self._count(source, -1, -size)

    def _count(self, source: bytes, stanzas: int, size: int) -> None:
        there = self._by_source.get(source, NOTHING)
        self.all = Room(self.all.stanzas + stanzas, self.all.bytes + size)
        if there.stanzas + stanzas:
            self._by_source[source] = Room(there.stanzas + stanzas, there.bytes + size)
        else:
            del self._by_source[source]
