"""Evaluate the alert rules in rounds: read new data, judge it, save alerts, send them.

Alerts are saved before they are sent, so that after a crash the next process sends them again with
the same ids. The landing is read before the tables, so that a segment that the ingest moves
meanwhile is seen in one of them.
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

from sync.alerts.incidents import FORGET_MS, Alert, IncidentTracker
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.persistence import StateStore
from sync.alerts.rules import judge_events, judge_silence
from sync.alerts.sources import read_batches, scan_landing
from sync.alerts.state import MAX_GATEWAYS, FleetState, cap_times, forget, is_ahead_of
from sync.alerts.webhook import Webhook
from sync.common.errors import FleetError, LeaseError
from sync.common.json_log import log_event
from sync.receiver.gateways import GatewayRegistry
from sync.storage.locations import FleetStorage
from sync.tables.delta import FleetTables

INTERVAL_S: Final = 15.0
"""Seconds between two rounds: short against the minutes between the segments of a gateway."""

MAX_FAILURES: Final = 20
"""Failed rounds in a row, some five minutes, after which the command exits with the reason, so that
the service manager notices."""


@dataclass
class AlertMonitor:
    """Monitors at most `max_gateways` gateways of the fleet in `places`.

    `gateways` tells which gateways are revoked: these may be silent. `clock` returns seconds since
    1970 UTC.

    Use it only while the lock of `store` is held (`StateStore.locked`).
    """

    places: FleetStorage
    store: StateStore
    output: JsonLinesOutput
    webhook: Webhook | None = None
    gateways: GatewayRegistry | None = None
    clock: Callable[[], float] = time.time
    max_gateways: int = MAX_GATEWAYS
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Load the saved state. Raises FleetError when it cannot be read."""
        self._tables = FleetTables(self.places.tables, self.places.segments)
        self._state = self.store.load_state()
        self._journal = self.store.load_journal()
        self._incidents = IncidentTracker(self._journal.incidents)
        self._saved = msgspec.json.encode(self._journal)

    @property
    def undelivered(self) -> int:
        """The number of alerts that wait for the webhook."""
        return len(self._journal.webhook_queue)

    def check(self) -> list[Alert]:
        """Check the fleet once; write new alerts to the output and return them.

        Raises OSError and FleetError when landing, tables or disk cannot be read or written.
        """
        now = int(self.clock() * 1000)
        landing = scan_landing(self.places.segments, now)
        state, changed = self._update_state(now)
        cap_times(state, now)
        self._incidents.cap_times(now)
        if changed:
            forget(state, now, FORGET_MS)
            self.store.save_state(state)
            self._warn_unmonitored(state)
        active = self._incidents.active()
        silence = judge_silence(state, landing, now, self._is_revoked, active)
        alerts = self._incidents.update(chain(silence, judge_events(state, active)), now)
        if dropped := self._journal.enqueue(alerts, webhook=self.webhook is not None):
            text = "too many alerts wait for delivery; the oldest were discarded"
            log_event(WARNING, "discarded", text=text, alerts=dropped)
        self._save_journal()
        self.output.write(self._journal.output_queue)
        self._journal.output_queue.clear()
        self._save_journal()
        return alerts

    def _update_state(self, now: int) -> tuple[FleetState, bool]:
        """Read the new batches of the tables; return the state, and whether it changed.

        After a failure, the next call continues from the saved state. If the centre's clock was set
        back, the tables are read again: a clock that is ahead makes facts look too old to be kept.
        """
        if self._state is not None and is_ahead_of(self._state, now):
            self._state = None
        try:
            state, changed = read_batches(self._tables, self._state, now, self.max_gateways)
        except (OSError, FleetError):
            self._state = self.store.load_state()
            raise
        self._state = state
        return state, changed

    async def deliver(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Send queued alerts to the webhook until one fails or `stopping` returns True.

        Raises OSError when the journal cannot be saved.
        """
        if self.webhook is None:
            return
        if await self.webhook.deliver(self._journal.webhook_queue, stopping):
            await asyncio.to_thread(self._save_journal)

    async def run(self, stopping: asyncio.Event, interval_s: float = INTERVAL_S) -> None:
        """Check the fleet and deliver alerts every `interval_s` seconds until `stopping` is set.

        After `MAX_FAILURES` failed rounds in a row, raises the exception of the last one. Raises
        LeaseError at once if another process sends alerts of this fleet.
        """
        failures = 0
        while not stopping.is_set():
            began = time.monotonic()
            try:
                await asyncio.to_thread(self.check)
                await self.deliver(stopping.is_set)
                failures = 0
            except LeaseError:
                raise
            except (OSError, FleetError) as error:
                failures += 1
                if failures >= MAX_FAILURES:
                    raise
                if failures == 1:
                    log_event(ERROR, "check", text=f"cannot check for problems: {error}")
            left = max(0.0, began + interval_s - time.monotonic())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), left)

    def _save_journal(self) -> None:
        self._journal.incidents = self._incidents.incidents()
        encoded = msgspec.json.encode(self._journal)
        if encoded != self._saved:
            self.store.save_journal(self._journal)
            self._saved = encoded

    def _is_revoked(self, gateway: str) -> bool:
        with contextlib.suppress(FleetError):
            record = self.gateways.get(gateway) if self.gateways else None
            return record is not None and record.revoked is not None
        return False

    def _warn_unmonitored(self, state: FleetState) -> None:
        counts = {name: each.unmonitored for name, each in state.gateways.items()}
        for gateway, events in sorted(counts.items()):
            if events and gateway not in self._warned:
                text = "too many queues, limits or sensors, or too long names; some cause no alerts"
                log_event(WARNING, "limit", text=text, gateway=gateway, events=events)
                self._warned.add(gateway)
