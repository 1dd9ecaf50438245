"""Begin an epoch when the gateway starts, if needed, and seal the last events when it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edge import background_tasks
from edge.background_tasks import HeartbeatSources
from edge.config.load import Config
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.engine.store.group_commit import Store
from edge.features.eventlog.rules import epoch
from edge.features.eventlog.store import epochs
from edge.ops.machine import hardware
from edge.uplink.backlog import StoreBacklog, begin_epoch
from sync.uplink.interfaces import GatewayStateSource
from sync.uplink.sealer import Sealer


async def begin_epoch_if_needed(
    folder: Path, store: Store, config: Config, facts: GatewayStateSource
) -> None:
    """Begin a new epoch if the database is a copy or runs on another board or card.

    This must run before any event is written. A copy that `fieldpost backup` did not make looks
    like the original on the same card; only the centre can detect it. Raises `StoreError`.
    """
    found = await asyncio.to_thread(hardware.read, folder)
    state = await facts.state()

    def unit(tx: Transaction) -> None:
        known = epochs.load_hardware(tx)
        reason = epoch.new_epoch_reason(epochs.is_copy(tx), known, found)
        if reason is not None:
            begin_epoch(tx, config, state, reason)
        here = epoch.merge_hardware(known, found)
        if reason is not None or here != known:
            epochs.save_hardware(tx, here)

    await store.run(unit)


async def seal_and_stop(beats: HeartbeatSources, sealer: Sealer, backlog: StoreBacklog) -> None:
    """Seal all events, log the closing event as the last one, and seal it.

    If segments are evicted because the backlog is full, that is logged before the closing event.
    Raises `StoreError` and `BacklogUnavailable`.
    """
    await sealer.flush()
    backlog.close()
    await background_tasks.write_heartbeat(beats, NewEvent("system", name=background_tasks.STOP))
    await sealer.flush()
