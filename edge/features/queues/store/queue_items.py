"""Items of queues and their states: ready, locked, delayed or dead.

The row number of an item is its place in the queue, and stays the same if a member does not
complete the item. Payloads are in a separate table, because the row of an item is written several
times. The totals of each queue, of each source and of all queues are kept by `_write` and, for
deleted items, by SQL triggers.

Recently published or requested items of queue nodes are cached in memory (`Transaction.cache`), and
so are the numbers of queues without a ready item. Insertions, and deletions of cached items, are
collected and written in one batch for several units of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from edge.engine.dispatch import item_attributes
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes, charge
from edge.engine.limits import source_usage
from edge.engine.store import row_numbers
from edge.engine.store.database import Transaction
from edge.engine.store.image import Changes, Table, write_rows
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.replacement import author_of
from edge.features.queues.rules.assignment import slot_of
from edge.features.queues.store import queues
from edge.features.queues.store.queues import CACHED_QUEUES, Queue

OVERHEAD: Final = 128
"""Bytes that count towards the limits for an item besides its payload, ItemID and publisher."""

BATCH: Final = 64
"""Maximum number of items that timers or a restart change in one unit of work."""

CACHED_ITEMS: Final = 256
"""Maximum number of cached items of one queue: those that are locked or, in a short queue, all."""

CACHED_WITH_ITEMS: Final = 64
"""Maximum number of queues with cached items; a full cache is emptied."""

_ITEMS: Final = "queue items"
_DRAINED: Final = "drained queues"
_ABSENT: Final = "absent queue item"


class QueuedItem(NamedTuple):
    """An item of a queue.

    All times except `wall` are service seconds.

    Attributes:
        row: the row number, which is the item's place in its queue.
        queue: the number of the queue.
        node: the name of the node to which the item was published.
        item: the ItemID.
        publisher: the full JID of the publisher.
        state: `ready`, `locked`, `delayed` or `dead`.
        wall: when the item was published, in ms since 1970.
        since: when the item was published or requeued.
        due: when a delayed item becomes ready; `None` if it is withheld for a member that may read
            its node.
        expires: when a ready or delayed item becomes dead.
        deliveries: how often the item was assigned to members.
        spared: deliveries that do not count towards the queue's `max_deliveries`.
        subscription: the number of the subscription that has locked the item.
        holder: the full JID that has locked the item, or that gave a ready item back.
        locked: when the lock began.
        until: when the lock ends; `None` for items of shared subscriptions.
        outbox: the number of the outbox row that delivers an item of a shared subscription.
        reason: why the item is dead.
        bytes: the bytes charged for the item.
        author: the account that has the publisher's rights (`replacement.author_of`).
        qos: the quality of service of the publication.
    """

    row: int
    queue: int
    node: str
    item: str
    publisher: str
    state: str
    priority: int
    wall: int
    since: float
    due: float | None
    expires: float | None
    deliveries: int
    spared: int
    subscription: int | None
    holder: str | None
    locked: float | None
    until: float | None
    outbox: int | None
    reason: str | None
    bytes: int
    author: str | None = None
    qos: int = 2


class NewQueuedItem(NamedTuple):
    """An item to append to a queue.

    Attributes:
        node: the name of the node to which the item was published.
        item: the ItemID.
        publisher: the full JID of the publisher.
        body: the payload; empty if there is none.
        priority: items with the highest number are delivered first.
        due: the service second at which the item is ready; `None` means at once.
        expires: the service second at which the item is dead unless it is locked.
        attributes: further attributes, of which all except `expiry` are stored.
    """

    node: str
    item: str
    publisher: str
    body: bytes
    priority: int = 0
    due: float | None = None
    expires: float | None = None
    attributes: ItemAttributes = NO_ATTRIBUTES


class Lock(NamedTuple):
    """Lock of an item: the member's subscription and full JID, and the end of the lock, if any."""

    subscription: int
    holder: str
    until: float | None


_COLUMNS: Final = ", ".join(("i.id", *(f"i.{name}" for name in QueuedItem._fields[1:])))

ITEM: Final = f"SELECT {_COLUMNS} FROM main.queue_items AS i"  # noqa: S608 - of constants
"""`SELECT` statement for the columns of `QueuedItem`, to which a `WHERE` clause is appended."""

