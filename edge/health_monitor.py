"""Judge the running gateway's health regularly, and report when the judgement changes.

The journal gets a line for each new problem and for each that is over, with its remedy; systemd
shows the judgement as the service's status. `edge.ops.checks.health` has the rules.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge.config.load import Config
from edge.engine.log import status_events
from edge.engine.rules.space_rules import SpaceUsage
from edge.engine.store import space
from edge.engine.store.database import Transaction
from edge.engine.store.group_commit import Store
from edge.errors import StoreError, StoreFull
from edge.ops.checks import health
from edge.ops.checks.finding import Finding
from edge.ops.checks.health import Health
from edge.ops.gateway import status as gateway_status
from edge.ops.gateway.control import ProcessStatus
from sync.common import sd_notify

INTERVAL: Final = 5.0
"""Seconds between two judgements. Each begins a transaction, by which an idle gateway also notices
changes by another process, such as a revoked device. A transaction that writes nothing costs no
fsync."""

STORE_TIMEOUT: Final = 3.0
"""Maximum seconds of that transaction; above this, the gateway is failing.

A slow card needs tenths of a second.
"""

_LOGGED_AS_EVENT: Final = frozenset({"disk", "WAL"})
"""Names of the findings that the event `store full` reports."""

_REPORTED_BY_COMPONENT: Final = frozenset({health.LINK})
"""Names of the findings that the component reports to the journal at once."""


class HealthMonitor:
    """The judgement of the running gateway.

    Args:
        state: returns the state of the process.
        warn: writes a warning to the journal.

    Attributes:
        store_error: why the last transaction failed; `None` if it succeeded, or if the disk or the
            database is full, which is judged by the space that is left.
    """

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        state: Callable[[], ProcessStatus],
        warn: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._store = store
        self._state = state
        self._warn = warn
        self._usage = SpaceUsage(0, 0, 0, space.UNBOUNDED)
        self._reported: dict[tuple[str, str], Finding] = {}
        self._is_logged = False
        self.store_error: str | None = None

    async def run(self) -> None:
        """Judge the gateway every `INTERVAL` seconds, until the task is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check()

    async def check(self) -> Health:
        """Judge the gateway now, except for the limits, and report what has changed."""
        await self._use_store()
        status = gateway_status.combine_space(self._settings, self._usage, self._state())
        now = round(time.time() * 1000)
        found = await asyncio.to_thread(health.judge, self._folder, self._settings, status, now)
        self._report(found)
        return found

    async def _use_store(self) -> None:
        """Begin a transaction that measures the space and logs `store full` if there is none."""
        limits = self._settings.limits

        def unit(tx: Transaction) -> SpaceUsage:
            status_events.log_fullness(tx, limits)
            return space.measure(tx)

        self._is_logged = False
        try:
            self._usage = await asyncio.wait_for(self._store.run(unit), STORE_TIMEOUT)
        except StoreFull:  # not even the event has room
            with suppress(StoreError):
                self._usage = await self._store.read(space.measure)
        except TimeoutError:
            self.store_error = f"the database has not answered for {STORE_TIMEOUT:g} s"
            return
        except StoreError as error:
            self.store_error = str(error)
            return
        else:
            self._is_logged = True
        self.store_error = None

    def _report(self, found: Health) -> None:
        problems = {(each.name, each.remedy): each for each in found.problems}
        for key in problems.keys() - self._reported.keys():
            name, _, text, remedy = problems[key]
            logged = self._is_logged and name in _LOGGED_AS_EVENT
            if not logged and name not in _REPORTED_BY_COMPONENT:
                self._warn(f"{name}: {text}; {remedy}")
        for name, remedy in self._reported.keys() - problems.keys():
            if name in _REPORTED_BY_COMPONENT:
                continue
            self._warn(f"{name}: resolved: {self._reported[name, remedy].text}")
        if problems.keys() != self._reported.keys():
            with suppress(OSError):  # systemd is being restarted
                sd_notify.notify(f"STATUS={status_line(found)}")
        self._reported = problems


def status_line(found: Health) -> str:
    """Return the judgement in one line."""
    texts = [f"{each.text}; {each.remedy}" for each in found.problems]
    return ": ".join([found.state, *texts[:1]])
