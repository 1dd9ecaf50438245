"""The connected members of queues and their numbers of items, in a temporary table.

The table has a row for each pair of a subscription to a queue and a session of its JID. Like the
sessions, it is lost when the process ends. Whether a session can get items depends on what it
accepts and on its connection, and is checked when members are chosen. Several functions have a
parameter `max_bytes`: a member whose items have this many bytes gets no more items.

Members of queues in use are cached in memory (`Transaction.cache`). Items are counted in the cache;
the counts are written to the rows at the end of the transaction, or before another function of this
module uses the rows (`write`). All other changes are made in the rows, which are then read again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.queues.rules.assignment import Member
from edge.features.queues.store.queues import CACHED_QUEUES

REQUESTS: Final = 10
"""Number of items that a member accepts at a time if its subscription does not set a number."""


class ConnectedMember(NamedTuple):
    """Member of a queue, and the generation (number) of its connected session."""

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
_ADD_SUBSCRIPTION: Final = f"{_INSERT} WHERE t.gets_items AND s.id = ? {_ON_CONFLICT}"
_ADD_SESSION: Final = (
    f"{_INSERT} WHERE t.gets_items AND t.generation = ? AND s.jid IN (?, ?) {_ON_CONFLICT}"
)
_COUNT_LOCKED: Final = """
UPDATE temp.queue_members AS m
SET in_flight = n.items, bytes = n.bytes, free = n.items < capacity AND n.bytes < ?2, stalled = 0,
    mine = (
        SELECT count(*) FROM main.queue_items AS i
        WHERE i.subscription = ?1 AND i.state = 'locked' AND i.holder = m.full
    )
FROM (
    SELECT count(*) AS items, coalesce(sum(i.bytes), 0) AS bytes FROM main.queue_items AS i
    WHERE i.subscription = ?1 AND i.state = 'locked'
        AND i.holder >= (SELECT jid FROM main.subscriptions WHERE id = ?1)
        AND i.holder < (SELECT jid FROM main.subscriptions WHERE id = ?1) || '0'
) AS n
WHERE m.subscription = ?1 RETURNING in_flight
"""
_CLEAR_STALL: Final = """
UPDATE temp.queue_members SET free = in_flight < capacity AND bytes < ?, stalled = 0
WHERE subscription = ?
"""
_MEMBERS: Final = """
SELECT queue, subscription, generation, full, bare, needs, plain, capacity, in_flight, mine, bytes,
    free, stalled, turn
FROM temp.queue_members"""
_LOAD: Final = f"{_MEMBERS} WHERE queue = ?"
_LOAD_SUBSCRIPTION: Final = f"{_MEMBERS} WHERE subscription = ?"
_SAVE: Final = """
UPDATE temp.queue_members SET in_flight = ?, mine = ?, bytes = ?, free = ?, stalled = ?, turn = ?
WHERE subscription = ? AND generation = ?
"""
_SET_STALLED: Final = "UPDATE temp.queue_members SET free = 0, stalled = 1 WHERE subscription = ?"
_STALLED: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE stalled = 1"
_REMOVE_SUBSCRIPTION: Final = "DELETE FROM temp.queue_members WHERE subscription = ?"
_REMOVE_SESSION: Final = (
    "DELETE FROM temp.queue_members WHERE generation = ? RETURNING subscription"
)
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
    SELECT count(*) FROM temp.in_flight AS u WHERE u.generation = m.generation AND kind = 'share'
) FROM (
    SELECT count(*) AS sent FROM temp.queue_members AS o CROSS JOIN temp.in_flight AS u
        ON u.generation = o.generation
    WHERE o.subscription = ?1 AND u.kind = 'share'
) AS n
WHERE m.subscription = ?1 AND m.locks = 0
"""
_OF_SESSION: Final = "SELECT subscription FROM temp.queue_members WHERE generation = ?"
_REMOVE_ENDED: Final = """
DELETE FROM temp.queue_members WHERE NOT EXISTS (
    SELECT 1 FROM main.subscriptions AS s WHERE s.id = subscription
)
"""
_LOCKING: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE locks = 1"
_OF_QUEUE: Final = "SELECT DISTINCT subscription FROM temp.queue_members WHERE queue = ?"
_QOS_UNKNOWN: Final = """
SELECT DISTINCT s.full
FROM temp.queue_members AS m CROSS JOIN temp.sessions AS s ON s.generation = m.generation
WHERE m.needs = 1 AND s.qos IS NULL AND s.detached = 0
    AND (m.bare = 0 OR s.accepts)
"""
_QOS_UNKNOWN_OF_SUBSCRIPTION: Final = f"{_QOS_UNKNOWN} AND m.subscription = ?"
_QOS_UNKNOWN_OF_SESSION: Final = f"{_QOS_UNKNOWN} AND m.generation = ?"
_QOS_UNKNOWN_OF_FULL_JIDS: Final = f"{_QOS_UNKNOWN} AND m.bare = 0"


