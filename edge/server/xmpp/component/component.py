"""The gateway as a component of another XMPP server (XEP-0114), which connects to that server.

The gateway connects again when the link is lost, and reports to the operator why there is no link.
All sessions end with the link. Accounts, rosters, offline storage and passwords are on the server.
"""

from __future__ import annotations

import asyncio
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from edge.config.load import Address, read_component_secret
from edge.engine.sessions import sessions
from edge.engine.store import events
from edge.engine.store.events import NewEvent
from edge.errors import ConfigError, StoreError
from edge.features.presence.xmpp import component_presence
from edge.ops.gateway.control import ConnectedSession
from edge.routing.xmpp.router import Router
from edge.server.endpoints import Endpoint
from edge.server.server_context import ServerContext
from edge.server.xmpp.component.dispatcher import Dispatcher
from edge.server.xmpp.component.link import Link, LinkLost
from sync.common import backoff, sd_notify

MIN_WAIT: Final = 1.0
"""Minimum seconds between attempts to connect."""

MAX_WAIT: Final = 60.0
"""Maximum seconds between attempts to connect: the component is back at most a minute after the
server."""

STEADY: Final = 60.0
"""Seconds after which a link counts as steady; after the loss of a steady link, the waits between
attempts to connect start again at `MIN_WAIT`."""

START_EXTENSION: Final = 2 * MAX_WAIT
"""Seconds by which each failed attempt to connect extends systemd's time-out for the start."""


class Component(Endpoint):
    """The endpoint for the users of another XMPP server, over a link to it.

    Args:
        address: the address of the server.
        warn: called with a line for the operator.
        fail: called with a fault after which the component cannot continue.
    """

    def __init__(
        self,
        context: ServerContext,
        router: Router,
        address: Address,
        warn: Callable[[str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._context = context
        self._address = address
        self._domain = context.settings.gateway.domain
        self._store = context.store
        self._warn = warn
        self._fail = fail
        self._reported = ""  # the reason why there is no link
        self._first_attached = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dispatcher = Dispatcher(context, router)
        self._link = Link(self._domain, context.settings.limits, self._dispatcher)
        context.outputs.attach(sessions.WITHOUT_SESSION, self._dispatcher)
        context.store.on_room.append(self._dispatcher.resume_reading)

    async def start(self) -> list[tuple[str, Address]]:
        """Connect to the server, however long that takes; return its address, for the `ready` line.

        Raises:
            ConfigError: the secret cannot be read, or is empty.
        """
        self._read_secret()
        path = self._context.folder / self._context.settings.xmpp.component_secret
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            self._report(f"{path} can be read by others; run `chmod 600 {path}`")
        self._task = asyncio.create_task(self._run(), name="component")
        self._task.add_done_callback(self._on_task_done)
        first = asyncio.create_task(self._first_attached.wait())
        try:
            await asyncio.wait({first, self._task}, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            first.cancel()
        return [("component", self._address)]

    def prepare_reload(self) -> Callable[[], None]:
        """Check that the secret can be read; return a function that does nothing, because each new
        link reads the secret again. Raises `ConfigError`."""
        self._read_secret()
        return lambda: None

    @property
    def up(self) -> bool:
        """Return whether there is a link."""
        return self.link_error is None

    @property
    def link_error(self) -> str | None:
        """Return why there is no link, or `None` if there is one."""
        if self._reported:
            return self._reported
        return None if self._first_attached.is_set() else "it has not accepted the gateway yet"

    def used(self) -> dict[str, int]:
        """Return nothing: a component has no limits beside those that all endpoints share."""
        return {}

    def connected_sessions(self, _wall: int) -> list[ConnectedSession]:
        """Return the sessions, without times and addresses, which only the server knows."""
        return self._dispatcher.connected_sessions()

    def stop_accepting(self) -> None:
        """Read no more stanzas, and do not connect again."""
        if self._task is not None:
            self._task.cancel()
            self._dispatcher.stop_reading()

    async def close(self, patience: float) -> None:
        """Answer the stanzas in flight and end the stream; waits at most `patience` seconds."""
        if self._task is not None:
            await asyncio.wait({self._task})
            with suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._store.run(lambda _tx: None), patience)
            await self._link.close(patience)
        self._context.outputs.detach(sessions.WITHOUT_SESSION)
        self._store.on_room.remove(self._dispatcher.resume_reading)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    # Connecting

    def _read_secret(self) -> str:
        return read_component_secret(self._context.folder, self._context.settings)

    async def _run(self) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            attached = loop.time() if await self._attach() else None
            if attached is not None:
                self._report_lost(await self._link.wait_lost())
                self._dispatcher.detach()
            steady = attached is not None and loop.time() - attached >= STEADY
            failures = 1 if steady else failures + 1
            chance = random.random()  # noqa: S311 - no secret
            await asyncio.sleep(backoff.delay(failures, chance, MIN_WAIT, MAX_WAIT))

    async def _attach(self) -> bool:
        self._dispatcher.attach(self._link)  # stanzas may follow the handshake at once
        try:
            await self._link.attach(self._address, self._read_secret())
        except (LinkLost, ConfigError) as error:
            self._report_lost(str(error))
            return False
        self._report_attached()
        self._store.submit(
            lambda tx: component_presence.probes(self._context.engine, tx),
            self._send_probes,
        )
        return True

    def _send_probes(self, outcome: list[bytes] | StoreError) -> None:
        if not isinstance(outcome, StoreError):
            for probe in outcome:
                self._link.write(probe)

    # Reports to the operator

    def _report_attached(self) -> None:
        if self._reported:
            self._report(f"component {self._domain}: attached to {self._address}")
            self._reported = ""
        self._log("component_attached", "Informational", "")
        self._first_attached.set()

    def _report_lost(self, reason: str) -> None:
        """Count a lost or failed link; log its reason if it is not the last one."""
        self._context.refusals.add("component")
        if not self._first_attached.is_set():
            microseconds = START_EXTENSION * 1_000_000
            sd_notify.notify(f"STATUS={reason}\nEXTEND_TIMEOUT_USEC={microseconds:.0f}")
        if reason != self._reported:
            self._reported = reason
            self._log("component_lost", "Warning", f"{reason}; retrying")

    def _report(self, line: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            self._warn(line)

    def _log(self, name: str, level: str, text: str) -> None:
        tags = {"server": str(self._address)}
        event = NewEvent("system", name=name, level=level, text=text or None, tags=tags)

        def answer(outcome: object) -> None:
            if isinstance(outcome, StoreError) and text:  # the journal does not get the event
                self._report(f"component {self._domain}: {text}")

        self._store.submit(lambda tx: events.append(tx, events.SYSTEM, event), answer)