_GET: Final = f"{ITEM} WHERE id = ?"
_FIND: Final = f"{ITEM} WHERE queue = ? AND item = ?"
_NEXT_READY: Final = f"""{ITEM}
WHERE queue = ? AND state = 'ready' AND (expires IS NULL OR expires > ?)
ORDER BY priority DESC, id LIMIT ?
"""
_ENQUEUE: Final = """
INSERT INTO main.queue_items (
    id, queue, node, item, publisher, state, priority, wall, since, due, expires, slot, bytes,
    deliveries, subscription, holder, locked, until, qos
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNT_NEW: Final = (
    "UPDATE main.queues SET items = items + ?3, bytes = bytes + ?4 WHERE id = ?1",
    """INSERT INTO main.queue_sources (source, items, bytes)
    SELECT coalesce(owner, ?2), ?3, ?4 FROM main.queues WHERE id = ?1
    ON CONFLICT (source) DO UPDATE SET items = items + ?3, bytes = bytes + ?4""",
    "UPDATE main.queues_total SET items = items + ?3, bytes = bytes + ?4",
)
_QUEUE, _PUBLISHER, _BYTES = 1, 4, 12
"""The places of columns among the values of `_ENQUEUE`."""

_ADD_BODY: Final = """
INSERT INTO main.queue_bodies (id, body, content_type, retain, properties) VALUES (?, ?, ?, ?, ?)
"""
_BODY: Final = "SELECT body, content_type, retain, properties FROM main.queue_bodies WHERE id = ?"
_LOCK: Final = """
UPDATE main.queue_items
SET state = 'locked', subscription = ?, holder = ?, locked = ?, until = ?,
    deliveries = deliveries + 1
WHERE id = ?
"""
_ADD_RECEIVER: Final = """
INSERT OR IGNORE INTO main.queue_receivers (item, jid)
SELECT id, holder FROM main.queue_items WHERE id = ? AND state = 'locked' AND holder IS NOT NULL
"""
_HAS_RECEIVED: Final = """
SELECT 1 FROM main.queue_receivers WHERE item = ?1 AND jid = ?2
UNION ALL SELECT 1 FROM main.queue_items WHERE id = ?1 AND state = 'locked' AND holder = ?2
"""
_SET_OUTBOX_ROW: Final = "UPDATE main.queue_items SET outbox = ? WHERE id = ?"
_UNLOCK: Final = """
UPDATE main.queue_items
SET state = 'ready', subscription = NULL, holder = ?, locked = NULL, until = NULL, outbox = NULL,
    deliveries = deliveries - ?
WHERE id = ?
"""
_END_LOCK: Final = """
UPDATE queue_items SET until = ?, spared = max(spared, deliveries - max(1, ? - 1)) WHERE id = ?
"""
_TAKE: Final = """
UPDATE main.queue_items SET state = 'delayed', due = ?, deliveries = deliveries + 1 WHERE id = ?
"""
_DEAD_LETTER: Final = """
UPDATE main.queue_items
SET state = 'dead', reason = ?, expires = NULL, due = NULL, until = NULL, outbox = NULL
WHERE id = ?
"""
_REQUEUE: Final = """
UPDATE main.queue_items
SET state = 'ready', reason = NULL, spared = deliveries, subscription = NULL, holder = NULL,
    locked = NULL, since = ?