_IMAGE: Final = "queue members"


@dataclass(slots=True, eq=False)
class _Member:
    """Row of a member's session; the columns from `in_flight` on are its counts, which change.

    `bare` is whether the bare JID is subscribed, `needs` whether the items require a session with
    support of QoS, and `plain` whether the account permits plain messages to sessions without it.
    `in_flight` and `bytes` count the items of all sessions of the member, `mine` those of this one.
    `free` is whether the member has room, `stalled` whether it gets nothing (`set_stalled`).
    """

    subscription: int
    generation: int
    full: str
    bare: int
    needs: int
    plain: int
    capacity: int
    in_flight: int
    mine: int
    bytes: int
    free: int
    stalled: int
    turn: int

    @property
    def counts(self) -> _Counts:
        """The values of the columns that change, from `in_flight` to `turn`."""
        return self.in_flight, self.mine, self.bytes, self.free, self.stalled, self.turn

    @counts.setter
    def counts(self, counts: _Counts) -> None:
        self.in_flight, self.mine, self.bytes, self.free, self.stalled, self.turn = counts

    @property
    def load(self) -> _Load:
        """Sort key: the member with the lowest key gets the next item."""
        return self.in_flight, self.mine, self.turn, self.subscription, self.generation

    def accepts(self, tx: Transaction) -> bool:
        """Return whether the session is connected, available and able to get items now."""
        session = sessions.find(tx, self.full)
        if session is None or session.generation != self.generation or session.detached:
            return False
        if self.bare and not session.accepts:
            return False
        if not self.needs or session.qos:
            return True
        return session.qos == "" and bool(self.plain)

    def connected(self) -> ConnectedMember:
        """Return the member for `assign`. If it has no room, its `capacity` equals `in_flight`."""
        capacity = self.capacity if self.free else self.in_flight
        member = Member(self.subscription, self.full, capacity, self.in_flight, self.turn)
        return ConnectedMember(member, self.generation)


_Counts: TypeAlias = tuple[int, int, int, int, int, int]
_Load: TypeAlias = tuple[int, int, int, int, int]


class _Queue:
    """The members of one queue, by subscription and generation.

    Attributes:
        free: the sorted keys (`_Member.load`) of the members that have room.
        turn: the sequence number of the last assignment.
    """

    __slots__ = ("free", "members", "subscriptions", "turn")

    def __init__(self, members: list[_Member]) -> None:
        self.members: dict[tuple[int, int], _Member] = {}
        self.subscriptions: dict[int, list[_Member]] = {}
        self.free: list[_Load] = []
        self.turn = 0
        for one in members:
            self.add(one)

    def add(self, member: _Member) -> None:
        """Add a session of a member."""
        self.members[member.subscription, member.generation] = member
        self.subscriptions.setdefault(member.subscription, []).append(member)
        if member.free:
            insort(self.free, member.load)
        self.turn = max(self.turn, member.turn)

    def remove(self, subscription: int) -> None:
        """Remove all sessions of a member, if the queue has this member."""
        for member in self.subscriptions.pop(subscription, ()):
            del self.members[subscription, member.generation]
            if member.free:
                del self.free[bisect_left(self.free, member.load)]

    def change(self, member: _Member, counts: _Counts) -> None:
        """Change the counts of a member."""
        if member.free:
            del self.free[bisect_left(self.free, member.load)]
        member.counts = counts
        if member.free:
            insort(self.free, member.load)


def _queue(tx: Transaction, queue: int) -> _Queue:
    image: dict[int, _Queue] = tx.cache.setdefault(_IMAGE, {})
    found = image.get(queue)
    if found is None:
        write(tx)
        rows = tx.rows(_LOAD, (queue,))
        if len(image) >= CACHED_QUEUES:
            image.clear()
        found = image[queue] = _Queue([_Member(*row) for _queue, *row in rows])
    return found


