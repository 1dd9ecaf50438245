"""Open one session after another, with exponential backoff, for clients without an outbox."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.limits import ReconnectPolicy
from firmware_sim.device.sender_rules import backoff
from firmware_sim.errors import ConnectionFailed, FirmwareError

_DEFAULT: Final = ReconnectPolicy()


class Sessions:
    """The sessions of one full JID, from `start` to `close`.

    Args:
        endpoint: the server and the account.
        prepare: called with slixmpp's client of each session before it connects.
        run: awaited with each session, and cancelled when the session is lost; a `FirmwareError`
            that it raises ends the session.
        reconnect: delays between attempts to connect.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        prepare: Callable[[Any], None],
        run: Callable[[Connection], Awaitable[None]],
        reconnect: ReconnectPolicy = _DEFAULT,
    ) -> None:
        self._endpoint, self._prepare, self._run_session = endpoint, prepare, run
        self._reconnect = reconnect
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.count = 0
        """Number of sessions so far."""
        self.last_error = ""
        """Reason of the last lost session or failed attempt to connect."""

    def start(self) -> None:
        """Begin to connect."""
        self._runner = asyncio.create_task(self._run(), name=f"sessions of {self._endpoint.jid}")

    def cut(self) -> None:
        """Drop the connection without closing the stream; another session follows."""
        if self._connection is not None:
            self._connection.abort("cut")

    async def changed(self) -> None:
        """Wait until a session is gained, lost or fails to open (see `last_error`)."""
        await self._changed.wait()

    def _notify_changed(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def close(self, *, orderly: bool = True) -> None:
        """Stop connecting and end the session; if `orderly`, close its stream."""
        if self._connection is not None and orderly:
            await self._connection.close()
        self.cut()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.wait({runner})

    @property
    def online(self) -> bool:
        """Return whether there is a session now."""
        return self._connection is not None and self._connection.bound

    async def _run(self) -> None:
        failures, rule = 0, self._reconnect
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            self.last_error = await self._session()
            self._notify_changed()
            failures = 1 if loop.time() - begun >= rule.stable else failures + 1
            await asyncio.sleep(backoff(failures, rule.base, rule.cap, rule.jitter, random.random))

    async def _session(self) -> str:
        """Open a session, run it, and return the reason why it ended or failed to open."""
        try:
            connection = self._connection = Connection(self._endpoint, prepare=self._prepare)
            await connection.open(self._reconnect.timeout)
        except ConnectionFailed as error:
            self._connection = None
            return str(error)
        self.count += 1
        self._notify_changed()
        running = asyncio.ensure_future(self._run_session(connection))
        try:
            waits: set[asyncio.Future[Any]] = {running, connection.lost}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not connection.lost.done():
                await running
            return await connection.lost
        except FirmwareError as error:
            return str(error) or repr(error)
        finally:
            running.cancel()
            connection.abort("over")
            self._connection = None
            await asyncio.gather(running, return_exceptions=True)