WHERE id = ? AND state = 'dead'
"""
_DELETE: Final = "DELETE FROM main.queue_items WHERE id = ?"
_DELETE_ALL: Final = "DELETE FROM main.queue_items WHERE queue = ?"
_DELETE_SOME: Final = """
DELETE FROM queue_items WHERE id IN (
    SELECT id FROM queue_items WHERE queue = ?1 AND (?2 OR state <> 'locked') LIMIT ?3
)
"""
_LOCKED_BY: Final = f"{ITEM} WHERE state = 'locked' AND holder = ? ORDER BY id"
_LOCKED_BY_BARE: Final = f"""{ITEM}
WHERE state = 'locked' AND holder > ? || '/' AND holder < ? || '0' ORDER BY id
"""
_WITHHOLD: Final = """
UPDATE queue_items SET state = 'delayed' WHERE queue = ? AND state = 'ready' AND node = ?
"""
_RELEASE_WITHHELD: Final = """
UPDATE queue_items INDEXED BY queue_items_due SET state = 'ready'
WHERE queue = ? AND state = 'delayed' AND due IS NULL
"""
_QUEUES_WITH_WITHHELD: Final = """
SELECT DISTINCT queue FROM queue_items INDEXED BY queue_items_due
WHERE state = 'delayed' AND due IS NULL ORDER BY queue
"""
_DEAD_LETTER_NODE: Final = """
UPDATE queue_items SET state = 'dead', reason = ?, expires = NULL
WHERE queue = ? AND state IN ('ready', 'delayed') AND node = ?
"""
_READY_SLOTS: Final = """
WITH RECURSIVE slots (number) AS ( -- seeks from each slot to the next, not through all items
    SELECT min(slot) FROM main.queue_items WHERE queue = ?1 AND slot IS NOT NULL
    UNION ALL
    SELECT (SELECT min(slot) FROM main.queue_items WHERE queue = ?1 AND slot > number)
    FROM slots WHERE number IS NOT NULL
)
SELECT number FROM slots WHERE EXISTS (
    SELECT 1 FROM main.queue_items WHERE queue = ?1 AND slot = number AND state = 'ready'
)
"""
_NEXT_READY_OF_SLOT: Final = """
SELECT -priority, id FROM main.queue_items
WHERE queue = ? AND slot = ? AND state = 'ready' AND (expires IS NULL OR expires > ?)
ORDER BY priority DESC, id LIMIT ?
"""
_SLOT_OWNERS: Final = """
SELECT slot, subscription FROM main.queue_items INDEXED BY queue_items_in_line
WHERE queue = ? AND state = 'locked' AND slot IS NOT NULL
"""
_CLEAR_SLOTS: Final = "UPDATE main.queue_items SET slot = NULL WHERE queue = ? AND slot IS NOT NULL"
_PUBLISHERS: Final = "SELECT id, publisher FROM main.queue_items WHERE queue = ?"
_SET_SLOT: Final = "UPDATE main.queue_items SET slot = ? WHERE id = ?"
_LOCK_TIMEOUTS: Final = f"""{ITEM}
WHERE state = 'locked' AND until IS NOT NULL AND until <= ? ORDER BY until LIMIT ?
"""
_EXPIRED: Final = f"""{ITEM}
WHERE expires IS NOT NULL AND state IN ('ready', 'delayed') AND expires <= ?
ORDER BY expires LIMIT ?
"""
_DELAY_OVER: Final = (
    "SELECT id FROM queue_items WHERE state = 'delayed' AND due <= ? ORDER BY due LIMIT ?"
)
_SET_READY: Final = "UPDATE main.queue_items SET state = 'ready', due = NULL WHERE id = ?"
_NEXT_TIMER: Final = """
SELECT min(first) FROM (
    SELECT min(until) AS first FROM main.queue_items
    WHERE state = 'locked' AND until IS NOT NULL
    UNION ALL
    SELECT min(expires) FROM main.queue_items
    WHERE expires IS NOT NULL AND state IN ('ready', 'delayed')
    UNION ALL
    SELECT min(due) FROM main.queue_items WHERE state = 'delayed'
)
"""
_ORPHANED: Final = f"""{ITEM}
WHERE state = 'locked' AND holder IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM main.subscriptions AS s WHERE s.id = i.subscription)
    AND NOT EXISTS (SELECT 1 FROM main.durable_sessions AS d WHERE d.full = i.holder)
LIMIT ?
"""  # noqa: S608 - of constants
_REASSIGNABLE: Final = f"""{ITEM} JOIN main.outbox AS o ON o.id = i.outbox
WHERE i.state = 'locked' AND i.holder = ? AND (o.qos = 1 OR o.state = 'queued')
ORDER BY i.id
"""
_REASSIGNABLE_AFTER_RESTART: Final = f"""
SELECT {_COLUMNS}
FROM main.outbox AS o CROSS JOIN main.queue_items AS i -- in this order: there are far more items
    ON i.id = o.queue_item
WHERE o.queue_item IS NOT NULL AND (o.qos = 1 OR o.state = 'queued')
    AND i.state = 'locked' AND i.outbox = o.id
    AND NOT EXISTS (SELECT 1 FROM temp.sessions AS s WHERE s.full = i.holder)