def _change(tx: Transaction, queue: _Queue, member: _Member, counts: _Counts) -> None:
    changed: dict[tuple[int, int], _Member] | None = tx.memo.get(_IMAGE)
    if changed is None:
        changed = tx.memo[_IMAGE] = {}
        tx.before_commit(write)
    changed[member.subscription, member.generation] = member
    tx.on_undo(queue.change, member, member.counts)
    queue.change(member, counts)


def write(tx: Transaction) -> None:
    """Write the changed counts from the cache to the rows."""
    changed: dict[tuple[int, int], _Member] | None = tx.memo.get(_IMAGE)
    if changed:
        tx.run_many(_SAVE, [(*member.counts, *key) for key, member in changed.items()])
        del tx.memo[_IMAGE]


def _drop(tx: Transaction) -> None:
    tx.cache.pop(_IMAGE, None)


def _reread(tx: Transaction, subscription: int) -> None:
    """Update the cached rows of a member after the rows in the table have changed."""
    image: dict[int, _Queue] | None = tx.cache.get(_IMAGE)
    if not image:
        return
    for queue in image.values():
        queue.remove(subscription)
    for number, *row in tx.rows(_LOAD_SUBSCRIPTION, (subscription,)):
        if number in image:
            image[number].add(_Member(*row))


def add_subscription(tx: Transaction, subscription: int, max_bytes: int) -> None:
    """Add the sessions of a subscription to the members of its queue, or update them."""
    write(tx)
    tx.rows(_ADD_SUBSCRIPTION, (subscription,))
    _count(tx, subscription, max_bytes)


def add_session(tx: Transaction, generation: int, full: str, max_bytes: int) -> bool:
    """Add a session, or update it, in all queues to which its bare or full JID is subscribed;
    return whether there are any."""
    write(tx)
    bare = full.partition("/")[0]
    found = {id for (id,) in tx.rows(_ADD_SESSION, (generation, full, bare))}
    for subscription in found:
        _count(tx, subscription, max_bytes)
    return bool(found)


def _count(tx: Transaction, subscription: int, max_bytes: int) -> None:
    """Count the items that a member has locked; at QoS 0, the items that are being sent to it."""
    counts = tx.rows(_COUNT_LOCKED, (subscription, max_bytes))
    if not any(in_flight for (in_flight,) in counts):
        tx.run(_COUNT_SENT, (subscription,))
    _reread(tx, subscription)


def count_assignment(
    tx: Transaction, queue: int, to: ConnectedMember, size: int, max_bytes: int
) -> bool:
    """Count an item of `size` bytes as assigned to a member; return whether the member has room for
    more: it has fewer bytes than `max_bytes` and fewer items than its capacity."""
    image, has_room = _queue(tx, queue), False
    for one in image.subscriptions.get(to.member.subscription, ()):
        in_flight, bytes_, turn, mine = one.in_flight + 1, one.bytes + size, one.turn, one.mine
        if one.generation == to.generation:
            image.turn += 1  # a turn that is skipped if the unit is undone does no harm
            turn, mine = image.turn, mine + 1
        has_room = in_flight < one.capacity and bytes_ < max_bytes
        _change(tx, image, one, (in_flight, mine, bytes_, int(has_room), one.stalled, turn))
    return has_room


def count_removal(
    tx: Transaction, queue: int, subscription: int, holder: str, size: int, max_bytes: int
) -> None:
    """Subtract an item of `size` bytes, which the session `holder` had, from a member's counts."""
    image = _queue(tx, queue)
    for one in image.subscriptions.get(subscription, ()):
        in_flight, bytes_ = one.in_flight - 1, one.bytes - size
        free = in_flight < one.capacity and bytes_ < max_bytes
        mine = max(0, one.mine - (one.full == holder))
        counts = (max(0, in_flight), mine, max(0, bytes_), int(free), 0, one.turn)
        _change(tx, image, one, counts)


def count_sent(tx: Transaction, generation: int, max_bytes: int) -> None:
    """Recount the items of each subscription that a session serves, after the session has
    acknowledged items at QoS 0."""
    write(tx)
    for (subscription,) in tx.rows(_OF_SESSION, (generation,)):
        _count(tx, subscription, max_bytes)


