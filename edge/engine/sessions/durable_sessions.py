"""Sessions whose state outlives their connections and the process: rows of `durable_sessions`.

The state is what features keep for a full address: subscriptions, messages in the outbox, custody.
It is kept while a session has the address, and for a time afterwards. When it ends, features delete
it (`Hooks.on_state_end`). After a crash no session has an address, and the time of each begins when
the gateway starts again. Source: MQTT 5, section 4.1.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context
from edge.engine.log import refusals
from edge.engine.rules import quota
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store.database import Transaction

BATCH: Final = 32
"""Maximum number of sessions whose state ends in one unit of work."""

_FIND: Final = "SELECT 1 FROM main.durable_sessions WHERE full = ?"
_IS_KEPT: Final = "SELECT 1 FROM main.durable_sessions WHERE full = ? AND seconds > 0"
_KEEP: Final = """
INSERT INTO main.durable_sessions (full, account, seconds)
SELECT ?, id, ? FROM main.accounts WHERE name = ?
ON CONFLICT (full) DO UPDATE SET seconds = excluded.seconds, expires = NULL
"""
_BIND: Final = "UPDATE main.durable_sessions SET expires = NULL WHERE full = ?"
_SET_TIME: Final = "UPDATE main.durable_sessions SET seconds = ? WHERE full = ?"
_LEAVE: Final = """
UPDATE main.durable_sessions SET expires = ? + seconds WHERE full = ? RETURNING expires
"""
_LEAVE_ABSENT: Final = """
UPDATE main.durable_sessions SET expires = ? + seconds
WHERE expires IS NULL AND full NOT IN (SELECT full FROM temp.sessions)
"""
_ENDING: Final = """
SELECT d.full FROM main.durable_sessions AS d JOIN main.accounts AS a ON a.id = d.account
WHERE d.expires <= ? OR a.revoked IS NOT NULL ORDER BY d.expires LIMIT ?
"""
_FIRST: Final = "SELECT min(expires) FROM main.durable_sessions"
_REMOVE: Final = "DELETE FROM main.durable_sessions WHERE full = ?"
_COUNT: Final = """
SELECT count(*), coalesce(sum(account = (SELECT id FROM main.accounts WHERE name = ?)), 0)
FROM main.durable_sessions WHERE seconds > 0
"""
_COUNT_AWAY: Final = "SELECT count(*) FROM durable_sessions WHERE expires IS NOT NULL"
_ALL: Final = """
SELECT a.name, d.full, d.seconds, d.expires FROM main.durable_sessions AS d
JOIN main.accounts AS a ON a.id = d.account ORDER BY d.full
"""
_AGE: Final = """
UPDATE main.durable_sessions SET expires = expires - ? WHERE expires - seconds <= ?
"""


def exceeded_limit(
    context: Context, tx: Transaction, account: str, full: str
) -> ExceededLimit | None:
    """Return the limit that keeping a state for a full address would exceed, if any; log it.

    A state that ends with its session does not count.
    """
    if tx.row(_IS_KEPT, (full,)) is not None:
        return None
    total, of_account = tx.row(_COUNT, (account,))
    limits = context.limits
    exceeded = quota.exceeded_number(
        quota.DURABLE_SESSION_LIMITS,
        of_account,
        total,
        limits.durable_sessions_per_account,
        limits.durable_sessions,
    )
    if exceeded is not None:
        refusals.log_source(context, tx, full.partition("/")[0], *exceeded)
    return exceeded


def begin(
    context: Context,
    tx: Transaction,
    account: str,
    full: str,
    seconds: float | None,
    *,
    clean: bool,
) -> bool:
    """Record that a session has an address; return whether there is a state of earlier sessions.

    Args:
        seconds: how long the state is kept after the session, at most
            `limits.durable_session_time`. `None` keeps an existing state as it is, and none else.
        clean: whether an existing state ends.
    """
    is_found = exists(tx, full)
    if is_found and clean:
        end(context, tx, full)
        is_found = False
    if seconds is not None:
        tx.run(_KEEP, (full, min(seconds, context.limits.durable_session_time), account))
    elif is_found:
        tx.run(_BIND, (full,))
    return is_found


def set_time(context: Context, tx: Transaction, full: str, seconds: float) -> None:
    """Set for how many seconds a state is kept after its session, as `begin` does."""
    tx.run(_SET_TIME, (min(seconds, context.limits.durable_session_time), full))


def leave(context: Context, tx: Transaction, full: str) -> None:
    """Record that no session has an address any more; end its state if it is not kept."""
    row = tx.row(_LEAVE, (tx.now.service, full))
    if row is None:
        return
    if row[0] <= tx.now.service:
        end(context, tx, full)
    else:
        tx.wake_at(row[0])


def end(context: Context, tx: Transaction, full: str) -> None:
    """End the state that is kept for an address."""
    tx.run(_REMOVE, (full,))
    for hook in context.hooks.on_state_end:
        hook(context, tx, full)


def end_due(context: Context, tx: Transaction) -> None:
    """End the states whose time is over or whose account is revoked; set the timer for the next."""
    tx.run(_LEAVE_ABSENT, (tx.now.service,))
    for (full,) in tx.rows(_ENDING, (tx.now.service, BATCH)):
        end(context, tx, full)
    (first,) = tx.row(_FIRST)
    if first is not None:
        tx.wake_at(first)


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds` of time off to the age of states that were left by the service second
    `before`."""
    tx.run(_AGE, (seconds, before))


def list_all(tx: Transaction) -> list[tuple[str, str, float, float | None]]:
    """Return, for each address with a state, its account, the address, for how many seconds the
    state is kept without a session, and the service second at which it ends if it has none."""
    return list(tx.rows(_ALL))


def count_away(tx: Transaction) -> int:
    """Return the number of addresses with a state, but without a session."""
    return int(tx.row(_COUNT_AWAY)[0])


def exists(tx: Transaction, full: str) -> bool:
    """Return whether a state is kept for a full address."""
    return tx.row(_FIND, (full,)) is not None
