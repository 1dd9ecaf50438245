"""Does a small job at once and then from time to time, beside what else a process does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from sync.common.errors import FleetError
from sync.common.json_log import log_event


@contextlib.asynccontextmanager
async def repeat_in_background(
    job: Callable[[], object], every_s: float, event: str
) -> AsyncIterator[None]:
    """Call `job` in a thread now, and every `every_s` seconds while the context lasts.

    What fails the first time is raised; later it is told as `event`, and tried again.
    """
    await asyncio.to_thread(job)
    task = asyncio.create_task(_repeat(job, every_s, event))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(job: Callable[[], object], every_s: float, event: str) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await asyncio.to_thread(job)
        except (FleetError, OSError) as error:
            log_event(logging.ERROR, event, text=str(error))
