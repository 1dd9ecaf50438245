"""Sleeps that a test ends: the test waits for each sleep of the tested code and ends it.

`in_background` runs the tested code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Sleep:
    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        self.over.set()


class ManualTime:
    """Replaces the `sleep` of the tested code; the test takes the sleeps one by one."""

    def __init__(self) -> None:
        self.sleeps: asyncio.Queue[Sleep] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test ends this sleep."""
        sleep = Sleep(seconds)
        self.sleeps.put_nowait(sleep)
        await sleep.over.wait()

    async def next_sleep(self) -> Sleep:
        """Wait for the next sleep."""
        async with asyncio.timeout(10):
            return await self.sleeps.get()


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
