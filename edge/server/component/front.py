"""The gateway as a component of another server (XEP-0114): the front in place of the listener.

The link is made, and made again when it is lost, for as long as the gateway runs; an operator is
told why there is none. Who was there over a link that is lost is not there any more, until it
speaks again. Accounts, rosters, offline storage and passwords are the server's.

What goes over the link is `traffic`'s, and its bytes are `link`'s.
"""

from __future__ import annotations

import asyncio
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.engine import events
from edge.engine.events import NewEvent
from edge.engine.router import Router
from edge.errors import ConfigError, StoreError
from edge.features.presence import remote_presence
from edge.server.component.link import Link, LinkLost
from edge.server.component.traffic import Traffic
from sync.common import backoff, sd_notify
from sync.common.regular_files import read_regular

if TYPE_CHECKING:
    from edge.config.load import Address, Config
    from edge.engine.group_commit import Store
    from edge.server.refusal_counters import Tally

LEAST_WAIT: Final = 1.0
"""Seconds before the server is called again, in any case."""

MOST_WAIT: Final = 60.0
"""Seconds before it is, at most: a server that was restarted has its component a minute later."""

STEADY: Final = 60.0
"""Seconds that a link has to last for its loss not to count as one more failure in a row."""

STARTING: Final = 2 * MOST_WAIT
"""Seconds more that systemd gives the start, each time that the server could not be reached."""


class Component:
    """The front of a gateway that is a component.

    `warn` is called with a line for the operator, `fail` with a fault that the front cannot go on
    from.
    """

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        router: Router,
        tally: Tally,
        warn: Callable[[str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        assert settings.component is not None  # noqa: S101
        self._address: Address = settings.component
        self._secret = folder / settings.xmpp.component_secret
        self._domain = settings.gateway.domain
        self._store = store
        self._router = router
        self._warn = warn
        self._fail = fail
        self._told = ""
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tally = tally
        self._traffic = Traffic(store, router, tally)
        self._link = Link(self._domain, settings.limits, self._traffic)

    async def start(self) -> list[tuple[str, Address]]:
        """Attach to the server, however long that takes; returns its address, for `ready`.

        Raises:
            ConfigError: the secret cannot be read.
        """
        self._read_secret()
        if stat.S_IMODE(self._secret.stat().st_mode) & 0o077:
            self._say(f"{self._secret} can be read by others: chmod 600 {self._secret}")
        self._store.on_room = self._traffic.read_on
        self._store.on_sends = self._traffic.deliver
        self._task = asyncio.create_task(self._run(), name="component")
        self._task.add_done_callback(self._ended)
        first = asyncio.create_task(self._first.wait())
        try:
            await asyncio.wait({first, self._task}, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            first.cancel()
        return [("component", self._address)]

    @property
    def up(self) -> bool:
        """Whether there is a link."""
        return self._first.is_set() and not self._told

    def used(self) -> dict[str, int]:
        """Tell how much of the limits is used now, as `Listener.used` does."""
        return self._traffic.used()

    async def stop(self, patience: float) -> None:
        """Take nothing more, answer what came, and end the stream; waits `patience` s at most."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        self._traffic.close()
        with suppress(StoreError, TimeoutError):
            await asyncio.wait_for(self._store.run(lambda _tx: None), patience)
        await self._link.close(patience)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    # How the link is made, again and again.

    def _read_secret(self) -> str:
        try:
            secret = read_regular(self._secret).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(
                f"xmpp.component_secret: {self._secret} cannot be read: {reason}"
            ) from error
        if not secret:
            raise ConfigError(f"xmpp.component_secret: {self._secret} is empty")
        return secret

    async def _run(self) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            attached = loop.time() if await self._attach() else None
            if attached is not None:
                self._tell_lost(await self._link.lost())
                self._traffic.end()
            steady = attached is not None and loop.time() - attached >= STEADY
            failures = 1 if steady else failures + 1
            chance = random.random()  # noqa: S311 - no secret
            await asyncio.sleep(backoff.delay(failures, chance, LEAST_WAIT, MOST_WAIT))

    async def _attach(self) -> bool:
        self._traffic.begin(self._link)  # stanzas may come with the server's word
        try:
            await self._link.attach(self._address, self._read_secret())
        except (LinkLost, ConfigError) as error:
            self._tell_lost(str(error))
            return False
        self._tell_attached()
        self._store.submit(
            lambda tx: remote_presence.probes(self._router.context, tx), self._ask_after
        )
        return True

    def _ask_after(self, outcome: list[bytes] | StoreError) -> None:
        if not isinstance(outcome, StoreError):
            for probe in outcome:
                self._link.write(probe)

    # What the operator is told.

    def _tell_attached(self) -> None:
        if self._told:
            self._say(f"component {self._domain}: attached to {self._address}")
            self._told = ""
        self._log("component_attached", "Informational", "")
        self._first.set()

    def _tell_lost(self, reason: str) -> None:
        """Tell why there is no link: in words once for each reason, as a count each time."""
        self._tally.add("component")
        if not self._first.is_set():
            sd_notify.notify(f"STATUS={reason}\nEXTEND_TIMEOUT_USEC={STARTING * 1_000_000:.0f}")
        if reason != self._told:
            self._told = reason
            self._say(f"component {self._domain}: {reason}; it is tried again")
            self._log("component_lost", "Warning", reason)

    def _say(self, line: str) -> None:
        with suppress(OSError):  # the terminal may be what has gone
            self._warn(line)

    def _log(self, name: str, level: str, text: str) -> None:
        tags = {"server": str(self._address)}
        event = NewEvent("system", name=name, level=level, text=text or None, tags=tags)
        self._store.submit(
            lambda tx: events.append(tx, events.SYSTEM, event), lambda _outcome: None
        )
