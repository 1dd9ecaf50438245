"""Store subscriptions, and keep their topic filters in memory as a trie.

A subscription is to a node or to a topic filter. A subscription with a queue number is a member of
that queue, which belongs to a queue node or to a share (a filter with a share name). Transactions
share the trie through `Transaction.cache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Final, Literal, NamedTuple

import msgspec

from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.subscription import (
    DEFAULT,
    DEFAULT_DELIVERY,
    DELIVER,
    DeliveryOptions,
    RetainHandling,
    SubscriptionKind,
    SubscriptionOptions,
)
from edge.features.pubsub.store import recipients, retained
from edge.features.pubsub.store.recipients import FilterChange, Matching
from edge.topics import Trie

BATCH: Final = 64
"""Maximum number of subscriptions that one unit of work ends because their sessions did not return
after a restart."""

_FILTERS: Final = "filters"


class Subscription(NamedTuple):
    """A subscription.

    `account` is the name of the subscriber's account, `jid` the subscribed bare or full JID. Either
    `node` (a number) or `filter` is set. For a member of a queue, `queue` is the queue's number and
    `share` the name of the share if the queue belongs to one.
    """

    id: int
    subid: str
    account: str
    jid: str
    node: int | None
    filter: str | None
    queue: int | None
    share: str | None
    options: SubscriptionOptions

    @property
    def bare(self) -> str:
        """The subscriber's bare JID."""
        return self.jid.partition("/")[0]

    @property
    def kind(self) -> SubscriptionKind:
        """The kind of the subscription."""
        if self.queue is None:
            return SubscriptionKind.PLAIN
        return SubscriptionKind.QUEUE if self.share is None else SubscriptionKind.SHARE


class _FilterIndex(NamedTuple):
    """In-memory index of topic filters.

    `plain` maps filters to the numbers of subscriptions that belong to no share, `subscriptions`
    and `bundles` map these numbers to the subscriptions and to their `_bundle`, if they have one,
    and `shares` maps filters to queue numbers of shares.
    """

    plain: Trie[int]
    subscriptions: dict[int, Subscription]
    bundles: dict[int, str]
    shares: Trie[int]

    def put(self, subscription: Subscription) -> None:
        """Set a subscription that belongs to no share, and its bundle."""
        self.subscriptions[subscription.id] = subscription
        if bundle := _bundle(subscription):
            self.bundles[subscription.id] = bundle
        else:
            self.bundles.pop(subscription.id, None)


_COLUMNS: Final = """
SELECT s.id, s.subid, a.name, s.jid, s.node, s.filter, s.queue, q.share, s.qos, s.requests,
    s.presence, s.options, iif(q.share IS NULL, NULL, q.policy)
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
_PLAIN_OF_NODE: Final = f"""{_COLUMNS}
WHERE s.node = ? AND s.queue IS NULL AND a.revoked IS NULL ORDER BY s.id
"""
_PLAIN_FILTERS: Final = f"""{_COLUMNS}
WHERE s.filter IS NOT NULL AND s.queue IS NULL AND a.revoked IS NULL ORDER BY s.id
"""
_SHARES: Final = "SELECT id, filter FROM queues WHERE share IS NOT NULL ORDER BY id"
_MEMBERS: Final = f"{_COLUMNS} WHERE s.queue = ? ORDER BY s.id"
_MEMBER_JIDS: Final = "SELECT jid FROM subscriptions WHERE queue = ? ORDER BY id"
_OF_ACCOUNT: Final = f"{_COLUMNS} WHERE a.name = ? ORDER BY s.id"
_IS_SESSION_BOUND: Final = "(s.presence OR (s.queue IS NOT NULL AND s.node IS NOT NULL))"
_BOUND_TO_SESSION: Final = f"{_COLUMNS} WHERE s.jid = ? AND {_IS_SESSION_BOUND} ORDER BY s.id"
_BOUND_WITHOUT_SESSION: Final = f"""{_COLUMNS}
WHERE {_IS_SESSION_BOUND} AND NOT EXISTS (SELECT 1 FROM temp.sessions AS t WHERE t.full = s.jid)
    AND NOT EXISTS (SELECT 1 FROM temp.sessions AS t WHERE t.bare = s.jid)
ORDER BY s.id LIMIT ?
"""  # noqa: S608 - made of constants
_RETURN_DEADLINE: Final = "SELECT due FROM temp.returns"
_SET_RETURN_DEADLINE: Final = "INSERT OR REPLACE INTO temp.returns VALUES (1, ?)"
_COUNT: Final = "SELECT count(*) FROM subscriptions"
_COUNT_OF: Final = """
SELECT count(*) FROM subscriptions WHERE account = (SELECT id FROM accounts WHERE name = ?)
"""
_HAS_MEMBERS: Final = "SELECT 1 FROM subscriptions WHERE queue = ? LIMIT 1"


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options that are stored together, as JSON in the column `options`."""

    deliver: Literal["0", "1"] = msgspec.field(default="1", name=DELIVER)
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.IF_NEW
    only_items: bool = False
    identifier: int = 0


