"""Clients that open one session after another, with exponential backoff."""

from __future__ import annotations

import abc
import asyncio
import random
from typing import Any

from slixmpp.jid import JID

from firmware_sim.device.connection import REFUSED_LOGIN, Connection, Endpoint
from firmware_sim.device.errors import ConnectionFailed, FirmwareError
from firmware_sim.device.limits import ReconnectPolicy
from firmware_sim.device.pubsub import Pubsub
from firmware_sim.device.sender_rules import backoff


class SessionClient(abc.ABC):
    """A client that opens one session after another, with exponential backoff."""

    def __init__(self, endpoint: Endpoint, reconnect: ReconnectPolicy) -> None:
        self._endpoint, self._reconnect = endpoint, reconnect
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.sessions = 0
        """Number of sessions that were established since `start`."""
        self.last_error = ""
        """Reason of the last lost session or failed attempt to connect; empty if none."""

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the stream, and stop connecting."""

    @property
    def online(self) -> bool:
        """Return whether a session is established now."""
        return self._connection is not None and self._connection.bound

    @property
    def is_login_refused(self) -> bool:
        """Return whether the server refused the log-in of the last attempt to connect."""
        return self.last_error.startswith(REFUSED_LOGIN)

    async def changed(self) -> None:
        """Wait until a session is established or lost, or fails to open (see `last_error`).

        A `Device` also wakes its callers when its recipient asks to send later (`last_wait`), and
        when it reports a message that was not delivered.
        """
        await self._changed.wait()

    def cut(self) -> None:
        """Abort the connection without closing the stream; the client reconnects and continues."""
        if self._connection is not None:
            self._connection.cut()

    def _begin_to_connect(self) -> asyncio.Task[None]:
        self._runner = asyncio.create_task(self._run(), name=f"sessions of {self._endpoint.jid}")
        return self._runner

    def _goes_on(self) -> bool:
        return True

    @abc.abstractmethod
    def _new_connection(self) -> Connection: ...

    @abc.abstractmethod
    async def _use(self, connection: Connection) -> str:
        """Use a session until it is lost; return the reason."""

    def _notify_changed(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def _run(self) -> None:
        """Open one session after another; the delays grow after failures and short sessions."""
        failures, rule = 0, self._reconnect
        loop = asyncio.get_running_loop()
        while self._goes_on():
            begun = loop.time()
            self.last_error = await self._session()
            self._notify_changed()
            failures = 1 if loop.time() - begun >= rule.stable else failures + 1
            await asyncio.sleep(backoff(failures, rule.base, rule.cap, rule.jitter, random.random))

    async def _session(self) -> str:
        """Open a session, use it, and return the reason why it ended or failed to open."""
        try:
            connection = self._connection = self._new_connection()
            await connection.open(self._reconnect.timeout)
        except ConnectionFailed as error:
            self._connection = None
            return str(error)
        self.sessions += 1
        try:
            return await self._use(connection)
        finally:
            connection.abort("over")
            self._connection = None


class PubsubClient(SessionClient):
    """A client of a publish-subscribe service, without an outbox.

    The service's address is `pubsub.` before the JID's domain if `service` is empty.
    """

    def __init__(
        self, jid: JID, endpoint: Endpoint, service: str, reconnect: ReconnectPolicy
    ) -> None:
        super().__init__(endpoint, reconnect)
        self._service = service or f"pubsub.{jid.domain}"
        self._pubsub: Pubsub | None = None

    def _prepare(self, client: Any) -> None:
        self._pubsub = Pubsub(client, self._service)

    @abc.abstractmethod
    async def _run_session(self, pubsub: Pubsub) -> None:
        """Use a session until this is cancelled; raise a `FirmwareError` to end the session."""

    def _new_connection(self) -> Connection:
        return Connection(self._endpoint, prepare=self._prepare)

    async def _use(self, connection: Connection) -> str:
        pubsub = self._pubsub
        assert pubsub is not None  # noqa: S101 - `_prepare` made it
        self._notify_changed()
        running = asyncio.ensure_future(self._run_session(pubsub))
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
            pubsub.end()
            await asyncio.gather(running, return_exceptions=True)

    async def _disconnect(self, *, orderly: bool) -> None:
        """Stop connecting and end the session; with `orderly`, close its stream first."""
        if self._connection is not None and orderly:
            await self._connection.close()
        self.cut()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.wait({runner})
