"""The members of queues that are there, and how much each has: found by one look at an index.

A temporary table, so it ends with the process as sessions do, and is filled as they come: a row for
each session that a member may be served by. Whether the session takes something just now, which
changes by its presence and its connection, is looked up when members are chosen.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.database import Transaction
from edge.features.queues.rules.assignment import Member

REQUESTS: Final = 10
"""How many items a member of a share takes at a time, if it has not said."""


class There(NamedTuple):
    """A member, and the session by which it is there."""

    member: Member
    generation: int


_ENTER: Final = f"""
INSERT INTO temp.queue_members (
    subscription, generation, queue, full, bare, needs, plain, locks, capacity, in_flight, mine,
    bytes, free, turn
) SELECT s.id, t.generation, s.queue, t.full, s.jid = t.bare, q.share IS NOT NULL AND s.qos > 0,
    a.downgrade, q.share IS NULL OR s.qos > 0, coalesce(s.requests, {REQUESTS}), 0, 0, 0, 1, 0
FROM main.subscriptions AS s JOIN main.queues AS q ON q.id = s.queue
    JOIN main.accounts AS a ON a.id = s.account
    JOIN temp.sessions AS t ON t.full = s.jid OR t.bare = s.jid
"""  # noqa: S608 - of constants
_UPDATE: Final = """
ON CONFLICT DO UPDATE SET needs = excluded.needs, plain = excluded.plain, locks = excluded.locks,
    capacity = excluded.capacity
RETURNING subscription
"""
_JOIN: Final = f"{_ENTER} WHERE s.id = ? {_UPDATE}"
_COME: Final = f"{_ENTER} WHERE t.generation = ? AND s.jid IN (?, ?) {_UPDATE}"
_HELD: Final = """
SELECT i.holder, i.bytes FROM main.queue_items AS i JOIN main.subscriptions AS s
    ON s.id = i.subscription
WHERE s.id = ?1 AND i.state = 'locked'
    AND i.holder >= (SELECT jid FROM main.subscriptions WHERE id = ?1)
    AND i.holder < (SELECT jid FROM main.subscriptions WHERE id = ?1) || '0'
