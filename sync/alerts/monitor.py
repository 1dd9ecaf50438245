"""Looks at the fleet again and again: what is new, what is wrong, what is to be told.

A round reads landing and manifests, judges, saves what is to be told, and only then tells it: who
is killed in between tells it again, with the same id. The landing is looked at before the tables,
so that what an ingest moves meanwhile is in one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from logging import ERROR, WARNING
from typing import Final

import msgspec

from sync.alerts.batch_reader import BatchReader
from sync.alerts.incidents import FORGET_MS, Alert, IncidentTracker
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.persistence import StateStore
from sync.alerts.rules import judge_events
from sync.alerts.silence import judge_silence
from sync.alerts.sources import scan_landing as look
from sync.alerts.state import FleetState, cap_times, forget, is_ahead_of
from sync.alerts.webhook import Webhook
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.common.json_log import log_event
from sync.receiver.gateways import GatewayRegistry
from sync.tables.manifest import Commits
from sync.tables.storage import LocalStorage

INTERVAL_S: Final = 15.0
"""Seconds between two rounds: little beside the minutes that segments take to come."""

MAX_FAILURES: Final = 20
"""Rounds in a row that may fail, some five minutes, before the command gives up and says why:
whoever starts it then knows."""


@dataclass
class AlertMonitor:
    """Watches the fleet in `folder`; `clock` gives seconds since 1970 UTC.

    Use it within `Keeping.alone`.
    """

    folder: FleetFolder
    keeping: StateStore
    lines: JsonLinesOutput
    webhook: Webhook | None = None
    clock: Callable[[], float] = time.time
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Go on from what was kept. Raises FleetError when that cannot be read."""
        self._segments = LocalStorage(self.folder.root)
        tables = LocalStorage(self.folder.tables)
        self._following = BatchReader(tables, Commits(tables))
        self._gateways = GatewayRegistry(self.folder)
        self._seen = self.keeping.seen()
        self._told = self.keeping.told()
        self._stretches = IncidentTracker(self._told.stretches)
        self._saved = msgspec.json.encode(self._told)

    @property
    def waiting(self) -> int:
        """How many messages wait for the webhook."""
        return len(self._told.posts)

    def look(self) -> list[Alert]:
        """Look at the fleet once; gives what was found to be told, and has told it on the lines.

        Raises OSError and FleetError when landing, tables or disk refuse.
        """
        now = int(self.clock() * 1000)
        landing = look(self._segments, now)
        seen, changed = self._follow(now)
        cap_times(seen, now)
        self._stretches.set_back(now)
        if changed:
            forget(seen, now, FORGET_MS)
            self.keeping.save_seen(seen)
            self._warn(seen)
        on = self._stretches.on()
        silence = judge_silence(seen, landing, now, self._revoked, on)
        messages = self._stretches.take(chain(silence, judge_events(seen, on)), now)
        if dropped := self._told.queue(messages, posts=self.webhook is not None):
            log_event(WARNING, "alerts go untold: too many wait", alerts=dropped)
        self._save()
        self.lines.write(self._told.lines)
        self._told.lines.clear()
        self._save()
        return messages

    def _follow(self, now: int) -> tuple[FleetState, bool]:
        """Take what is new; a batch of which a part could be read is taken anew as a whole.

        All is learnt anew after the centre's clock was set back: when it was ahead, what had been
        heard of lately looked forgotten.
        """
        if self._seen is not None and is_ahead_of(self._seen, now):
            self._seen = None
        try:
            seen, changed = self._following.go_on(self._seen, now)
        except (OSError, FleetError):
            self._seen = self.keeping.seen()
            raise
        self._seen = seen
        return seen, changed

    async def deliver(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Send what waits for the webhook, as far as it takes it. Raises OSError."""
        if self.webhook is not None and await self.webhook.deliver(self._told.posts, stopping):
            await asyncio.to_thread(self._save)

    async def run(self, stopping: asyncio.Event, every_s: float = INTERVAL_S) -> None:
        """Look and deliver every `every_s` seconds until `stopping` is set.

        Raises what `FAILURES` rounds in a row raised.
        """
        failures = 0
        while not stopping.is_set():
            began = time.monotonic()
            try:
                await asyncio.to_thread(self.look)
                await self.deliver(stopping.is_set)
                failures = 0
            except (OSError, FleetError) as error:
                failures += 1
                if failures >= MAX_FAILURES:
                    raise
                if failures == 1:
                    log_event(ERROR, "alerts cannot be judged", why=str(error))
            left = max(0.0, began + every_s - time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), left)

    def _save(self) -> None:
        self._told.stretches = self._stretches.known()
        encoded = msgspec.json.encode(self._told)
        if encoded != self._saved:
            self.keeping.save_told(self._told)
            self._saved = encoded

    def _revoked(self, gateway: str) -> bool:
        try:
            record = self._gateways.get(gateway)
        except FleetError:
            return False
        return record is not None and record.revoked is not None

    def _warn(self, seen: FleetState) -> None:
        """Tell once in a run of what is not watched, since there is too much of it."""
        beyond = {name: each.beyond for name, each in seen.gateways.items() if each.beyond}
        if seen.beyond:
            beyond[""] = seen.beyond
        for gateway in sorted(beyond.keys() - self._warned):
            log_event(WARNING, "not all is watched", gateway=gateway, events=beyond[gateway])
        self._warned |= beyond.keys()
