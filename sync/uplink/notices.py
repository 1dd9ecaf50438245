"""Telling people what the loops find out, even that the store they are told through cannot.

A notice usually becomes an event in the very store that may be full. One that cannot be told waits,
and is told when it can: no loop ends by it, and no word is lost.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sync.uplink.interfaces import BacklogUnavailable, Notice, SendNotice

_LATE: Final = 16  # notices that wait: while the store cannot, a loop finds out little else


class NoticeQueue:
    """Tells notices in order, each once."""

    def __init__(self, tell: SendNotice) -> None:
        self._tell = tell
        self._late: deque[Notice] = deque(maxlen=_LATE)

    async def say(self, name: str, text: str) -> None:
        """Tell this, after what waits; or let it wait too."""
        self._late.append(Notice(name, text))
        await self.catch_up()

    async def catch_up(self) -> None:
        """Tell what waits, as far as that is possible now."""
        while self._late:
            try:
                await self._tell(self._late[0])
            except BacklogUnavailable:
                return
            self._late.popleft()