"""
_COUNTED: Final = """
UPDATE temp.queue_members
SET in_flight = ?, bytes = ?, free = ? < capacity AND ? < ?, stalled = 0 WHERE subscription = ?
"""
_MINE: Final = "UPDATE temp.queue_members SET mine = ? WHERE subscription = ? AND full = ?"
_COUNTED_NONE: Final = """
UPDATE temp.queue_members
SET in_flight = 0, bytes = 0, mine = 0, free = capacity > 0, stalled = 0
WHERE subscription = ? AND locks = 1
"""
_RATE: Final = """
UPDATE temp.queue_members SET free = in_flight < capacity AND bytes < ?, stalled = 0
WHERE subscription = ?
"""
_GAVE: Final = """
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
_TOOK: Final = """
UPDATE temp.queue_members
SET in_flight = max(0, in_flight - 1), bytes = max(0, bytes - ?1),
    mine = max(0, mine - (full = ?2)),
    free = in_flight - 1 < capacity AND bytes - ?1 < ?3, stalled = 0
WHERE subscription = ?4
"""
_STALL: Final = "UPDATE temp.queue_members SET free = 0, stalled = 1 WHERE subscription = ?"
_STALLED: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE stalled = 1"
_THERE: Final = """
SELECT m.subscription, m.full, iif(m.free, m.capacity, m.in_flight), m.in_flight, m.turn,
    m.generation
FROM temp.queue_members AS m CROSS JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.queue = ? AND s.detached = 0
    AND (m.bare = 0 OR (s.available = 1 AND s.priority >= 0))
    AND (m.needs = 0 OR s.qos <> '' OR (m.plain = 1 AND s.qos = ''))
"""
_FREE: Final = f"{_THERE} AND m.free = 1 ORDER BY m.in_flight, m.mine, m.turn LIMIT ?"
_LEAVE: Final = "DELETE FROM temp.queue_members WHERE subscription = ?"
_GO: Final = "DELETE FROM temp.queue_members WHERE generation = ?"
_GO_ALL: Final = "DELETE FROM temp.queue_members"
_OF_JID: Final = "SELECT generation FROM temp.sessions WHERE full = ?1 OR bare = ?1"
_QUEUES: Final = "SELECT DISTINCT queue FROM temp.queue_members WHERE generation = ?"
_WAITED_FOR: Final = """
SELECT id FROM main.queues AS q
WHERE EXISTS (SELECT 1 FROM main.queue_items AS i WHERE i.queue = q.id AND i.state = 'ready')
    AND EXISTS (
        SELECT 1 FROM temp.queue_members AS m INDEXED BY queue_members_free
        WHERE m.queue = q.id AND m.free = 1
    )
"""
_COUNTED_PLAIN: Final = """
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
_SENT_PLAINLY: Final = """
SELECT subscription FROM temp.queue_members WHERE generation = ? AND locks = 0
"""
_GONE: Final = """
DELETE FROM temp.queue_members WHERE NOT EXISTS (
    SELECT 1 FROM main.subscriptions AS s WHERE s.id = subscription
)
"""
_LOCKING: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE locks = 1"
_OF_QUEUE: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE queue = ?"


def join(tx: Transaction, subscription: int, room: int) -> None:
    """Note the sessions of a subscription that is new, or was changed. `room` is how many bytes a
    member may have, here and below."""
    for (found,) in set(tx.rows(_JOIN, (subscription,))):
        _recount(tx, found, room)


def come(tx: Transaction, generation: int, full: str, room: int) -> bool:
    """Note a session as one by which its account's subscriptions are there; false if it has none
    in queues."""
    bare = full.partition("/")[0]
    found = {id for (id,) in tx.rows(_COME, (generation, full, bare))}
    for subscription in found:
        _recount(tx, subscription, room)
    return bool(found)


def _recount(tx: Transaction, subscription: int, room: int) -> None:
    """Count what a member has locked; or, of a share at level 0, what is on its way to it."""
    held = tx.rows(_HELD, (subscription,))
    if not held:
        tx.run(_COUNTED_NONE, (subscription,))
        tx.run(_COUNTED_PLAIN, (subscription,))
        return
    size = sum(bytes for _holder, bytes in held)
    tx.run(_COUNTED, (len(held), size, len(held), size, room, subscription))
    holders = [holder for holder, _bytes in held]
    for holder in set(holders):
        tx.run(_MINE, (holders.count(holder), subscription, holder))


def gave(tx: Transaction, queue: int, there: There, size: int, room: int) -> bool:
    """Count an item of `size` bytes that a member was given; false if it has no room for more."""
    values = (size, there.generation, queue, room, there.member.subscription)
    return any(free for (free,) in tx.rows(_GAVE, values))


def took(tx: Transaction, subscription: int, holder: str, size: int, room: int) -> None:
    """Count an item no more that a session of a member had."""
    tx.run(_TOOK, (size, holder, room, subscription))


def arrived(tx: Transaction, generation: int) -> None:
    """Count anew what members have not got yet of what they were sent without a lock: those that a
    session serves."""
    for (subscription,) in tx.rows(_SENT_PLAINLY, (generation,)):
        tx.run(_COUNTED_PLAIN, (subscription,))


def stall(tx: Transaction, subscription: int) -> None:
    """Give a member nothing until it is tried again: there is no room for it elsewhere."""
    tx.run(_STALL, (subscription,))


def unstall(tx: Transaction, room: int) -> None:
    """Try those again."""
    for (subscription,) in tx.rows(_STALLED):
        tx.run(_RATE, (room, subscription))


def stalled(tx: Transaction) -> bool:
    """Tell whether there are any."""
    return tx.row(f"{_STALLED} LIMIT 1") is not None


def free(tx: Transaction, queue: int, limit: int) -> list[There]:
    """Return the members of a queue that are there and have room, the next one first."""
    return [_there(row) for row in tx.rows(_FREE, (queue, limit))]


def there(tx: Transaction, queue: int) -> list[There]:
    """Return all members of a queue that are there; who has no room has no more than it takes."""
    return [_there(row) for row in tx.rows(_THERE, (queue,))]


def leave(tx: Transaction, subscription: int) -> None:
    """Forget a subscription."""
    tx.run(_LEAVE, (subscription,))


def go(tx: Transaction, generation: int) -> None:
    """Forget a session; what it was sent without a lock is nobody's any more."""
    plain = tx.rows(_SENT_PLAINLY, (generation,))
    tx.run(_GO, (generation,))
    for (subscription,) in plain:
        tx.run(_COUNTED_PLAIN, (subscription,))


def go_all(tx: Transaction, jid: str) -> None:
    """Forget the session of a full JID, or all of a bare one."""
    for (generation,) in tx.rows(_OF_JID, (jid,)):
        go(tx, generation)


def none_is_there(tx: Transaction) -> None:
    """Forget all sessions."""
    tx.run(_GO_ALL)


def queues_of(tx: Transaction, generation: int) -> list[int]:
    """Return the queues that a session may be given items of."""
    return [queue for (queue,) in tx.rows(_QUEUES, (generation,))]


def waited_for(tx: Transaction) -> list[int]:
    """Return the queues that have items that wait, and members with room."""
    return [queue for (queue,) in tx.rows(_WAITED_FOR)]


def tidy(tx: Transaction, room: int) -> None:
    """Forget subscriptions that are no more, and count anew: another process has changed what is
    locked."""
    tx.run(_GONE)
    for (subscription,) in tx.rows(_LOCKING):
        _count(tx, subscription, room)


def recount(tx: Transaction, queue: int, room: int) -> None:
    """Count anew what the members of a queue have."""
    for (subscription,) in tx.rows(_OF_QUEUE, (queue,)):
        _count(tx, subscription, room)


def _count(tx: Transaction, subscription: int, room: int) -> None:
    tx.run(_COUNTED, (0, 0, 0, 0, room, subscription))
    tx.run("UPDATE temp.queue_members SET mine = 0 WHERE subscription = ?", (subscription,))
    _recount(tx, subscription, room)


def _there(row: tuple[int, str, int, int, int, int]) -> There:
    *member, generation = row
    return There(Member._make(member), generation)
