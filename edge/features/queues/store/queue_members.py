"""The connected members of queues and how many items each has, in a temporary table.

There is a row for each session through which a subscription can be served. It is filled as sessions
begin, and ends with the process as they do. Whether a session accepts items at the moment, which
depends on its presence and its connection, is looked up when members are chosen. A parameter
`max_bytes` is how many bytes of items a member may have.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.queues.rules.assignment import Member

REQUESTS: Final = 10
"""Items that a member accepts at a time if its subscription names no number."""


class ConnectedMember(NamedTuple):
    """A member of a queue and the generation of the session through which it is connected."""

    member: Member
    generation: int


_INSERT: Final = f"""
INSERT INTO temp.queue_members (
    subscription, generation, queue, full, bare, needs, plain, locks, capacity, in_flight, mine,
    bytes, free, turn
) SELECT s.id, t.generation, s.queue, t.full, s.jid = t.bare, q.share IS NOT NULL AND s.qos > 0,
    a.downgrade, q.share IS NULL OR s.qos > 0, coalesce(s.requests, {REQUESTS}), 0, 0, 0, 1, 0
FROM main.subscriptions AS s JOIN main.queues AS q ON q.id = s.queue
    JOIN main.accounts AS a ON a.id = s.account
    JOIN temp.sessions AS t ON t.full = s.jid OR t.bare = s.jid
"""  # noqa: S608 - of constants
_ON_CONFLICT: Final = """
ON CONFLICT DO UPDATE SET needs = excluded.needs, plain = excluded.plain, locks = excluded.locks,
    capacity = excluded.capacity
RETURNING subscription
"""
_ADD_SUBSCRIPTION: Final = f"{_INSERT} WHERE s.id = ? {_ON_CONFLICT}"
_ADD_SESSION: Final = f"{_INSERT} WHERE t.generation = ? AND s.jid IN (?, ?) {_ON_CONFLICT}"
_LOCKED: Final = """
SELECT i.holder, i.bytes FROM main.queue_items AS i JOIN main.subscriptions AS s
    ON s.id = i.subscription
WHERE s.id = ?1 AND i.state = 'locked'
    AND i.holder >= (SELECT jid FROM main.subscriptions WHERE id = ?1)
    AND i.holder < (SELECT jid FROM main.subscriptions WHERE id = ?1) || '0'
"""
_SET_COUNT: Final = """
UPDATE temp.queue_members
SET in_flight = ?, bytes = ?, free = ? < capacity AND ? < ?, stalled = 0 WHERE subscription = ?
"""
_SET_SESSION_COUNT: Final = (
    "UPDATE temp.queue_members SET mine = ? WHERE subscription = ? AND full = ?"
)
_CLEAR_SESSION_COUNTS: Final = "UPDATE temp.queue_members SET mine = 0 WHERE subscription = ?"
_CLEAR_COUNT: Final = """
UPDATE temp.queue_members
SET in_flight = 0, bytes = 0, mine = 0, free = capacity > 0, stalled = 0
WHERE subscription = ? AND locks = 1
"""
_CLEAR_STALL: Final = """
UPDATE temp.queue_members SET free = in_flight < capacity AND bytes < ?, stalled = 0
WHERE subscription = ?
"""
_COUNT_ASSIGNMENT: Final = """
UPDATE temp.queue_members
SET in_flight = in_flight + 1, bytes = bytes + ?1, mine = mine + (generation = ?2),
    turn = iif(
        generation = ?2,
        (SELECT max(turn) + 1 FROM temp.queue_members WHERE queue = ?3),
        turn
    ),
    free = in_flight + 1 < capacity AND bytes + ?1 < ?4
WHERE subscription = ?5 RETURNING free
"""
_COUNT_REMOVAL: Final = """
UPDATE temp.queue_members
SET in_flight = max(0, in_flight - 1), bytes = max(0, bytes - ?1),
    mine = max(0, mine - (full = ?2)),
    free = in_flight - 1 < capacity AND bytes - ?1 < ?3, stalled = 0
WHERE subscription = ?4
"""
_SET_STALLED: Final = "UPDATE temp.queue_members SET free = 0, stalled = 1 WHERE subscription = ?"
_STALLED: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE stalled = 1"
_CONNECTED: Final = """
SELECT m.subscription, m.full, iif(m.free, m.capacity, m.in_flight), m.in_flight, m.turn,
    m.generation
