"""Waiting that a call can end early. The sleep is injected, so that a test needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Sleep = Callable[[float], Awaitable[None]]


class Wakeup:
    """One waits, another rings. A ring that nobody waits for ends the next wait at once."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """End the wait."""
        self._rung.set()

    async def pause(self, seconds: float) -> None:
        """Let the time pass; ringing does not end it, but is remembered."""
        await self._sleep(seconds)

    async def wait(self, seconds: float) -> None:
        """Return when it rings, and after `seconds` at the latest."""
        if not self._rung.is_set():
            tasks = [
                asyncio.ensure_future(self._sleep(seconds)),
                asyncio.ensure_future(self._rung.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        self._rung.clear()
