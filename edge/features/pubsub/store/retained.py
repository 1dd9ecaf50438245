"""Store how far subscriptions have got with the retained items of nodes (`service.retained`).

The numbers of such subscriptions, and the positions of their last items, are also in memory
(`Transaction.cache`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Set
from operator import itemgetter
from typing import Final, NamedTuple

from edge.engine.store.database import Transaction


class Progress(NamedTuple):
    """The progress of a subscription: nodes whose names are less than `next` are done, and items
    after the position `last` are newer than the subscription."""

    next: str
    last: int


class _Pending(NamedTuple):
    """The subscriptions in progress: by account, pairs of a full JID and a number, in the order of
    the numbers; and `Progress.last` of all by number."""

    of_account: dict[str, list[tuple[str, int]]]
    last: dict[int, int]

    def add(self, jid: str, number: int, last: int) -> None:
        """Add a subscription, or change it."""
        is_new = number not in self.last
        self.last[number] = last
        if is_new:
            of_account = self.of_account.setdefault(_account(jid), [])
            insort(of_account, (jid, number), key=itemgetter(1))

    def remove(self, jid: str, number: int) -> None:
        """Remove a subscription, if it is there."""
        if self.last.pop(number, None) is not None:
            of_account = self.of_account[_account(jid)]
            of_account.remove((jid, number))
            if not of_account:
                del self.of_account[_account(jid)]


_CACHE: Final = "retained items in progress"

_BEGIN: Final = """
INSERT OR REPLACE INTO retained_progress (subscription, next, last)
VALUES (?, ?, (SELECT coalesce(max(id), 0) FROM items))
RETURNING last
"""
_GET: Final = "SELECT next, last FROM retained_progress WHERE subscription = ?"
_SAVE: Final = "UPDATE retained_progress SET next = ? WHERE subscription = ?"
_END: Final = "DELETE FROM retained_progress WHERE subscription = ?"
_PENDING: Final = """
SELECT s.jid, s.id, r.last
FROM retained_progress AS r CROSS JOIN subscriptions AS s ON s.id = r.subscription
ORDER BY r.subscription
"""
_WAITING: Final = """
SELECT r.subscription FROM retained_progress AS r
WHERE r.last >= ?1 AND r.next <= ?2 AND NOT EXISTS (
    SELECT 1 FROM retained_sent AS s WHERE s.subscription = r.subscription AND s.item = ?1
)
"""
_SENT: Final = "SELECT item FROM retained_sent WHERE subscription = ?"
_MARK_SENT: Final = "INSERT INTO retained_sent (subscription, item) VALUES (?, ?)"


def begin(tx: Transaction, jid: str, subscription: int, next: str) -> None:
    """Begin to send a subscription of a full JID the items of nodes from the name `next` on, or
    begin again."""
    (last,) = tx.row(_BEGIN, (subscription, next))
    if (pending := tx.cache.get(_CACHE)) is not None:
        pending.add(jid, subscription, last)


def get(tx: Transaction, subscription: int) -> Progress | None:
    """Return the progress of a subscription; `None` if nothing is left to send."""
    row = tx.row(_GET, (subscription,))
    return None if row is None else Progress(*row)


def save(tx: Transaction, subscription: int, next: str) -> None:
    """Record that the nodes before the name `next` are done."""
    tx.run(_SAVE, (next, subscription))


def end(tx: Transaction, jid: str, subscription: int) -> None:
    """Record that nothing is left to send to a subscription of a full JID, or that it has ended."""
    if is_pending(tx, subscription):
        tx.run(_END, (subscription,))
        _pending(tx).remove(jid, subscription)


def sent(tx: Transaction, subscription: int) -> set[int]:
    """Return the positions of the items that were sent before their turn; at most one for each
    node."""
    return {int(item) for (item,) in tx.rows(_SENT, (subscription,))}


def mark_sent(tx: Transaction, subscription: int, item: int) -> None:
    """Record that an item, given by its position, was sent before its turn."""
    tx.run(_MARK_SENT, (subscription, item))


def of_account(tx: Transaction, account: str) -> list[tuple[str, int]]:
    """Return the subscriptions of an account that are in progress, as pairs of a full JID and a
    number."""
    return _pending(tx).of_account.get(account, [])


def accounts(tx: Transaction) -> list[str]:
    """Return the accounts with subscriptions in progress: at most `limits.subscriptions`."""
    return list(_pending(tx).of_account)


def put_last(tx: Transaction, account: str) -> None:
    """Make an account the last of `accounts`."""
    of_account = _pending(tx).of_account
    of_account[account] = of_account.pop(account)


def is_session_pending(tx: Transaction, full: str) -> bool:
    """Return whether any subscription of a full JID is in progress."""
    for jid, _number in of_account(tx, _account(full)):  # noqa: SIM110 (a generator costs more)
        if jid == full:
            return True
    return False


def is_pending(tx: Transaction, subscription: int) -> bool:
    """Return whether a subscription is in progress."""
    return subscription in _pending(tx).last


def is_any_pending(tx: Transaction) -> bool:
    """Return whether any subscription is in progress."""
    return bool(_pending(tx).last)


def waiting_for(tx: Transaction, name: str, item: int) -> Set[int]:
    """Return the numbers of the subscriptions in progress that are to get an item if they match its
    node.

    Args:
        name: the name of the node.
        item: the position of the item.
    """
    if max(_pending(tx).last.values(), default=0) < item:
        return frozenset()  # it is newer than all
    return {int(number) for (number,) in tx.rows(_WAITING, (item, name))}


def load(tx: Transaction) -> None:
    """Read the subscriptions in progress into memory, unless they are there."""
    _pending(tx)


def _pending(tx: Transaction) -> _Pending:
    found: _Pending | None = tx.cache.get(_CACHE)
    if found is None:
        found = tx.cache[_CACHE] = _Pending({}, {})
        for jid, number, last in tx.rows(_PENDING):
            found.add(jid, number, last)
    return found


def _account(jid: str) -> str:
    return jid.partition("@")[0]