_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(_Stored)


def add(
    tx: Transaction,
    account: str,
    jid: str,
    subid: str,
    *,
    node: int | None = None,
    filter: str | None = None,
    queue: int | None = None,
    options: SubscriptionOptions = DEFAULT,
) -> Subscription:
    """Add a subscription of the account named `account`, which must exist; the JID must not have a
    subscription to the same target yet."""
    values = (subid, jid, node, filter, queue, *_values(options), account)
    (id,) = tx.row(_ADD, values)
    found = get(tx, id)
    assert found is not None, "the added row exists"  # noqa: S101 - for the type checker
    _note_change(tx, found, begins=True)
    if found.filter is not None and _FILTERS in tx.cache:
        _add_to_index(tx.cache[_FILTERS], found)
    return found


def save(tx: Transaction, subscription: Subscription) -> None:
    """Store the options of a subscription, except the policy of a share, which cannot change."""
    tx.run(_SAVE, (*_values(subscription.options), subscription.id))
    index: _FilterIndex | None = tx.cache.get(_FILTERS)
    if index is not None and (old := index.subscriptions.get(subscription.id)) is not None:
        _note_change(tx, old, begins=False)
        index.put(subscription)
    _note_change(tx, subscription, begins=True)


def remove(tx: Transaction, subscription: Subscription) -> None:
    """Remove a subscription."""
    retained.end(tx, subscription.jid, subscription.id)
    tx.run(_REMOVE, (subscription.id,))
    index: _FilterIndex | None = tx.cache.get(_FILTERS)
    if index is None or subscription.filter is None:
        _note_change(tx, subscription, begins=False)
        return
    _note_change(tx, index.subscriptions.get(subscription.id, subscription), begins=False)
    if subscription.queue is None:
        index.subscriptions.pop(subscription.id, None)
        index.bundles.pop(subscription.id, None)
        index.plain.remove(subscription.filter, subscription.id)
    elif not has_members(tx, subscription.queue):
        index.shares.remove(subscription.filter, subscription.queue)


def _note_change(tx: Transaction, changed: Subscription, *, begins: bool) -> None:
    if changed.node is not None:
        recipients.forget_node(tx, changed.node)
    elif changed.queue is None and changed.filter is not None:
        change = FilterChange(changed.id, changed.filter, _bundle(changed), begins)
        recipients.note_filter_change(tx, change)


def get(tx: Transaction, id: int) -> Subscription | None:
    """Return a subscription by number."""
    return _one(tx.row(_GET, (id,)))


def find(
    tx: Transaction,
    jid: str,
    *,
    node: int | None = None,
    filter: str | None = None,
    share: str | None = None,
) -> Subscription | None:
    """Return the subscription of a JID to a node, to a filter, or to a share with its filter."""
    return _one(tx.row(_FIND, (jid, node, filter, share)))


def all_of_node(tx: Transaction, node: int) -> list[Subscription]:
    """Return the subscriptions to a node, including the members of its queue."""
    return _all(tx.rows(_ALL_OF_NODE, (node,)))


def plain_of_node(tx: Transaction, node: int) -> list[Subscription]:
    """Return the subscriptions to a node, except those of queue members and of revoked accounts."""
    return _all(tx.rows(_PLAIN_OF_NODE, (node,)))


def plain_matching(tx: Transaction, name: str) -> list[Subscription]:
    """Return the subscriptions to filters that match a node's name, in the order of creation,
    except those of members of shares and of revoked accounts."""
    index = _index(tx)
    return [index.subscriptions[id] for id in sorted(index.plain.match(name))]


def bundles_matching(tx: Transaction, name: str) -> Matching:
    """Return the subscriptions of `plain_matching`, but of each bundle only the first."""
    index = _index(tx)
    bundles = index.bundles
    last_first = sorted(index.plain.match(name), reverse=True)
    firsts = {bundles[id]: id for id in last_first if id in bundles}
    others = [id for id in last_first if id not in bundles]
    found = [index.subscriptions[id] for id in sorted((*firsts.values(), *others))]
    return Matching(found, firsts, len(last_first))


def shares_matching(tx: Transaction, name: str) -> list[int]:
    """Return the queue numbers of the shares whose filters match a node's name."""
    shares = _index(tx).shares
    return [] if shares.is_empty else sorted(shares.match(name))


def members(tx: Transaction, queue: int) -> list[Subscription]:
    """Return the members of a queue."""
    return _all(tx.rows(_MEMBERS, (queue,)))


