"""How fast one peer is heard: a leaky bucket for its stanzas, and one for its bytes.

What comes fills them, time empties them, and while one is over its brim the peer waits: it is not
read, and nothing of it is lost. How it is made to wait is not decided here. All times are in
seconds, of any clock that does not go backwards.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LEAST_WAIT: Final = 0.05
"""Seconds of the shortest wait: a peer at its limit is let go on in portions, so that each costs
one timer and not each stanza."""


class Bound(NamedTuple):
    """How much a bucket holds, and how much of that leaks in a second."""

    at_once: int
    per_second: int


class Rate:
    """What came of late.

    Args:
        stanzas: the bound of stanzas.
        bytes: that of bytes.
        now: the present second.

    Attributes:
        stanzas: how full that bucket is, in stanzas.
        bytes: how full that bucket is, in bytes.
    """

    __slots__ = ("_at", "_bytes", "_stanzas", "bytes", "stanzas")

    def __init__(self, stanzas: Bound, bytes: Bound, now: float) -> None:
        self._stanzas = stanzas
        self._bytes = bytes
        self._at = now
        self.stanzas = 0.0
        self.bytes = 0.0

    def over(self) -> bool:
        """Tell whether too much came, as far as `leak` was told the time."""
        return self.stanzas > self._stanzas.at_once or self.bytes > self._bytes.at_once

    def leak(self, now: float) -> None:
        """Let go what time has made good."""
        passed = now - self._at
        self._at = now
        self.stanzas = max(self.stanzas - passed * self._stanzas.per_second, 0.0)
        self.bytes = max(self.bytes - passed * self._bytes.per_second, 0.0)

    def wait(self) -> float:
        """Return for how many seconds the peer waits: none while neither bucket is over."""
        if not self.over():
            return 0.0
        stanzas = (self.stanzas - self._stanzas.at_once) / self._stanzas.per_second
        surplus = (self.bytes - self._bytes.at_once) / self._bytes.per_second
        return max(stanzas, surplus, LEAST_WAIT)
