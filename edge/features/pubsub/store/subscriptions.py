"""Subscriptions: who is notified of what, and who is a member of which queue.

A subscription names a node, or a filter of names. One with a queue is a member of it: of a queue
node's, or of a share's, which is a filter and the share's name. Filters are kept in memory as a
tree, from one transaction to the next. Who may subscribe is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from edge.engine.database import Transaction
from edge.features.pubsub.rules.topic import Trie, parse_filter

NO_OPTIONS: Final[Mapping[str, str]] = {}

BATCH: Final = 64
"""How many subscriptions end in one unit of work, of those that nobody has come back for."""

_FILTERS: Final = "filters"


class Subscription(NamedTuple):
    """A subscription.

    `account` is the name of the subscriber's account, `jid` the bare or full JID that is
    subscribed. Of `node` (its number) and `filter` there is one. `queue` is the number of the queue
    whose member it is, `share` the name of that share if it is one; `requests` how many items such
    a member takes at a time. `presence` tells that it ends with the session. `options` are the
    others that were set, by their names in a form.
    """

    id: int
    subid: str
    account: str
    jid: str
    node: int | None
    filter: str | None
    queue: int | None
    share: str | None
    qos: int
    requests: int | None
    presence: bool
    options: Mapping[str, str]

    @property
    def bare(self) -> str:
        """The bare JID of who is subscribed."""
        return self.jid.partition("/")[0]


class _Known(NamedTuple):
    """What is kept in memory of filters: those of subscriptions and of shares, by number."""

    plain: Trie[int]
    subscriptions: dict[int, Subscription]
    shares: Trie[int]


_COLUMNS: Final = """
SELECT s.id, s.subid, a.name, s.jid, s.node, s.filter, s.queue, q.share, s.qos, s.requests,
    s.presence, s.options
FROM subscriptions AS s JOIN accounts AS a ON a.id = s.account
LEFT JOIN queues AS q ON q.id = s.queue
"""
_ADD: Final = """
INSERT INTO subscriptions (
    subid, account, jid, node, filter, queue, qos, requests, presence, options
) SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ? FROM accounts WHERE name = ?
RETURNING id
"""
_SAVE: Final = """
UPDATE subscriptions SET qos = ?, requests = ?, presence = ?, options = ? WHERE id = ?
"""
_REMOVE: Final = "DELETE FROM subscriptions WHERE id = ?"
_GET: Final = f"{_COLUMNS} WHERE s.id = ?"
_FIND: Final = f"""{_COLUMNS}
WHERE s.jid = ? AND s.node IS ? AND s.filter IS ? AND q.share IS ?
"""
_ALL_OF_NODE: Final = f"{_COLUMNS} WHERE s.node = ? ORDER BY s.id"
_LISTENING: Final = f"""{_COLUMNS}
WHERE s.node = ? AND s.queue IS NULL AND a.revoked IS NULL ORDER BY s.id
"""
_PLAIN_FILTERS: Final = f"""{_COLUMNS}
WHERE s.filter IS NOT NULL AND s.queue IS NULL AND a.revoked IS NULL ORDER BY s.id
"""
_SHARES: Final = "SELECT id, filter FROM queues WHERE share IS NOT NULL ORDER BY id"
_OF_QUEUE: Final = f"{_COLUMNS} WHERE s.queue = ? ORDER BY s.id"
_JIDS: Final = "SELECT jid FROM subscriptions WHERE queue = ? ORDER BY id"
_OF_ACCOUNT: Final = f"{_COLUMNS} WHERE a.name = ? ORDER BY s.id"
_ENDS: Final = "(s.presence OR (s.queue IS NOT NULL AND s.node IS NOT NULL))"
_ENDING: Final = f"{_COLUMNS} WHERE s.jid = ? AND {_ENDS} ORDER BY s.id"
_UNATTENDED: Final = f"""{_COLUMNS}
WHERE {_ENDS} AND NOT EXISTS (SELECT 1 FROM temp.sessions AS t WHERE t.full = s.jid)
    AND NOT EXISTS (SELECT 1 FROM temp.sessions AS t WHERE t.bare = s.jid)