ORDER BY i.id LIMIT ?
"""  # noqa: S608 - of constants
_AGE: Final = (
    """UPDATE main.queue_items SET due = due - ?
    WHERE state = 'delayed' AND due IS NOT NULL AND since <= ?""",
    """UPDATE main.queue_items SET expires = expires - ?
    WHERE expires IS NOT NULL AND state IN ('ready', 'delayed') AND since <= ?""",
    """UPDATE main.queue_items SET expires = expires - ?
    WHERE state = 'locked' AND expires IS NOT NULL AND since <= ?""",
    """UPDATE main.queue_items SET until = until - ?
    WHERE state = 'locked' AND until IS NOT NULL AND locked <= ?""",
)
_COUNT_BY_AUTHOR: Final = """
SELECT count(*) FROM queue_items
WHERE coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?
"""
_DELETE_BY_AUTHOR: Final = """
DELETE FROM queue_items WHERE state <> 'locked'
    AND coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?
"""
_SET_AUTHOR: Final = """
UPDATE queue_items SET author = ?2
WHERE coalesce(author, substr(publisher, 1, instr(publisher || '/', '/') - 1)) = ?1
"""
_FORGET_RECEIVER: Final = "DELETE FROM queue_receivers WHERE jid > ?1 || '/' AND jid < ?1 || '0'"
_IS_RESTART_HANDLED: Final = "SELECT 1 FROM temp.share_items"
_SET_RESTART_HANDLED: Final = "INSERT INTO temp.share_items (looked) VALUES (1)"


def get(tx: Transaction, row: int) -> QueuedItem | None:
    """Return an item by its row number."""
    found = tx.row(_GET, (row,))
    return None if found is None else QueuedItem._make(found)


def find(tx: Transaction, queue: int, item: str) -> QueuedItem | None:
    """Return an item of a queue by its ItemID."""
    cached = _cached(tx, queue)
    found = cached.get(item)
    if found is not None:
        return found
    of_queue = queues.get(tx, queue)
    if of_queue is None or len(cached) == of_queue.items:  # all items of the queue are in memory
        return None
    if tx.memo.get(_ABSENT) == (queue, item):
        return None
    row = tx.row(_FIND, (queue, item))
    if row is None:
        tx.memo[_ABSENT] = queue, item  # who publishes looks twice
        return None
    found = QueuedItem._make(row)
    return found if of_queue.node is None else _keep(cached, found)


def _cached(tx: Transaction, queue: int) -> dict[str, QueuedItem]:
    cache: dict[int, dict[str, QueuedItem]] = tx.cache.setdefault(_ITEMS, {})
    found = cache.get(queue)
    if found is None:
        if len(cache) >= CACHED_WITH_ITEMS:
            cache.clear()
        found = cache[queue] = {}
    return found


def _keep(cached: dict[str, QueuedItem], item: QueuedItem) -> QueuedItem:
    if len(cached) >= CACHED_ITEMS:
        del cached[next(iter(cached))]
    cached[item.item] = item
    return item


def _forget(tx: Transaction) -> None:
    """Drop the cached items and the cached numbers of queues without a ready item."""
    tx.cache.pop(_ITEMS, None)
    tx.cache.pop(_DRAINED, None)


def enqueue(
    tx: Transaction, queue: Queue, new: NewQueuedItem, lock: Lock | None = None
) -> QueuedItem:
    """Append an item to a queue and return it.

    With a `lock` the item is stored as locked, with one delivery.
    """
    node, item, publisher, body, priority, due, expires, attributes = new
    now, slot = tx.now, _slot(queue, publisher)
    size = charge(OVERHEAD, item, publisher, body, attributes)
    state = "ready" if due is None else "delayed"
    locked: tuple[Any, ...] = (0, None, None, None, None)  # from `deliveries` to `until`
    if lock is not None:
        state = "locked"
        locked = 1, lock.subscription, lock.holder, now.service, lock.until
    values = (queue.id, node, item, publisher, state, priority, now.wall, now.service, due, expires)
    row = row_numbers.take(tx, "queue_items")
    qos = attributes.qos
    content = body if attributes is NO_ATTRIBUTES else (body, attributes)
    _TABLE.change(tx, row, None, (row, *values, slot, size, *locked, qos), content)
    queues.count_items(tx, queue, author_of(None, publisher), 1, size)
    tx.memo.pop(_ABSENT, None)
    drained: set[int] = tx.cache.get(_DRAINED, set())
    if state == "ready" and queue.id in drained:
        drained.remove(queue.id)
        tx.on_undo(drained.add, queue.id)
    deliveries, *lock_values = locked
    added = QueuedItem._make(
        (row, *values, deliveries, 0, *lock_values, None, None, size, None, qos)
    )
    if queue.node is not None:
        cached = _cached(tx, queue.id)
        if lock is not None or len(cached) < CACHED_ITEMS:  # those that wait do not displace others
            tx.on_undo(_restore, cached, item, cached.get(item))
            _keep(cached, added)
    return added


def _restore(cached: dict[str, QueuedItem], name: str, item: QueuedItem | None) -> None:
    if item is None:
        cached.pop(name, None)
    else:
        cached[name] = item


def _write(tx: Transaction, changes: Changes[tuple[Any, ...]]) -> None:
    if changes.new:
        new = [values for values, _content in changes.new]
        tx.run_many(_ENQUEUE, new)
        source_usage.count_new(tx, _COUNT_NEW, map(_counted, new))
        tx.run_many(_ADD_BODY, [_body_row(values[0], content) for values, content in changes.new])
    write_rows(tx, _DELETE, changes.removed)


_TABLE: Final[Table[int, tuple[Any, ...]]] = Table(_ITEMS, _write)


def _body_row(row: int, content: bytes | tuple[bytes, ItemAttributes]) -> tuple[Any, ...]:
    if isinstance(content, bytes):
        return row, content, "", 0, None
    body, (content_type, _qos, retain, _expiry, properties) = content
    packed = item_attributes.pack(properties) if properties else None
    return row, body, content_type, bool(retain), packed


def _counted(values: tuple[Any, ...]) -> tuple[int, str, int, int]:
    """Return what `count_new` needs of a new row."""
    return values[_QUEUE], author_of(None, values[_PUBLISHER]), 1, values[_BYTES]


def _slot(queue: Queue, publisher: str) -> int | None:
    return slot_of(publisher) if queue.policy == QueuePolicy.HASH else None


def next_ready(tx: Transaction, queue: int, limit: int) -> list[QueuedItem]:
    """Return the first ready items of a queue, in order of delivery."""
    drained: set[int] = tx.cache.setdefault(_DRAINED, set())
    if queue in drained:
        return []
    found = _items(tx, _NEXT_READY, (queue, tx.now.service, limit))
    if not found:
        if len(drained) >= CACHED_QUEUES:
            drained.clear()
        drained.add(queue)
    return found


def is_drained(tx: Transaction, queue: int) -> bool:
    """Return whether a queue is known, without reading rows, to have no ready item."""
    return queue in tx.cache.get(_DRAINED, ())


def body(tx: Transaction, row: int) -> tuple[bytes, ItemAttributes]:
    """Return the payload of an existing item, empty if it has none, and its stored attributes
    except the quality of service."""
    payload, content_type, retain, properties = tx.row(_BODY, (row,))
    unpacked = item_attributes.unpack(properties)
    return payload, ItemAttributes(content_type, retain=bool(retain), properties=unpacked)


def lock(tx: Transaction, queue: Queue, item: QueuedItem, lock: Lock) -> None:
    """Lock an unlocked item of a queue for a member's session, and count the delivery."""
    subscription, holder, until = lock
    now = tx.now.service
    tx.run(_LOCK, (subscription, holder, now, until, item.row))
    if queue.node is None:
        return
    locked = item._replace(
        state="locked", deliveries=item.deliveries + 1, subscription=subscription, holder=holder,
        locked=now, until=until,
    )  # fmt: skip
    _keep(_cached(tx, queue.id), locked)


