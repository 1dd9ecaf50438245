"""How full queues are and how fast they move, told to the centre from time to time.

How many items there are is in rows already; those of them that are locked, delayed or dead are
counted in an index when the centre is to be told. What was done since then is counted in a
temporary table: it ends with the process. Which queues were told to have items stands in the
database, so that the centre hears of each that it is empty again, after a restart too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent

MOST: Final = 64
"""Queues that are told one by one at a time, the deepest: beyond, they are told together. So a
day has 18,432 such events at most, and the lane's bound is 50,000."""

OTHER: Final = "other"
"""The topic under which the rest is told."""


class Depth(NamedTuple):
    """A queue with items, or one that was told to have some; a row of several where `queue` is 0.

    `items` are all, dead ones too; `oldest` is since when the first that came waits or is locked,
    in service seconds.
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
        """Items that are not dead."""
        return self.items - self.dead


class _Work(NamedTuple):
    delivered: int
    redelivered: int
    timeouts: int


_GAVE: Final = """
INSERT INTO temp.queue_work (queue, delivered, redelivered, timeouts) VALUES (?1, 1, ?2, 0)
ON CONFLICT (queue) DO UPDATE SET delivered = delivered + 1, redelivered = redelivered + ?2
"""
_TIMED_OUT: Final = """
INSERT INTO temp.queue_work (queue, delivered, redelivered, timeouts) VALUES (?, 0, 0, 1)
ON CONFLICT (queue) DO UPDATE SET timeouts = timeouts + 1
"""
_WORK: Final = "SELECT queue, delivered, redelivered, timeouts FROM temp.queue_work"
_TAKEN: Final = "DELETE FROM temp.queue_work WHERE queue = ?"
_GONE: Final = "DELETE FROM temp.queue_work WHERE queue NOT IN (SELECT id FROM main.queues)"
_FOUND: Final = """
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
_TOLD: Final = "SELECT topic FROM queues_told ORDER BY topic"
_TELL: Final = "INSERT OR IGNORE INTO queues_told (topic) VALUES (?)"
_FORGET: Final = "DELETE FROM queues_told WHERE topic = ?"


def gave(tx: Transaction, queue: int, *, again: bool) -> None:
    """Count that an item was given to a member; `again` if it was given before."""
    tx.run(_GAVE, (queue, again))


def timed_out(tx: Transaction, queue: int) -> None:
    """Count that the time of a lock was over."""
    tx.run(_TIMED_OUT, (queue,))


def found(tx: Transaction) -> list[Depth]:
    """Return the queues that the centre is to be told of: `MOST`, and one row for the rest.

    All queues that have items are looked at, and of each the index entries of its items that are
    not just waiting, and once of those that are. It is for a reader.
    """
    rows = [Depth._make(row) for row in tx.rows(_FOUND)]
    told = {topic for (topic,) in tx.rows(_TOLD)}
    here = {row.topic for row in rows}
    rows += [_nothing(topic) for topic in told - here]
    deep = sorted((row for row in rows if row.depth), key=lambda row: (-row.depth, row.topic))
    empty = [row for row in rows if not row.depth and row.topic in told]
    most, rest = deep[:MOST], deep[MOST:]
    if rest:
        empty = [row for row in empty if row.topic != OTHER]
        most.append(_together(rest))
    return most + empty


def _nothing(topic: str) -> Depth:
    return Depth(0, topic, 0, 0, 0, 0, 0, None)


def _together(rows: Sequence[Depth]) -> Depth:
    items, locked, delayed, dead, members = (
        sum(figures) for figures in zip(*(row[2:7] for row in rows), strict=True)
    )
    oldest = min((row.oldest for row in rows if row.oldest is not None), default=None)
    return Depth(0, OTHER, items, locked, delayed, dead, members, oldest)


def tell(tx: Transaction, rows: Sequence[Depth]) -> None:
    """Write the events, and begin to count anew what is done in these queues.

    What is done in queues that are not told by their names is told with the rest, if there is one.
    """
    tx.run(_GONE)
    work = {queue: _Work(*done) for queue, *done in tx.rows(_WORK)}
    named = [row for row in rows if row.queue]
    parts = {row: [row.queue] for row in named}
    unnamed = list(work.keys() - {row.queue for row in named})
    parts |= {row: unnamed if row.topic == OTHER else [] for row in rows if not row.queue}
    for row, of in parts.items():
        done = [work[queue] for queue in of if queue in work]
        tx.run(_TELL if row.depth else _FORGET, (row.topic,))
        for queue in of:
            tx.run(_TAKEN, (queue,))
        events.append(tx, events.SYSTEM, _event(row, _sum(done), tx.now.service))


def _sum(done: Iterable[_Work]) -> _Work:
    return _Work(*(sum(figures) for figures in zip(_Work(0, 0, 0), *done, strict=True)))


def _event(row: Depth, done: _Work, now: float) -> NewEvent:
    age = 0.0 if row.oldest is None else max(0.0, now - row.oldest)
    figures: dict[str, Any] = {
        "ready": row.depth - row.locked - row.delayed,
        "locked": row.locked,
        "delayed": row.delayed,
        "dead": row.dead,
        "oldest_s": round(age),
        "members": row.members,
        **done._asdict(),
    }
    return NewEvent(
        "queue",
        topic=row.topic,
        name="depth",
        value=float(row.depth),
        unit="items",
        tags={name: str(figure) for name, figure in figures.items()},
    )