ORDER BY s.id LIMIT ?
"""  # noqa: S608 - of constants
_RETURNS: Final = "SELECT due FROM temp.returns"
_AWAIT: Final = "INSERT OR REPLACE INTO temp.returns VALUES (1, ?)"
_COUNT: Final = "SELECT count(*) FROM subscriptions"
_COUNT_OF: Final = """
SELECT count(*) FROM subscriptions WHERE account = (SELECT id FROM accounts WHERE name = ?)
"""
_HAS_MEMBERS: Final = "SELECT 1 FROM subscriptions WHERE queue = ? LIMIT 1"
_DESERTED: Final = """
SELECT id FROM queues AS q WHERE share IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.queue = q.id)
ORDER BY id
"""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decoder: Final = msgspec.json.Decoder(dict[str, str])


def add(
    tx: Transaction,
    account: str,
    jid: str,
    subid: str,
    *,
    node: int | None = None,
    filter: str | None = None,
    queue: int | None = None,
    qos: int = 0,
    requests: int | None = None,
    presence: bool = False,
    options: Mapping[str, str] = NO_OPTIONS,
) -> Subscription:
    """Subscribe an account, by name; there is one of that name, and it is not subscribed so."""
    values = (subid, jid, node, filter, queue, qos, requests, presence, _text(options), account)
    (id,) = tx.row(_ADD, values)
    found = get(tx, id)
    assert found is not None, "what was added is there"  # noqa: S101 - for the checker of types
    if found.filter is not None and _FILTERS in tx.known:
        _note(tx.known[_FILTERS], found)
    return found


def save(tx: Transaction, subscription: Subscription) -> None:
    """Write down what was set of a subscription: its level, `requests`, `presence` and options."""
    options = _text(subscription.options)
    set_ = subscription.qos, subscription.requests, subscription.presence, options
    tx.run(_SAVE, (*set_, subscription.id))
    known: _Known | None = tx.known.get(_FILTERS)
    if known is not None and subscription.id in known.subscriptions:
        known.subscriptions[subscription.id] = subscription


def remove(tx: Transaction, subscription: Subscription) -> None:
    """End a subscription."""
    tx.run(_REMOVE, (subscription.id,))
    known: _Known | None = tx.known.get(_FILTERS)
    if known is None or subscription.filter is None:
        return
    if subscription.queue is None:
        known.subscriptions.pop(subscription.id, None)
        known.plain.remove(parse_filter(subscription.filter), subscription.id)
    elif not has_members(tx, subscription.queue):
        known.shares.remove(parse_filter(subscription.filter), subscription.queue)


def get(tx: Transaction, id: int) -> Subscription | None:
    """Return a subscription by its number, if it is there still."""
    return _one(tx.row(_GET, (id,)))


def find(
    tx: Transaction,
    jid: str,
    *,
    node: int | None = None,
    filter: str | None = None,
    share: str | None = None,
) -> Subscription | None:
    """Return the subscription of a JID to a node, to a filter, or as a member of a share."""
    return _one(tx.row(_FIND, (jid, node, filter, share)))


def all_of_node(tx: Transaction, node: int) -> list[Subscription]:
    """Return the subscriptions to a node, and the members of its queue."""
    return _all(tx.rows(_ALL_OF_NODE, (node,)))


def listening(tx: Transaction, node: int) -> list[Subscription]:
    """Return the subscriptions to a node, but for members of its queue and those whose accounts are
    revoked."""
    return _all(tx.rows(_LISTENING, (node,)))


def matching(tx: Transaction, name: str) -> list[Subscription]:
    """Return the subscriptions to filters that match a node's name, but for members of shares and
    those whose accounts are revoked; in the order in which they were made."""
    known = _known(tx)
    return [known.subscriptions[id] for id in sorted(known.plain.match(name))]


def shares(tx: Transaction, name: str) -> list[int]:
    """Return the queues, by number, of the shares whose filters match a node's name."""
    return sorted(_known(tx).shares.match(name))


