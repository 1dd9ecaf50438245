"""Run blocking calls in a thread pool, so that the event loop stays responsive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class ThreadRunner:
    """Runs calls in the threads of `pool`."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    async def __call__(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `call` in a thread; return its result or raise its exception."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
