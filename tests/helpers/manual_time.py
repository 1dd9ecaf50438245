"""Time that a test ends: whoever sleeps is seen, and sleeps until the test says so.

`in_background` runs what sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Nap:
    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
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


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
