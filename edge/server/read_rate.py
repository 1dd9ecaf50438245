"""How fast one connection is read: within `limits.*_per_second`, and otherwise after a pause.

A connection over its bound is not read and its stanzas wait, in order; nothing is dropped, answers
go out, and stream management is still heard. The first pause in a while is told to the event log.
The buckets are `rules.rate`'s; as long as nothing is near their brim, the clock is read once for
each read of the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge.server.rate_limit import Bound, Rate
from edge.server.shared import Shared


class Pace:
    """One connection's.

    Args:
        shared: what all share.
        source: tells who it is, for the event log.
        go_on: called when a pause is over.
    """

    __slots__ = ("_go_on", "_rate", "_shared", "_source", "_timer")

    def __init__(
        self, shared: Shared, source: Callable[[], str], go_on: Callable[[], None]
    ) -> None:
        limits = shared.settings.limits
        self._shared = shared
        self._source = source
        self._go_on = go_on
        self._rate = Rate(
            Bound(limits.stanzas_at_once, limits.stanzas_per_second),
            Bound(limits.bytes_at_once, limits.bytes_per_second),
            shared.loop.time(),
        )
        self._timer: asyncio.TimerHandle | None = None

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        self._rate.leak(self._shared.loop.time())
        self._rate.bytes += count

    def took(self) -> None:
        """Count a stanza that was taken."""
        self._rate.stanzas += 1

    def holds(self) -> bool:
        """Tell whether the peer has to wait; `go_on` is called when it has waited enough."""
        if self._timer is not None:
            return True
        if not self._rate.over():
            return False
        self._rate.leak(self._shared.loop.time())
        if not self._rate.over():
            return False
        self._tell()
        self._shared.paused += 1
        self._wait()
        return True

    def stop(self) -> None:
        """Wait no more: the connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._release()

    def _wait(self) -> None:
        self._timer = self._shared.loop.call_later(self._rate.wait(), self._look)

    def _look(self) -> None:
        self._rate.leak(self._shared.loop.time())
        if self._rate.over():
            self._wait()
        else:
            self._release()
            self._go_on()

    def _release(self) -> None:
        self._timer = None
        self._shared.paused -= 1

    def _tell(self) -> None:
        limits = self._shared.settings.limits
        by_bytes = self._rate.bytes > limits.bytes_at_once
        figure = limits.bytes_per_second if by_bytes else limits.stanzas_per_second
        now = self._shared.loop.time()
        self._shared.refused.tell_once(self._source(), "rate", figure, now)
