"""What a running gateway tells the commands beside it over its control socket.

The socket is `net.control`'s, and what is asked `admin.control`'s; the database is read by the
commands themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from edge import __version__
from edge.config.limits import Limits
from edge.engine.clock import Clock
from edge.engine.database import Transaction
from edge.engine.group_commit import Store
from edge.features.queues.service.diagnosis import MAX_MEMBERS
from edge.features.queues.store import overview
from edge.ops.control import Running, There
from edge.server.control import Control


def teller(
    limits: Limits, clock: Clock, used: Callable[[], dict[str, int]]
) -> Callable[[], Running]:
    """Return what tells of a gateway that begins now; `used` is what the process alone knows of its
    limits."""
    began = asyncio.get_running_loop().time()
    figures = msgspec.to_builtins(limits)

    def state() -> Running:
        now = clock()
        return Running(
            version=__version__,
            boot=clock.run.boot,
            service=now.service,
            uptime=asyncio.get_running_loop().time() - began,
            synchronised=now.synchronised,
            used=used(),
            limits=figures,
        )

    return state


def control(folder: Path, state: Callable[[], Running], store: Store) -> Control:
    """Make the control socket of a gateway; `state` is its `teller`."""

    async def members(queue: int) -> There:
        return await store.run(lambda tx: _there(tx, queue))

    return Control(folder, state, members)


def _there(tx: Transaction, queue: int) -> There:
    return There(service=tx.now.service, attending=overview.attendance(tx, queue, MAX_MEMBERS))
