"""What all sessions share: the store, the router, the read buffer, and who writes next."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from edge.config.load import Config
from edge.engine.group_commit import Store
from edge.engine.router import Router
from edge.engine.session_lifecycle import SessionLifecycle
from edge.server.login_throttle import Bounds, Throttle
from edge.server.refusal_counters import Tally
from edge.server.refused import Refused
from edge.server.tls import Contexts

if TYPE_CHECKING:
    from edge.server.registry import Registry

READ_BYTES: Final = 32 * 1024
"""Bytes that are read at once; asyncio's own buffer for each read of each socket is 256 KiB."""

LOOK: Final = 1.0
"""Seconds between two looks at the sessions that wait for their peers."""


class Flushable(Protocol):
    """Somebody who has something to write."""

    def flush(self) -> None:
        """Write it."""


class Watched(Protocol):
    """Somebody whose peer has to be looked after."""

    def look(self) -> bool:
        """See how it stands; false when there is no more need to look."""


class Turns(asyncio.Semaphore):
    """A semaphore that tells how many turns are taken."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._most = most

    @property
    def taken(self) -> int:
        """How many turns are taken just now."""
        return self._most - self._value


class Shared:
    """What sessions need of the gateway; made once, on the event loop.

    Attributes:
        paused: connections that wait since they sent too much (`pace`).
    """

    def __init__(
        self,
        settings: Config,
        store: Store,
        registry: Registry,
        router: Router,
        tls: Contexts,
        decoy: bytes,
        tally: Tally,
    ) -> None:
        limits = settings.limits
        self.settings = settings
        self.store = store
        self.registry = registry
        self.router = router
        self.lifecycle = SessionLifecycle(router)
        self.tls = tls
        self.decoy = decoy
        self.tally = tally
        self.refused = Refused(store, router.context, tally)
        self.paused = 0
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.handshakes = Turns(limits.handshakes)
        self.hashing = ThreadPoolExecutor(1, thread_name_prefix="hashing")
        self.throttle = Throttle(
            Bounds(
                limits.authenticate_failures, limits.authenticate_again, limits.authenticate_delay
            )
        )
        self._to_flush: list[Flushable] = []
        self._watched: dict[Watched, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def will_flush(self, session: Flushable) -> None:
        """Let a session write in the next round of the event loop."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(session)

    def _flush(self) -> None:
        sessions, self._to_flush = self._to_flush, []
        for session in sessions:
            session.flush()

    def watch(self, session: Watched) -> None:
        """Look at a session each second, until it says that there is no more need to."""
        self._watched[session] = None
        if self._timer is None:
            self._timer = self.loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        watched, self._watched = self._watched, {}
        for session in watched:
            if session.look():
                self.watch(session)

    def close(self) -> None:
        """Look at nobody any more."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.hashing.shutdown(wait=False, cancel_futures=True)