def of_queue(tx: Transaction, queue: int) -> list[Subscription]:
    """Return the members of a queue."""
    return _all(tx.rows(_OF_QUEUE, (queue,)))


def members(tx: Transaction, queue: int) -> Iterator[str]:
    """Name the members of a queue by their bare JIDs, one after another: who has seen enough reads
    no more of them."""
    for (jid,) in tx.run(_JIDS, (queue,)):
        yield jid.partition("/")[0]


def has_members(tx: Transaction, queue: int) -> bool:
    """Tell whether a queue has a member."""
    return tx.row(_HAS_MEMBERS, (queue,)) is not None


def of_account(tx: Transaction, account: str) -> list[Subscription]:
    """Return the subscriptions of an account, by name, whichever of its JIDs are subscribed."""
    return _all(tx.rows(_OF_ACCOUNT, (account,)))


def ending(tx: Transaction, jid: str) -> list[Subscription]:
    """Return the subscriptions of a JID that end when it is gone: those that were meant to, and the
    members of queue nodes."""
    return _all(tx.rows(_ENDING, (jid,)))


def unattended(tx: Transaction) -> list[Subscription]:
    """Return subscriptions that end with a session and have none, `BATCH` at most."""
    return _all(tx.rows(_UNATTENDED, (BATCH,)))


def awaited(tx: Transaction, patience: float) -> float | None:
    """Return until which service second sessions of before the start may come back, or `None` when
    that is over. It is `patience` seconds from the first time that this is asked."""
    row = tx.row(_RETURNS)
    if row is None:
        tx.run(_AWAIT, (tx.now.service + patience,))
        return tx.now.service + patience
    return None if row[0] is None else float(row[0])


def await_no_more(tx: Transaction) -> None:
    """Note that who has not come back by now does not."""
    tx.run(_AWAIT, (None,))


def count(tx: Transaction, account: str | None = None) -> int:
    """Return how many subscriptions there are: of an account, by name, or in all."""
    row = tx.row(_COUNT) if account is None else tx.row(_COUNT_OF, (account,))
    return int(row[0])


def deserted(tx: Transaction) -> list[int]:
    """Return the queues, by number, of shares that have no member: their accounts were removed."""
    return [int(queue) for (queue,) in tx.rows(_DESERTED)]


def forget(tx: Transaction) -> None:
    """Read filters anew at the next sight: queues of shares have gone by another way."""
    tx.known.pop(_FILTERS, None)


def _known(tx: Transaction) -> _Known:
    """Return what is kept of filters, read at first sight: all there are, a bounded number."""
    known: _Known | None = tx.known.get(_FILTERS)
    if known is None:
        known = _Known(Trie(), {}, Trie())
        for subscription in _all(tx.rows(_PLAIN_FILTERS)):
            _note(known, subscription)
        for queue, filter in tx.rows(_SHARES):
            known.shares.add(parse_filter(filter), queue)
        tx.known[_FILTERS] = known
    return known


def _note(known: _Known, subscription: Subscription) -> None:
    filter = parse_filter(subscription.filter or "")
    if subscription.queue is None:
        known.plain.add(filter, subscription.id)
        known.subscriptions[subscription.id] = subscription
    else:
        known.shares.add(filter, subscription.queue)


def _text(options: Mapping[str, str]) -> str:
    return _encode(options).decode()


def _all(rows: Sequence[Any]) -> list[Subscription]:
    return [_subscription(row) for row in rows]


def _one(row: Any) -> Subscription | None:
    return None if row is None else _subscription(row)


def _subscription(row: Any) -> Subscription:
    *fields, presence, options = row
    found = NO_OPTIONS if options == "{}" else _decoder.decode(options)
    return Subscription._make((*fields, bool(presence), found))