def take(tx: Transaction, row: int, due: float) -> None:
    """Delay a ready item until `due`, in service seconds, because the operator takes it; count a
    delivery."""
    _change(tx, _TAKE, (due, row))


def set_outbox_row(tx: Transaction, row: int, outbox: int) -> None:
    """Record the number of the outbox row that delivers an item of a shared subscription."""
    tx.run(_SET_OUTBOX_ROW, (outbox, row))


def has_received(tx: Transaction, row: int, full: str) -> bool:
    """Return whether an item was ever assigned to a session, given by its full JID."""
    return tx.row(_HAS_RECEIVED, (row, full)) is not None


def unlock(tx: Transaction, row: int, avoid: str | None = None, *, delivered: bool = True) -> None:
    """Make a locked item ready again.

    Args:
        avoid: the full JID that should not get the item while other members are connected.
        delivered: whether the item was sent to the member; if not, the delivery is uncounted.
    """
    tx.run(_ADD_RECEIVER, (row,))
    tx.run(_UNLOCK, (avoid, not delivered, row))
    _forget(tx)


def end_lock(tx: Transaction, row: int, max_deliveries: int) -> None:
    """Let an item's lock time out now.

    The running gateway's timer then makes it ready, or dead if the queue's `max_deliveries` is 1.
    """
    tx.run(_END_LOCK, (tx.now.service, max_deliveries, row))
    _forget(tx)


