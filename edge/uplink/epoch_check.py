"""The start's look at whether this database may count on, and a new epoch if it may not.

Runs before any event is written. What is compared is `rules.lineage`'s. A plain copy that was put
back on the same card shows by nothing that is here: the centre finds it, once it is asked.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from edge.config.load import Config
from edge.engine.database import Transaction
from edge.engine.group_commit import Store
from edge.features.eventlog.rules import epoch
from edge.features.eventlog.store import epochs
from edge.ops import hardware
from edge.uplink import backlog
from sync import uplink


async def settle(
    folder: Path, store: Store, config: Config, facts: uplink.GatewayStateSource
) -> None:
    """Begin a new epoch if this is a copy, or runs on another board or card; raises `StoreError`.

    One transaction: the epoch, and what is remembered.
    """
    found = await asyncio.to_thread(hardware.read, folder)
    state = await facts.state()

    def unit(tx: Transaction) -> None:
        known = epochs.load_hardware(tx)
        reason = epoch.new_epoch_reason(epochs.is_copy(tx), known, found)
        if reason is not None:
            backlog.begin_epoch(tx, config, state, reason)
        here = epoch.merge_hardware(known, found)
        if reason is not None or here != known:
            epochs.save_hardware(tx, here)

    await store.run(unit)
