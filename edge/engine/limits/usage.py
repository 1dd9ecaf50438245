"""The usage of each limit and the numbers of waiting rows, for operators.

The engine and the features declare the queries (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from edge.engine.store.database import Transaction
from edge.engine.store.tables import declared


class LimitUsage(NamedTuple):
    """The usage of a limit. If each source, account or lane has this limit, `value` is the largest
    usage, and `of` names whose it is."""

    value: int
    of: str | None = None


def limits(tx: Transaction) -> dict[str, LimitUsage]:
    """Return the usage of each option of `[limits]` that limits stored rows, by its name."""
    found: dict[str, LimitUsage] = {}
    for tables in declared():
        for names, sql in tables.totals.items():
            found.update(zip(names, map(LimitUsage, tx.row(sql)), strict=True))
        for names, sql in tables.largest.items():
            found.update(zip(names, _fullest(tx.run(sql), len(names)), strict=True))
    return found


def waiting(tx: Transaction) -> dict[str, int]:
    """Return the numbers of waiting messages, events, segments and items, by their names."""
    return {
        name: int(tx.row(sql)[0]) for tables in declared() for name, sql in tables.waiting.items()
    }


def waiting_by_account(tx: Transaction) -> dict[str, dict[str, int]]:
    """Return the numbers of waiting messages of each account, by their names.

    The accounts of `held` are bare JIDs of senders; the others are names of recipients.
    """
    return {
        name: dict(tx.rows(sql))
        for tables in declared()
        for name, sql in tables.waiting_by_account.items()
    }


def by_session(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return, by full address, the numbers of messages that wait for a session alone, and of those
    that were sent to it and are not finished."""
    return {
        full: (int(queued), int(sent))
        for tables in declared()
        if tables.by_session
        for full, queued, sent in tx.rows(tables.by_session)
    }


def _fullest(rows: Iterable[tuple[str, int, int]], columns: int) -> list[LimitUsage]:
    largest = [LimitUsage(0)] * columns
    for of, *mine in rows:
        for column, value in enumerate(mine):
            if value > largest[column].value:
                largest[column] = LimitUsage(int(value), of)
    return largest
