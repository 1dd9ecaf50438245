"""A queue of notices to the operator, which keeps them while the store is unavailable."""

from __future__ import annotations

from collections import deque
from typing import Final

from sync.uplink.interfaces import BacklogUnavailable, Notice, SendNotice

_MAX_QUEUED: Final = 16
"""Maximum number of queued notices; when there are more, the oldest ones are discarded."""


class NoticeQueue:
    """Sends notices in order, each once.

    A notice usually becomes an event in the store. If the store is full, the notice stays queued.
    """

    def __init__(self, send_notice: SendNotice) -> None:
        self._send_notice = send_notice
        self._queue: deque[Notice] = deque(maxlen=_MAX_QUEUED)

    async def send(self, name: str, text: str) -> None:
        """Enqueue a notice, and send all queued notices."""
        self._queue.append(Notice(name, text))
        await self.flush()

    async def flush(self) -> None:
        """Send the queued notices; stop if the store is unavailable."""
        while self._queue:
            try:
                await self._send_notice(self._queue[0])
            except BacklogUnavailable:
                return
            self._queue.popleft()