def dead_letter(tx: Transaction, row: int, reason: str) -> None:
    """Make an item dead: it stays in the queue until it is requeued or deleted."""
    tx.run(_ADD_RECEIVER, (row,))
    tx.run(_DEAD_LETTER, (reason, row))
    _forget(tx)


def requeue(tx: Transaction, row: int) -> bool:
    """Make a dead item ready at its old place in the queue; return whether it was dead."""
    return _change(tx, _REQUEUE, (tx.now.service, row)) > 0


def delete(tx: Transaction, item: QueuedItem) -> None:
    """Delete an existing item."""
    queue = queues.get(tx, item.queue)  # cached before the change, which is then counted in it
    cached: dict[str, QueuedItem] = tx.cache.get(_ITEMS, {}).get(item.queue, {})
    known = cached.get(item.item)
    if known is not None and known.row == item.row:
        if item.row in tx.memo.get(_ITEMS, ()):  # not inserted yet
            tx.write()  # SQLite remembers only numbers of rows that were inserted
        del cached[item.item]
        tx.on_undo(cached.__setitem__, item.item, known)
        _TABLE.change(tx, item.row, (item.row,), None)
    elif tx.run(_DELETE, (item.row,)).rowcount == 0:
        return
    if queue is not None:
        author = author_of(item.author, item.publisher)
        queues.count_items(tx, queue, author, -1, -item.bytes)


def delete_all(tx: Transaction, queue: int) -> int:
    """Delete all items of a queue; return their number."""
    return _change(tx, _DELETE_ALL, (queue,))


def delete_some(tx: Transaction, queue: int, limit: int, *, locked: bool) -> int:
    """Delete up to `limit` items of a queue, also locked ones if `locked`; return the number."""
    return _change(tx, _DELETE_SOME, (queue, locked, limit))


def locked_by(tx: Transaction, jid: str) -> list[QueuedItem]:
    """Return the items locked by a full JID, or by all sessions of a bare JID."""
    if "/" in jid:
        return _items(tx, _LOCKED_BY, (jid,))
    return _items(tx, _LOCKED_BY_BARE, (jid, jid))


# Items that no connected member may read


def withhold(tx: Transaction, queue: int, node: str) -> None:
    """Withhold the ready items of a queue from one node: delay them indefinitely."""
    _change(tx, _WITHHOLD, (queue, node))


def release_withheld(tx: Transaction, queue: int) -> bool:
    """Make all withheld items of a queue ready; return whether the queue had any."""
    return _change(tx, _RELEASE_WITHHELD, (queue,)) > 0


def queues_with_withheld(tx: Transaction) -> list[int]:
    """Return the numbers of the queues that have withheld items."""
    return [queue for (queue,) in tx.rows(_QUEUES_WITH_WITHHELD)]


def dead_letter_node(tx: Transaction, queue: int, node: str, reason: str) -> int:
    """Make a queue's ready and delayed items from one node dead; return their number."""
    return _change(tx, _DEAD_LETTER_NODE, (reason, queue, node))


# Slots of publishers, for the hash policy


def assign_slots(tx: Transaction, queue: int, *, by_hash: bool) -> None:
    """Set the slot (`slot_of`) of each item of a queue if `by_hash`; otherwise clear it."""
    tx.run(_CLEAR_SLOTS, (queue,))
    if by_hash:
        for row, publisher in tx.rows(_PUBLISHERS, (queue,)):
            tx.run(_SET_SLOT, (slot_of(publisher), row))


def ready_slots(tx: Transaction, queue: int) -> list[int]:
    """Return the slots (of publishers, under the hash policy) that have ready items in a queue."""
    return [number for (number,) in tx.rows(_READY_SLOTS, (queue,))]


