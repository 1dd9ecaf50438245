"""No more of the link than is allowed: a body is handed over in pieces, each in its time.

`Pace` is the rule and pure; `paced` waits by a clock and a sleep that it is given. What the bytes
are worth on the wire, with TLS and headers, is not counted: some hundredths.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

_LARGEST: Final = 16 * 1024  # bytes of a piece: one TLS record
_SMALLEST: Final = 512  # bytes of a piece: below, headers would be most of it
_PIECES: Final = 4  # a second: a link that others share is free again after a quarter of one


class BandwidthLimiter:
    """Allows `rate` bytes a second, 0 for any number. A piece's time is used up or lost."""

    def __init__(self, rate: int = 0) -> None:
        self.rate = rate
        self._free = 0.0

    @property
    def piece(self) -> int:
        """Bytes to hand over at once."""
        if not self.rate:
            return _LARGEST
        return min(_LARGEST, max(_SMALLEST, self.rate // _PIECES))

    def take(self, now: float, size: int) -> float:
        """Take `size` bytes at the second `now`, and return the seconds to wait before they go.

        The link is taken for as long as they need: the next ones wait for that.
        """
        if not self.rate:
            return 0.0
        begin = max(now, self._free)
        self._free = begin + size / self.rate
        return begin - now


async def throttled_pieces(
    data: memoryview,
    pace: BandwidthLimiter,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncIterator[bytes]:
    """Yield `data` in pieces, none before its time."""
    step = pace.piece
    for start in range(0, len(data), step):
        piece = bytes(data[start : start + step])
        wait = pace.take(clock(), len(piece))
        if wait > 0:
            await sleep(wait)
        yield piece
