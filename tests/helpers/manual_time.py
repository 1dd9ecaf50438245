"""Time that a test ends: whoever sleeps is seen, and sleeps until the test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Nap:
    """A sleep in progress."""

    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Let the sleeper go on."""
        self.over.set()


class ManualTime:
    """Give `sleep` to the code under test and take its naps one by one."""

    def __init__(self) -> None:
        self.naps: asyncio.Queue[Nap] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test ends the nap."""
        nap = Nap(seconds)
        self.naps.put_nowait(nap)
        await nap.over.wait()

    async def nap(self) -> Nap:
        """Wait until somebody sleeps."""
        async with asyncio.timeout(10):
            return await self.naps.get()