def next_ready_of_slot(tx: Transaction, queue: int, slot: int, limit: int) -> list[tuple[int, int]]:
    """Return the first ready items whose publishers have the slot: (negative priority, row)."""
    return tx.rows(_NEXT_READY_OF_SLOT, (queue, slot, tx.now.service, limit))


def slot_owners(tx: Transaction, queue: int) -> Mapping[int, int]:
    """Return which subscription has the locked items of each slot (see `assignment.SLOTS`)."""
    return dict(tx.rows(_SLOT_OWNERS, (queue,)))


# Timers


def lock_timeouts(tx: Transaction) -> list[QueuedItem]:
    """Return up to `BATCH` items whose lock has timed out, the earliest timeout first."""
    return _items(tx, _LOCK_TIMEOUTS, (tx.now.service, BATCH))


def expired(tx: Transaction) -> list[QueuedItem]:
    """Return up to `BATCH` ready or delayed items whose time to live is over, the earliest end
    first."""
    return _items(tx, _EXPIRED, (tx.now.service, BATCH))


def release_delayed(tx: Transaction) -> int:
    """Make up to `BATCH` items ready whose delay is over; return their number."""
    found = tx.rows(_DELAY_OVER, (tx.now.service, BATCH))
    for values in found:
        _change(tx, _SET_READY, values)
    return len(found)


def next_timer(tx: Transaction) -> float | None:
    """Return the service second at which the next lock, delay or time to live ends; `None` if none
    does."""
    (first,) = tx.row(_NEXT_TIMER)
    return None if first is None else float(first)


# Items whose member is gone


def orphaned(tx: Transaction) -> list[QueuedItem]:
    """Return up to `BATCH` items that are locked by subscriptions that no longer exist, and not by
    a session with a state, which may answer them."""
    return _items(tx, _ORPHANED, (BATCH,))


def reassignable(tx: Transaction, full: str) -> list[QueuedItem]:
    """Return the locked items of a session, by its full JID, that can go to another member.

    These are items of shared subscriptions at QoS 1, and items at QoS 2 that were never sent. The
    limits of the account's outbox limit their number.
    """
    return _items(tx, _REASSIGNABLE, (full,))


def reassignable_after_restart(tx: Transaction) -> list[QueuedItem]:
    """Return up to `BATCH` items, as `reassignable` does, of sessions that no longer exist."""
    return _items(tx, _REASSIGNABLE_AFTER_RESTART, (BATCH,))


def is_restart_handled(tx: Transaction) -> bool:
    """Return whether all items were taken back from sessions that ended with the last process."""
    return tx.row(_IS_RESTART_HANDLED) is not None


def set_restart_handled(tx: Transaction) -> None:
    """Record that all items were taken back from sessions that ended with the last process."""
    tx.run(_SET_RESTART_HANDLED)


def age(tx: Transaction, before: float, seconds: float) -> None:
    """Add `seconds`, for which the gateway was switched off, to the age of all items and locks that
    were stored until the service second `before`."""
    for statement in _AGE:
        _change(tx, statement, (seconds, before))


def count_by_author(tx: Transaction, bare: str) -> int:
    """Return the number of items of all queues whose author is a bare JID."""
    return int(tx.row(_COUNT_BY_AUTHOR, (bare,))[0])


def delete_by_author(tx: Transaction, bare: str) -> None:
    """Delete the items of all queues whose author is a bare JID, except locked ones."""
    _change(tx, _DELETE_BY_AUTHOR, (bare,))


def transfer(tx: Transaction, bare: str, heir: str) -> None:
    """Make another bare JID the author of a removed account's items, and forget which items its
    sessions received. This reads the items of all queues, so it is for an operator's command."""
    _change(tx, _SET_AUTHOR, (bare, heir))
    _change(tx, _FORGET_RECEIVER, (bare,))


def _change(tx: Transaction, sql: str, values: tuple[Any, ...]) -> int:
    """Change rows and drop all cached rows; return the number of changed rows."""
    count = tx.run(sql, values).rowcount
    if count:
        queues.forget(tx)
        _forget(tx)
    return count


def _items(tx: Transaction, sql: str, values: tuple[Any, ...]) -> list[QueuedItem]:
    return [QueuedItem._make(row) for row in tx.rows(sql, values)]
