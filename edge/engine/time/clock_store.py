"""The stored state of the clock: service seconds, and the data by which the next start computes how
long the gateway was off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from edge.engine.dispatch.hooks import TimeOffHook
from edge.engine.rules.service_time import Run, SavedTime, TimeOff, TimeOffSource, advance
from edge.engine.store import events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

_KEY: Final = "clock"
"""The key in `meta` of the saved state, as JSON."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SavedTime).decode


def load(tx: Transaction) -> SavedTime:
    """Return the saved state of the clock; if an older version saved it, only `service` is set."""
    text = meta.find_text(tx, _KEY)
    return SavedTime(meta.read_number(tx, meta.SERVICE)) if text is None else _decode(text)


def save(tx: Transaction, state: SavedTime) -> None:
    """Save a state of the clock."""
    meta.write(tx, _KEY, _encode(state).decode())
    meta.write(tx, meta.SERVICE, state.service)


def save_progress(tx: Transaction, run: Run, *, clean: bool = False) -> None:
    """Save the service seconds that a run has reached; `clean` is true when the run ends cleanly.

    This writes little. The time for which the gateway was off is added to the age of stored rows
    only by `settle_time_off`, which may write many.
    """
    state = load(tx)
    now = tx.now if state.before is None else tx.now._replace(synchronised=False)
    state, _ = advance(state, run, now)
    save(tx, state._replace(clean=clean))


def settle_time_off(tx: Transaction, run: Run, hooks: Iterable[TimeOffHook]) -> bool:
    """Add the time for which the gateway was off to the age of stored rows, and log it.

    Return false while this time is unknown, because the wall clock is not synchronised. This may
    write many rows.
    """
    state, off = advance(load(tx), run, tx.now)
    save(tx, state)
    if off is not None:
        _count(tx, off, hooks)
    return state.before is None


def _count(tx: Transaction, off: TimeOff, hooks: Iterable[TimeOffHook]) -> None:
    counted = off.known is TimeOffSource.WALL
    if counted and off.seconds > 0:
        for age in hooks:
            age(tx, off.before, off.seconds)
        tx.wake_at(tx.now.service)
    event = NewEvent(
        "system",
        name="time_off",
        value=round(off.seconds, 3),
        unit="s",
        level="Informational" if counted else "Warning",
        tags={"known": off.known},
    )
    events.append(tx, events.SYSTEM, event)