def set_stalled(tx: Transaction, subscription: int) -> None:
    """Assign nothing to a member until `clear_stalls`, because its outbox is full."""
    write(tx)
    tx.run(_SET_STALLED, (subscription,))
    _reread(tx, subscription)


def clear_stalls(tx: Transaction, max_bytes: int) -> None:
    """Let members excluded by `set_stalled` get items again, if they have less than `max_bytes`."""
    write(tx)
    for (subscription,) in tx.rows(_STALLED):
        tx.run(_CLEAR_STALL, (max_bytes, subscription))
        _reread(tx, subscription)


def has_stalled(tx: Transaction) -> bool:
    """Return whether any member gets no items because its outbox is full (`set_stalled`)."""
    write(tx)
    return tx.row(f"{_STALLED} LIMIT 1") is not None


def with_room(tx: Transaction, queue: int, limit: int) -> list[ConnectedMember]:
    """Return up to `limit` connected members that can get one more item, least loaded first."""
    image = _queue(tx, queue)
    found: list[ConnectedMember] = []
    for *_counts, subscription, generation in image.free:
        member = image.members[subscription, generation]
        if member.accepts(tx):
            found.append(member.connected())
            if len(found) == limit:
                break
    return found


def connected(tx: Transaction, queue: int) -> list[ConnectedMember]:
    """Return all connected members of a queue; those without room have `capacity == in_flight`."""
    members = _queue(tx, queue).members.values()
    return [member.connected() for member in members if member.accepts(tx)]


def remove_subscription(tx: Transaction, subscription: int) -> None:
    """Remove all sessions of a subscription from the members of its queue."""
    write(tx)
    tx.run(_REMOVE_SUBSCRIPTION, (subscription,))
    _reread(tx, subscription)


def remove_session(tx: Transaction, generation: int, max_bytes: int) -> None:
    """Remove a session from the members of all queues. The `in_flight` of its subscriptions no
    longer includes items at QoS 0 that were being sent to it."""
    write(tx)
    for (subscription,) in tx.rows(_REMOVE_SESSION, (generation,)):
        _count(tx, subscription, max_bytes)


def remove_sessions_of(tx: Transaction, jid: str, max_bytes: int) -> None:
    """Remove the session of a full JID, or all sessions of a bare JID, from the members."""
    write(tx)
    for (generation,) in tx.rows(_SESSIONS_OF_JID, (jid,)):
        remove_session(tx, generation, max_bytes)


def remove_all(tx: Transaction) -> None:
    """Remove all members."""
    write(tx)
    tx.run(_REMOVE_ALL)
    _drop(tx)


def queues_of(tx: Transaction, generation: int) -> list[int]:
    """Return the numbers of the queues whose members include a session."""
    write(tx)
    return [queue for (queue,) in tx.rows(_QUEUES_OF_SESSION, (generation,))]


def dispatchable(tx: Transaction) -> list[int]:
    """Return the numbers of the queues that have ready items and members with room."""
    write(tx)
    return [queue for (queue,) in tx.rows(_DISPATCHABLE)]


def with_unknown_qos(
    tx: Transaction, *, subscription: int | None = None, generation: int | None = None
) -> list[str]:
    """Return the full JIDs of sessions that could get items but whose support of QoS is unknown.

    Consider only the sessions of `subscription`, or the session `generation`. If neither is given,
    consider those that are subscribed by full JID, because they may never send presence.
    """
    if subscription is not None:
        rows = tx.rows(_QOS_UNKNOWN_OF_SUBSCRIPTION, (subscription,))
    elif generation is not None:
        rows = tx.rows(_QOS_UNKNOWN_OF_SESSION, (generation,))
    else:
        rows = tx.rows(_QOS_UNKNOWN_OF_FULL_JIDS)
    return [full for (full,) in rows]


def recount_locking(tx: Transaction, max_bytes: int) -> None:
    """Remove members without a subscription and recount items, after changes by another process."""
    write(tx)
    tx.run(_REMOVE_ENDED)
    _drop(tx)
    for (subscription,) in tx.rows(_LOCKING):
        _count(tx, subscription, max_bytes)


def recount_queue(tx: Transaction, queue: int, max_bytes: int) -> None:
    """Recount the items of each member of a queue, which may have at most `max_bytes` of them."""
    write(tx)
    for (subscription,) in tx.rows(_OF_QUEUE, (queue,)):
        _count(tx, subscription, max_bytes)
