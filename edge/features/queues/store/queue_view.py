"""Queues as an operator or a node's owner looks at them: how many of what, and who is a member.

Nothing is changed here, and nothing is asked where items move: `queues` and its kin do that.
What is read is bounded by a number; counting a queue reads an index of it. Sessions are in
temporary tables of the running gateway: who is there only that can ask.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.queues.store.queue_members import REQUESTS
from edge.features.queues.store.queues import ITEM, Item


class Overview(NamedTuple):
    """A queue, and how many of its items are in which state; `name` is that of the node, or the
    share as MQTT-234 writes it. `node` is the node's number; a share has none. `lock_timeout` is in
    seconds."""

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


class Member(NamedTuple):
    """A member of a queue: a subscription; `requests` is how many items it takes at a time, and
    `in_flight` how many it has."""

    subscription: int
    subid: str
    jid: str
    qos: int
    requests: int
    in_flight: int


class Attendance(NamedTuple):
    """A session by which a member is there, as those see it who give items out: the subscription,
    the full JID, and how many items the member has.

    `able` tells whether items at the member's level can be handed to it, `stalled` whether the
    outbox of its account had no room for one, `laden` whether what it has is too many bytes.
    """

    subscription: int
    session: str
    in_flight: int
    able: bool
    stalled: bool
    laden: bool


_COUNTED: Final = """
SELECT q.id, coalesce(n.name, '$share:' || q.share || ':' || q.filter), q.node, q.policy,
    q.favourite, q.lock_timeout, q.max_deliveries, q.items, q.bytes,
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'ready'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'locked'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'delayed'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'),
    (SELECT count(*) FROM subscriptions AS s WHERE s.queue = q.id)
FROM queues AS q LEFT JOIN nodes AS n ON n.id = q.node
"""
_PAGE: Final = f"{_COUNTED} WHERE q.id > ? ORDER BY q.id LIMIT ?"
_OF_NODE: Final = f"{_COUNTED} WHERE n.name = ?"
_OF_SHARE: Final = f"{_COUNTED} WHERE q.share = ? AND q.filter = ?"
_NAMED: Final = f"{ITEM} WHERE queue = ? AND item = ? ORDER BY id LIMIT ?"
_IN_STATE: Final = f"{ITEM} WHERE queue = ? AND state = ? ORDER BY priority DESC, id LIMIT ?"
_BEFORE: Final = """
SELECT (SELECT count(*) FROM queue_items WHERE queue = ?1 AND state = 'ready' AND priority > ?2)
    + (SELECT count(*) FROM queue_items
        WHERE queue = ?1 AND state = 'ready' AND priority = ?2 AND id < ?3)
"""
_MEMBERS: Final = """
SELECT id, subid, jid, qos, coalesce(requests, ?) FROM subscriptions
WHERE queue = ? ORDER BY id LIMIT ?
"""
_IN_FLIGHT: Final = """
SELECT subscription, count(*) FROM queue_items
WHERE queue = ? AND state = 'locked' AND subscription IS NOT NULL GROUP BY subscription
"""
_ATTENDING: Final = """
SELECT m.subscription, m.full, m.in_flight,
    m.needs = 0 OR coalesce(s.qos, '') <> '' OR (m.plain = 1 AND s.qos = ''),
    m.stalled, m.free = 0 AND m.stalled = 0 AND m.in_flight < m.capacity
FROM temp.queue_members AS m JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ? AND s.detached = 0 AND (m.bare = 0 OR (s.available = 1 AND s.priority >= 0))
ORDER BY m.subscription, m.full LIMIT ?
"""


def page(tx: Transaction, after: int, count: int) -> list[Overview]:
    """Return queues with numbers above `after`, in order: `count` at most."""
    return [Overview._make(row) for row in tx.rows(_PAGE, (after, count))]


def of_node(tx: Transaction, name: str) -> Overview | None:
    """Return the queue of a node, if there is such a node and it is a queue."""
    return _overview(tx.row(_OF_NODE, (name,)))


def of_share(tx: Transaction, name: str, filter: str) -> Overview | None:
    """Return the queue of a share, if there is one."""
    return _overview(tx.row(_OF_SHARE, (name, filter)))


def named(tx: Transaction, queue: int, item: str, most: int) -> list[Item]:
    """Return the items of an ItemID: a share may have one of each node that it hears of."""
    return [Item._make(row) for row in tx.rows(_NAMED, (queue, item, most))]


def in_state(tx: Transaction, queue: int, state: str, most: int) -> list[Item]:
    """Return the first items of a queue that are ready, delayed, locked or dead, in line."""
    return [Item._make(row) for row in tx.rows(_IN_STATE, (queue, state, most))]


def before(tx: Transaction, item: Item) -> int:
    """Return how many go before an item in line."""
    return int(tx.row(_BEFORE, (item.queue, item.priority, item.row))[0])


def members(tx: Transaction, queue: int, most: int) -> list[Member]:
    """Return the members of a queue, the oldest first: `most` at most."""
    in_flight = dict(tx.rows(_IN_FLIGHT, (queue,)))
    rows = tx.rows(_MEMBERS, (REQUESTS, queue, most))
    return [Member._make((*row, in_flight.get(row[0], 0))) for row in rows]


def attending(tx: Transaction, queue: int, most: int) -> list[Attendance]:
    """Return the sessions by which members are there: the running gateway alone can ask."""
    rows = tx.rows(_ATTENDING, (queue, most))
    return [Attendance(*row[:3], *map(bool, row[3:])) for row in rows]


def _overview(row: Any) -> Overview | None:
    return None if row is None else Overview._make(row)