def member_jids(tx: Transaction, queue: int) -> Iterator[str]:
    """Yield the subscribed JIDs of a queue's members; rows are read one by one, on demand."""
    for (jid,) in tx.run(_MEMBER_JIDS, (queue,)):
        yield jid


def has_members(tx: Transaction, queue: int) -> bool:
    """Return whether a queue has a member."""
    return tx.row(_HAS_MEMBERS, (queue,)) is not None


def of_account(tx: Transaction, account: str) -> list[Subscription]:
    """Return all subscriptions of an account, given by its name: of its bare and its full JIDs."""
    return _all(tx.rows(_OF_ACCOUNT, (account,)))


def bound_to_session(tx: Transaction, jid: str) -> list[Subscription]:
    """Return the subscriptions of a JID that end when its session ends: those with `presence` set,
    and memberships of queue nodes."""
    return _all(tx.rows(_BOUND_TO_SESSION, (jid,)))


def bound_without_session(tx: Transaction) -> list[Subscription]:
    """Return at most `BATCH` subscriptions that end with a session, but whose JID has none now."""
    return _all(tx.rows(_BOUND_WITHOUT_SESSION, (BATCH,)))


def return_deadline(tx: Transaction, patience: float) -> float | None:
    """Return the service second by which the sessions from before a restart must have returned.

    The first call after the restart sets it to `patience` seconds from now. After
    `clear_return_deadline`, return `None`.
    """
    row = tx.row(_RETURN_DEADLINE)
    if row is None:
        tx.run(_SET_RETURN_DEADLINE, (tx.now.service + patience,))
        return tx.now.service + patience
    return None if row[0] is None else float(row[0])


def clear_return_deadline(tx: Transaction) -> None:
    """Clear the deadline by which sessions must return after a restart of the gateway."""
    tx.run(_SET_RETURN_DEADLINE, (None,))


def count(tx: Transaction, account: str | None = None) -> int:
    """Return the number of all subscriptions, or of those of one account, given by name."""
    row = tx.row(_COUNT) if account is None else tx.row(_COUNT_OF, (account,))
    return int(row[0])


def invalidate_filters(tx: Transaction) -> None:
    """Drop the cached filters, because another process has removed accounts that subscribed."""
    tx.cache.pop(_FILTERS, None)
    recipients.forget(tx)


def _index(tx: Transaction) -> _FilterIndex:
    index: _FilterIndex | None = tx.cache.get(_FILTERS)
    if index is None:
        index = _FilterIndex(Trie(), {}, {}, Trie())
        for subscription in _all(tx.rows(_PLAIN_FILTERS)):
            _add_to_index(index, subscription)
        for queue, filter in tx.rows(_SHARES):
            index.shares.add(filter, queue)
        tx.cache[_FILTERS] = index
    return index


def _add_to_index(index: _FilterIndex, subscription: Subscription) -> None:
    filter = subscription.filter or ""
    if subscription.queue is None:
        index.plain.add(filter, subscription.id)
        index.put(subscription)
    else:
        index.shares.add(filter, subscription.queue)


def _bundle(subscription: Subscription) -> str:
    """Return `FilterChange.bundle`: the JID and the options."""
    options = subscription.options
    if options.delivery.identifier or not options.delivery.only_items:
        return ""
    return intern(f"{subscription.jid} {options}")


def _values(options: SubscriptionOptions) -> tuple[int, int | None, bool, str]:
    stored = _encode(_Stored("1" if options.deliver else "0", *options.delivery)).decode()
    return options.qos, options.requests, options.presence, stored


def _all(rows: Sequence[Any]) -> list[Subscription]:
    return [_subscription(row) for row in rows]


def _one(row: Any) -> Subscription | None:
    return None if row is None else _subscription(row)


def _subscription(row: Any) -> Subscription:
    *fields, qos, requests, presence, stored, policy_name = row
    (deliver, delivery), policy = _decode(stored), policy_name and QueuePolicy(policy_name)
    options = _options(deliver, qos, bool(presence), requests, policy, delivery)
    return Subscription._make((*fields, options))


@lru_cache(maxsize=64)
def _options(
    deliver: bool,
    qos: int,
    presence: bool,
    requests: int | None,
    policy: QueuePolicy | None,
    delivery: DeliveryOptions,
) -> SubscriptionOptions:
    """Return the options, usually the same object for the same options: this spares comparisons."""
    return SubscriptionOptions(deliver, qos, presence, requests, policy, delivery)


@lru_cache(maxsize=16)
def _decode(text: str) -> tuple[bool, DeliveryOptions]:
    found = _decoder.decode(text)
    deliver, *delivery = msgspec.structs.astuple(found)
    options = DeliveryOptions(*delivery)
    return deliver == "1", DEFAULT_DELIVERY if options == DEFAULT_DELIVERY else options
