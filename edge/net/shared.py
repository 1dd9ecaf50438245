"""What all sessions share: the store, the router, the read buffer, and who writes next."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from edge.handlers.lifecycle import Lifecycle

if TYPE_CHECKING:
    import ssl

    from edge.config import Config
    from edge.handlers.router import Router
    from edge.net.registry import Registry
    from edge.net.tally import Tally
    from edge.store.commit import Store

READ_BYTES: Final = 32 * 1024
"""Bytes that are read at once; asyncio's own buffer for each read of each socket is 256 KiB."""


class Flushable(Protocol):
    """Somebody who has something to write."""

    def flush(self) -> None:
        """Write it."""


class Shared:
    """What sessions need of the gateway; made once, on the event loop."""

    def __init__(
        self,
        settings: Config,
        store: Store,
        registry: Registry,
        router: Router,
        tls: ssl.SSLContext,
        decoy: bytes,
        tally: Tally,
    ) -> None:
        self.settings = settings
        self.store = store
        self.registry = registry
        self.router = router
        self.lifecycle = Lifecycle(router)
        self.tls = tls
        self.decoy = decoy
        self.tally = tally
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.handshakes = asyncio.Semaphore(settings.limits.handshakes)
        self.hashing = ThreadPoolExecutor(1, thread_name_prefix="hashing")
        self._to_flush: list[Flushable] = []

    def will_flush(self, session: Flushable) -> None:
        """Let a session write in the next round of the event loop."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(session)

    def _flush(self) -> None:
        sessions, self._to_flush = self._to_flush, []
        for session in sessions:
            session.flush()
