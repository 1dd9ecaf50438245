"""A wait that another task can end early."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Wakeup:
    """A wait of one task that other tasks can end. `sleep` is replaced in tests.

    A wakeup that comes while no task waits ends the next wait at once.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._sleep = sleep
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Make the current call of `wait`, or else the next one, return at once."""
        self._event.set()

    async def pause(self, seconds: float) -> None:
        """Sleep for the whole time; a wakeup meanwhile ends the next wait."""
        await self._sleep(seconds)

    async def wait(self, seconds: float) -> None:
        """Return on a wakeup, or after `seconds`."""
        if not self._event.is_set():
            tasks = [
                asyncio.ensure_future(self._sleep(seconds)),
                asyncio.ensure_future(self._event.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        self._event.clear()