FROM temp.queue_members AS m CROSS JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ? AND s.detached = 0
    AND (m.bare = 0 OR (s.available = 1 AND s.priority >= 0))
    AND (m.needs = 0 OR s.qos <> '' OR (m.plain = 1 AND s.qos = ''))
"""
_WITH_ROOM: Final = f"{_CONNECTED} AND m.free = 1 ORDER BY m.in_flight, m.mine, m.turn LIMIT ?"
_REMOVE_SUBSCRIPTION: Final = "DELETE FROM temp.queue_members WHERE subscription = ?"
_REMOVE_SESSION: Final = "DELETE FROM temp.queue_members WHERE generation = ?"
_REMOVE_ALL: Final = "DELETE FROM temp.queue_members"
_SESSIONS_OF_JID: Final = "SELECT generation FROM temp.sessions WHERE full = ?1 OR bare = ?1"
_QUEUES_OF_SESSION: Final = "SELECT DISTINCT queue FROM temp.queue_members WHERE generation = ?"
_DISPATCHABLE: Final = """
SELECT id FROM main.queues AS q
WHERE EXISTS (SELECT 1 FROM main.queue_items AS i WHERE i.queue = q.id AND i.state = 'ready')
    AND EXISTS (
        SELECT 1 FROM temp.queue_members AS m INDEXED BY queue_members_free
        WHERE m.queue = q.id AND m.free = 1
    )
"""
_COUNT_SENT: Final = """
UPDATE temp.queue_members AS m
SET in_flight = n.sent, free = n.sent < capacity, bytes = 0, mine = (
    SELECT count(*) FROM temp.under_way AS u WHERE u.generation = m.generation AND kind = 'share'
) FROM (
    SELECT count(*) AS sent FROM temp.queue_members AS o CROSS JOIN temp.under_way AS u
        ON u.generation = o.generation
    WHERE o.subscription = ?1 AND u.kind = 'share'
) AS n
WHERE m.subscription = ?1 AND m.locks = 0
"""
_AT_QOS_0: Final = "SELECT subscription FROM temp.queue_members WHERE generation = ? AND locks = 0"
_REMOVE_ENDED: Final = """
DELETE FROM temp.queue_members WHERE NOT EXISTS (
    SELECT 1 FROM main.subscriptions AS s WHERE s.id = subscription
)
"""
_LOCKING: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE locks = 1"
_OF_QUEUE: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE queue = ?"
_QOS_UNKNOWN: Final = """
SELECT DISTINCT s.full
FROM (SELECT 1 FROM main.queue_items WHERE queue = ?1 AND state = 'ready' LIMIT 1)
    CROSS JOIN temp.queue_members AS m
    CROSS JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ?1 AND m.needs = 1 AND s.qos IS NULL AND s.detached = 0
    AND (m.bare = 0 OR (s.available = 1 AND s.priority >= 0))
