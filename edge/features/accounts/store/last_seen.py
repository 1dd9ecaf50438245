"""Store the time of each account's last session (`accounts.seen`).

The column is 0 while the account has a session. A crash leaves it 0; then the last heartbeat is the
last time at which the account is known to have been online. Times between two heartbeats are in
memory only, because a device with a bad link reconnects often: a commit each time would wear the
card, and a log-in must not need room on the disk.
"""

from __future__ import annotations

from typing import Final

from edge.engine.store import meta
from edge.engine.store.database import Transaction

ONLINE: Final = 0
"""The value of `accounts.seen` while an account has a session."""

_HEARTBEAT: Final = "seen"
"""The key in `meta` of the time of the last heartbeat, in ms since 1970 UTC."""

_NOTE: Final = "INSERT OR REPLACE INTO temp.seen (account, wall) VALUES (?, ?)"
_UNSAVED: Final = "SELECT account, wall FROM temp.seen"
_SAVE: Final = """
UPDATE main.accounts SET seen = CASE
    WHEN EXISTS (SELECT 1 FROM temp.sessions AS s WHERE s.account = t.account) THEN 0
    ELSE t.wall END
FROM temp.seen AS t WHERE accounts.name = t.account
"""
_FORGET: Final = "DELETE FROM temp.seen"
_SETTLE: Final = "UPDATE accounts SET seen = ? WHERE seen = 0"


def note(tx: Transaction, account: str) -> None:
    """Note that a session of an account begins or ends; `save` stores the time."""
    tx.run(_NOTE, (account, tx.now.wall))


def unsaved(tx: Transaction) -> dict[str, int]:
    """Return when sessions began or ended last, by account, since `save` ran last; in ms since 1970
    UTC. The running gateway alone knows this."""
    return dict(tx.rows(_UNSAVED))


def save(tx: Transaction) -> None:
    """Store the noted times; called with each heartbeat, whose transaction is committed anyway."""
    tx.run(_SAVE)
    tx.run(_FORGET)
    meta.write(tx, _HEARTBEAT, tx.now.wall)


def last_heartbeat(tx: Transaction) -> int:
    """Return when `save` ran last, in ms since 1970 UTC; 0 if it never ran."""
    return round(meta.read_number(tx, _HEARTBEAT))


def settle(tx: Transaction) -> None:
    """Correct accounts that are still marked online after the previous run ended.

    Their `seen` becomes the time of that run's last heartbeat.
    """
    tx.run(_SETTLE, (last_heartbeat(tx) or None,))
