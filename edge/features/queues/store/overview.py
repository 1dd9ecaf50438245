"""Queues as seen by an operator or a node's owner: counts, items and members.

All functions only read. The items of a queue are counted in an index, not in their rows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from edge.engine.store.database import Transaction
from edge.features.queues.store import queue_members
from edge.features.queues.store.queue_items import ITEM, QueuedItem
from edge.features.queues.store.queue_members import REQUESTS


class Overview(NamedTuple):
    """Queue with the number of its items in each state.

    `name` is the name of the node, or the shared subscription as `$share:NAME:FILTER`. The other
    fields before the counts are those of `Queue`.
    """

    id: int
    name: str
    node: int | None
    policy: str
    favourite: int | None
    lock_timeout: float
    max_deliveries: int
    items: int
    bytes: int
    ready: int
    locked: int
    delayed: int
    dead: int
    members: int


class Subscriber(NamedTuple):
    """Subscription to a queue; it accepts `requests` items at a time and has `in_flight` now."""

    subscription: int
    subid: str
    jid: str
    qos: int
    requests: int
    in_flight: int


class Attendance(NamedTuple):
    """Connected session of a member, as known in the running gateway.

    Attributes:
        session: the session's full JID.
        in_flight: the number of items that the member has, including those being sent to it.
        accepts_qos: whether the session accepts messages at the QoS of the subscription.
        outbox_full: whether the outbox of the account had no room for an item.
        too_many_bytes: whether the member's items have reached its limit of bytes.
    """

    subscription: int
    session: str
    in_flight: int
    accepts_qos: bool
    outbox_full: bool
    too_many_bytes: bool


_OVERVIEW: Final = """
SELECT q.id, coalesce(n.name, '$share:' || q.share || ':' || q.filter), q.node, q.policy,
    q.favourite, q.lock_timeout, q.max_deliveries, q.items, q.bytes,
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'ready'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'locked'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'delayed'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'),
    (SELECT count(*) FROM subscriptions AS s WHERE s.queue = q.id)
FROM queues AS q LEFT JOIN nodes AS n ON n.id = q.node
"""
_PAGE: Final = f"{_OVERVIEW} WHERE q.id > ? ORDER BY q.id LIMIT ?"
_NUMBERED: Final = f"{_OVERVIEW} WHERE q.id = ?"
_OF_NODE: Final = f"{_OVERVIEW} WHERE n.name = ?"
_OF_SHARE: Final = f"{_OVERVIEW} WHERE q.share = ? AND q.filter = ?"
_ITEMS_NAMED: Final = f"{ITEM} WHERE queue = ? AND item = ? ORDER BY id LIMIT ?"
_ITEMS_IN_STATE: Final = f"""{ITEM}
WHERE queue = ? AND state = ? ORDER BY priority DESC, id LIMIT ?
"""
_BEFORE: Final = """
SELECT (SELECT count(*) FROM queue_items WHERE queue = ?1 AND state = 'ready' AND priority > ?2)
    + (SELECT count(*) FROM queue_items
        WHERE queue = ?1 AND state = 'ready' AND priority = ?2 AND id < ?3)
"""
_SUBSCRIBERS: Final = """
SELECT id, subid, jid, qos, coalesce(requests, ?) FROM subscriptions
WHERE queue = ? ORDER BY id LIMIT ?
"""
_IN_FLIGHT: Final = """
SELECT subscription, count(*) FROM queue_items
WHERE queue = ? AND state = 'locked' AND subscription IS NOT NULL GROUP BY subscription
"""
_ATTENDANCE: Final = """
SELECT m.subscription, m.full, m.in_flight,
    m.needs = 0 OR coalesce(s.qos, '') <> '' OR (m.plain = 1 AND s.qos = ''),
    m.stalled, m.free = 0 AND m.stalled = 0 AND m.in_flight < m.capacity
FROM temp.queue_members AS m JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ? AND s.detached = 0 AND (m.bare = 0 OR s.accepts)
ORDER BY m.subscription, m.full LIMIT ?
"""


def page(tx: Transaction, after: int, limit: int) -> list[Overview]:
    """Return up to `limit` queues with numbers above `after`, in order."""
    return [Overview._make(row) for row in tx.rows(_PAGE, (after, limit))]


def numbered(tx: Transaction, number: int) -> Overview | None:
    """Return the queue with this number; `None` if it does not exist."""
    return _overview(tx.row(_NUMBERED, (number,)))


def of_node(tx: Transaction, name: str) -> Overview | None:
    """Return the queue of a node; `None` if the node does not exist or is no queue node."""
    return _overview(tx.row(_OF_NODE, (name,)))


def of_share(tx: Transaction, name: str, filter: str) -> Overview | None:
    """Return the queue of a shared subscription; `None` if it does not exist."""
    return _overview(tx.row(_OF_SHARE, (name, filter)))


def items_named(tx: Transaction, queue: int, item: str, limit: int) -> list[QueuedItem]:
    """Return up to `limit` items of a queue with the ItemID `item`; a shared subscription can have
    one from each node."""
    return [QueuedItem._make(row) for row in tx.rows(_ITEMS_NAMED, (queue, item, limit))]


def items_in_state(tx: Transaction, queue: int, state: str, limit: int) -> list[QueuedItem]:
    """Return the first `limit` items of a queue in a state, in order of delivery."""
    return [QueuedItem._make(row) for row in tx.rows(_ITEMS_IN_STATE, (queue, state, limit))]


def count_before(tx: Transaction, item: QueuedItem) -> int:
    """Return the number of ready items of the queue that are delivered before an item."""
    return int(tx.row(_BEFORE, (item.queue, item.priority, item.row))[0])


def subscribers(tx: Transaction, queue: int, limit: int) -> list[Subscriber]:
    """Return up to `limit` subscriptions to a queue, the oldest first."""
    in_flight = dict(tx.rows(_IN_FLIGHT, (queue,)))
    rows = tx.rows(_SUBSCRIBERS, (REQUESTS, queue, limit))
    return [Subscriber._make((*row, in_flight.get(row[0], 0))) for row in rows]


def attendance(tx: Transaction, queue: int, limit: int) -> list[Attendance]:
    """Return the connected sessions of a queue's members; only the running gateway knows them."""
    queue_members.write(tx)
    rows = tx.rows(_ATTENDANCE, (queue, limit))
    return [Attendance(*row[:3], *map(bool, row[3:])) for row in rows]


def _overview(row: Any) -> Overview | None:
    return None if row is None else Overview._make(row)