"""


def add_subscription(tx: Transaction, subscription: int, max_bytes: int) -> None:
    """Add or update a new or changed subscription with all its sessions."""
    for (found,) in set(tx.rows(_ADD_SUBSCRIPTION, (subscription,))):
        _count(tx, found, max_bytes)


def add_session(tx: Transaction, generation: int, full: str, max_bytes: int) -> bool:
    """Add or update a session with all subscriptions to queues that it serves; return whether it
    serves any."""
    bare = full.partition("/")[0]
    found = {id for (id,) in tx.rows(_ADD_SESSION, (generation, full, bare))}
    for subscription in found:
        _count(tx, subscription, max_bytes)
    return bool(found)


def _count(tx: Transaction, subscription: int, max_bytes: int) -> None:
    """Count the items that a member has locked or, at QoS 0, those that are being sent to it."""
    locked = tx.rows(_LOCKED, (subscription,))
    if not locked:
        tx.run(_CLEAR_COUNT, (subscription,))
        tx.run(_COUNT_SENT, (subscription,))
        return
    size = sum(bytes for _holder, bytes in locked)
    tx.run(_SET_COUNT, (len(locked), size, len(locked), size, max_bytes, subscription))
    holders = [holder for holder, _bytes in locked]
    for holder in set(holders):
        tx.run(_SET_SESSION_COUNT, (holders.count(holder), subscription, holder))


def count_assignment(
    tx: Transaction, queue: int, to: ConnectedMember, size: int, max_bytes: int
) -> bool:
    """Count an item of `size` bytes that was assigned to a member; return whether it has room for
    more."""
    values = (size, to.generation, queue, max_bytes, to.member.subscription)
    return any(free for (free,) in tx.rows(_COUNT_ASSIGNMENT, values))


def count_removal(
    tx: Transaction, subscription: int, holder: str, size: int, max_bytes: int
) -> None:
    """Count that a session of a member no longer has an item of `size` bytes."""
    tx.run(_COUNT_REMOVAL, (size, holder, max_bytes, subscription))


def count_sent(tx: Transaction, generation: int) -> None:
    """Recount the items at QoS 0 that are being sent to the members that a session serves."""
    for (subscription,) in tx.rows(_AT_QOS_0, (generation,)):
        tx.run(_COUNT_SENT, (subscription,))


def set_stalled(tx: Transaction, subscription: int) -> None:
    """Assign nothing to a member until `clear_stalls`, because its outbox is full."""
    tx.run(_SET_STALLED, (subscription,))


def clear_stalls(tx: Transaction, max_bytes: int) -> None:
    """Allow stalled members to get items again."""
    for (subscription,) in tx.rows(_STALLED):
        tx.run(_CLEAR_STALL, (max_bytes, subscription))


def has_stalled(tx: Transaction) -> bool:
    """Return whether there are stalled members."""
    return tx.row(f"{_STALLED} LIMIT 1") is not None


def with_room(tx: Transaction, queue: int, limit: int) -> list[ConnectedMember]:
    """Return connected members of a queue that have room, the least loaded first."""
    return [_connected(row) for row in tx.rows(_WITH_ROOM, (queue, limit))]


def connected(tx: Transaction, queue: int) -> list[ConnectedMember]:
    """Return all connected members of a queue; one without room has its items as capacity."""
    return [_connected(row) for row in tx.rows(_CONNECTED, (queue,))]


def remove_subscription(tx: Transaction, subscription: int) -> None:
    """Remove a subscription with all its sessions."""
    tx.run(_REMOVE_SUBSCRIPTION, (subscription,))


def remove_session(tx: Transaction, generation: int) -> None:
    """Remove a session; items that were being sent to it at QoS 0 no longer count."""
    at_qos_0 = tx.rows(_AT_QOS_0, (generation,))
    tx.run(_REMOVE_SESSION, (generation,))
    for (subscription,) in at_qos_0:
        tx.run(_COUNT_SENT, (subscription,))


def remove_sessions_of(tx: Transaction, jid: str) -> None:
    """Remove the session of a full JID, or all sessions of a bare JID."""
    for (generation,) in tx.rows(_SESSIONS_OF_JID, (jid,)):
        remove_session(tx, generation)


def remove_all(tx: Transaction) -> None:
    """Remove all members."""
    tx.run(_REMOVE_ALL)


def queues_of(tx: Transaction, generation: int) -> list[int]:
    """Return the queues whose items a session may get."""
    return [queue for (queue,) in tx.rows(_QUEUES_OF_SESSION, (generation,))]


def dispatchable(tx: Transaction) -> list[int]:
    """Return the queues that have ready items and members with room."""
    return [queue for (queue,) in tx.rows(_DISPATCHABLE)]


def with_unknown_qos(tx: Transaction, queue: int) -> list[str]:
    """Return the full JIDs of members' sessions that have to accept QoS and whose capabilities are
    unknown; none if no item is ready."""
    return [full for (full,) in tx.rows(_QOS_UNKNOWN, (queue,))]


def recount_locking(tx: Transaction, max_bytes: int) -> None:
    """Remove ended subscriptions and recount locked items, after another process changed them."""
    tx.run(_REMOVE_ENDED)
    for (subscription,) in tx.rows(_LOCKING):
        _recount(tx, subscription, max_bytes)


def recount_queue(tx: Transaction, queue: int, max_bytes: int) -> None:
    """Recount the items of all members of a queue."""
    for (subscription,) in tx.rows(_OF_QUEUE, (queue,)):
        _recount(tx, subscription, max_bytes)


def _recount(tx: Transaction, subscription: int, max_bytes: int) -> None:
    tx.run(_SET_COUNT, (0, 0, 0, 0, max_bytes, subscription))
    tx.run(_CLEAR_SESSION_COUNTS, (subscription,))
    _count(tx, subscription, max_bytes)


def _connected(row: tuple[int, str, int, int, int, int]) -> ConnectedMember:
    *member, generation = row
    return ConnectedMember(Member._make(member), generation)
