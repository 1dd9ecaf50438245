"""The start's look at whether this database may count on, and a new epoch if it may not.

Runs before any event is written. What is compared is `rules.lineage`'s. A plain copy that was put
back on the same card shows by nothing that is here: the centre finds it, once it is asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edge import hardware, upstream
from edge.rules import lineage
from edge.store import epochs

if TYPE_CHECKING:
    from pathlib import Path

    from edge.config import Config
    from edge.store.commit import Store
    from edge.store.database import Transaction
    from sync import uplink


async def settle(folder: Path, store: Store, config: Config, facts: uplink.Facts) -> None:
    """Begin a new epoch if this is a copy, or runs on another board or card; raises `StoreError`.

    One transaction: the epoch, and what is remembered.
    """
    found = await asyncio.to_thread(hardware.read, folder)
    state = await facts.state()

    def unit(tx: Transaction) -> None:
        known = epochs.hardware(tx)
        reason = lineage.judge(epochs.is_copy(tx), known, found)
        if reason is not None:
            upstream.begin_epoch(tx, config, state, reason)
        here = lineage.remembered(known, found)
        if reason is not None or here != known:
            epochs.remember(tx, here)

    await store.run(unit)
