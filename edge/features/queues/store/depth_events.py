"""Periodic events about each queue's depth and throughput, for the centre.

The row of each queue has the number of its items. Locked, delayed and dead items are counted from
an index when the events are written. Deliveries since the last event are counted in a temporary
table, which is lost when the process ends. The topics of queues whose last event reported items
are in another table: one more event reports that such a queue is empty, even after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

MAX_QUEUES: Final = 64
"""Maximum number of queues with a separate event, the deepest first; one event covers all others.
With events every 5 minutes these are at most 18,432 separate events a day; the lane `system` keeps
50,000 events."""

OTHER: Final = "other"
"""Topic of the event that covers all queues without a separate event."""


class Depth(NamedTuple):
    """Depth of one queue; if `queue` is 0, of a removed queue or of several queues together.

    `topic` is the node's name or the shared subscription; `items` counts the items in all states.
    `oldest` is the service second in which the oldest ready or locked item was published or last
    requeued (of each state, only the first row is examined); `None` if there is no such item.
    """

    queue: int
    topic: str
    items: int
    locked: int
    delayed: int
    dead: int
    members: int
    oldest: float | None

    @property
    def depth(self) -> int:
        """Number of items that are not dead."""
        return self.items - self.dead


class _Throughput(NamedTuple):
    delivered: int
    redelivered: int
    timeouts: int


_DELIVERIES: Final = "queue deliveries"

_COUNT_DELIVERIES: Final = """
INSERT INTO temp.queue_work (queue, delivered, redelivered, timeouts) VALUES (?1, ?2, ?3, 0)
ON CONFLICT (queue) DO UPDATE SET delivered = delivered + ?2, redelivered = redelivered + ?3
"""
_COUNT_TIMEOUT: Final = """
INSERT INTO temp.queue_work (queue, delivered, redelivered, timeouts) VALUES (?, 0, 0, 1)
ON CONFLICT (queue) DO UPDATE SET timeouts = timeouts + 1
"""
_THROUGHPUT: Final = "SELECT queue, delivered, redelivered, timeouts FROM temp.queue_work"
_CLEAR_THROUGHPUT: Final = "DELETE FROM temp.queue_work WHERE queue = ?"
_CLEAR_REMOVED: Final = """
DELETE FROM temp.queue_work WHERE queue NOT IN (SELECT id FROM main.queues)
"""
_DEPTHS: Final = """
WITH named AS (
    SELECT q.id, coalesce(n.name, '$share:' || q.share || ':' || q.filter) AS topic, q.items
    FROM queues AS q LEFT JOIN nodes AS n ON n.id = q.node
)
SELECT q.id, q.topic, q.items,
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'locked'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'delayed'),
    (SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'),
    (SELECT count(*) FROM subscriptions AS s WHERE s.queue = q.id),
    (SELECT min(since) FROM queue_items WHERE id IN (
        SELECT min(id) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'ready'
        UNION ALL SELECT min(id) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'locked'
    ))
FROM named AS q
WHERE q.items > 0 OR EXISTS (SELECT 1 FROM queues_told AS t WHERE t.topic = q.topic)
"""
_REPORTED: Final = "SELECT topic FROM queues_told ORDER BY topic"
_ADD_REPORTED: Final = "INSERT OR IGNORE INTO queues_told (topic) VALUES (?)"
_REMOVE_REPORTED: Final = "DELETE FROM queues_told WHERE topic = ?"


def count_delivery(tx: Transaction, queue: int, *, again: bool) -> None:
    """Count an assignment of an item of a queue; `again` is whether it was assigned before."""
    counts: dict[int, list[int]] | None = tx.memo.get(_DELIVERIES)
    if counts is None:
        counts = tx.memo[_DELIVERIES] = {}
        tx.before_commit(_write)
    count = counts.setdefault(queue, [0, 0])
    _add(count, 1, again)
    tx.on_undo(_add, count, -1, -again)


def _add(count: list[int], delivered: int, redelivered: int) -> None:
    count[0] += delivered
    count[1] += redelivered


def _write(tx: Transaction) -> None:
    counts: dict[int, list[int]] | None = tx.memo.get(_DELIVERIES)
    if counts:
        tx.run_many(_COUNT_DELIVERIES, [(queue, *count) for queue, count in counts.items()])
        del tx.memo[_DELIVERIES]


def count_timeout(tx: Transaction, queue: int) -> None:
    """Count a lock timeout of an item of a queue."""
    tx.run(_COUNT_TIMEOUT, (queue,))


def depths(tx: Transaction) -> list[Depth]:
    """Return the depths to report: of up to `MAX_QUEUES` queues, of all others together, and of
    queues that became empty.

    Call this on a read-only connection, so that units of work do not wait: it reads the index
    entries of all items that are not ready.
    """
    rows = [Depth._make(row) for row in tx.rows(_DEPTHS)]
    reported = {topic for (topic,) in tx.rows(_REPORTED)}
    existing = {row.topic for row in rows}
    rows += [Depth(0, topic, 0, 0, 0, 0, 0, None) for topic in reported - existing]
    deep = sorted((row for row in rows if row.depth), key=lambda row: (-row.depth, row.topic))
    empty = [row for row in rows if not row.depth and row.topic in reported]
    found, rest = deep[:MAX_QUEUES], deep[MAX_QUEUES:]
    if rest:
        empty = [row for row in empty if row.topic != OTHER]
        found.append(_total(rest))
    return found + empty


def _total(rows: Sequence[Depth]) -> Depth:
    counts = map(sum, zip(*(row[2:7] for row in rows), strict=True))
    oldest = min((row.oldest for row in rows if row.oldest is not None), default=None)
    return Depth._make((0, OTHER, *counts, oldest))


def write_events(tx: Transaction, rows: Sequence[Depth]) -> None:
    """Write an event for each row, and reset the delivery counts of the queues that it covers.

    The row with the topic `OTHER` covers all queues that have no separate row.
    """
    _write(tx)
    tx.run(_CLEAR_REMOVED)
    throughput = {queue: _Throughput(*figures) for queue, *figures in tx.rows(_THROUGHPUT)}
    named = [row for row in rows if row.queue]
    covered = {row: [row.queue] for row in named}
    unnamed = list(throughput.keys() - {row.queue for row in named})
    covered |= {row: unnamed if row.topic == OTHER else [] for row in rows if not row.queue}
    for row, queues in covered.items():
        parts = [throughput[queue] for queue in queues if queue in throughput]
        total = _Throughput._make(map(sum, zip(_Throughput(0, 0, 0), *parts, strict=True)))
        tx.run(_ADD_REPORTED if row.depth else _REMOVE_REPORTED, (row.topic,))
        for queue in queues:
            tx.run(_CLEAR_THROUGHPUT, (queue,))
        events.append(tx, events.SYSTEM, _event(row, total, tx.now.service))


def _event(row: Depth, throughput: _Throughput, now: float) -> NewEvent:
    age = 0.0 if row.oldest is None else max(0.0, now - row.oldest)
    figures: dict[str, Any] = {
        "ready": row.depth - row.locked - row.delayed,
        "locked": row.locked,
        "delayed": row.delayed,
        "dead": row.dead,
        "oldest_s": round(age),
        "members": row.members,
        **throughput._asdict(),
    }
    return NewEvent(
        "queue",
        topic=row.topic,
        name="depth",
        value=float(row.depth),
        unit="items",
        tags={name: str(figure) for name, figure in figures.items()},
    )
