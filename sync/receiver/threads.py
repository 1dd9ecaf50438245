"""Runs blocking calls in threads, so that the event loop goes on. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class ThreadRunner:
    """Calls what blocks in the threads of `pool`."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    async def __call__(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `call` in a thread and give what it gives, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
