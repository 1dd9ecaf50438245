"""How much of each bound is used, as far as the database knows: what an operator asks.

Nothing here is asked where stanzas are handled: there each bound has a query of its own. What a
query reads is bounded by the limits of its table, and by an index where the table has bodies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge.engine.database import Transaction


class Used(NamedTuple):
    """How much is used, and whose that is where each has its own: the fullest one's."""

    figure: int
    of: str | None = None


class Waiting(NamedTuple):
    """How many wait: messages, events that are in no segment yet, segments not acknowledged.

    `held` are messages before their `deliver`, `in_doubt` are among the dead. `queued` are items in
    queues, `queued_dead` among them.
    """

    held: int
    outbox: int
    offline: int
    dead: int
    in_doubt: int
    events_unsealed: int
    segments: int
    queued: int
    queued_dead: int


_TOTALS: Final[dict[tuple[str, ...], str]] = {
    ("held_messages", "held_bytes"): "SELECT messages, bytes FROM custody_total",
    ("outbox_messages", "outbox_bytes"): "SELECT messages, bytes FROM outbox_total",
    ("offline_total_messages", "offline_total_bytes"): "SELECT messages, bytes FROM offline_total",
    ("dead_messages", "dead_bytes"): "SELECT messages, bytes FROM dead_total",
    ("queue_items", "queue_bytes"): "SELECT items, bytes FROM queues_total",
    ("items", "items_bytes"): "SELECT items, bytes FROM items_total",
    ("nodes",): "SELECT count(*) FROM nodes",
    ("subscriptions",): "SELECT count(*) FROM subscriptions",
}

_EACH: Final[dict[tuple[str, ...], str]] = {
    ("held_messages_per_source", "held_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM held GROUP BY source
""",
    ("outbox_messages_per_account", "outbox_bytes_per_account"): """
SELECT name, sum(messages), sum(bytes) FROM (
    SELECT recipient AS name, count(*) AS messages, sum(bytes) AS bytes FROM held
    WHERE recipient IS NOT NULL GROUP BY recipient
    UNION ALL
    SELECT a.name, count(*), sum(o.bytes) FROM outbox AS o JOIN accounts AS a ON a.id = o.account
    GROUP BY o.account
) GROUP BY name
""",
    ("outbox_messages_per_source", "outbox_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM outbox GROUP BY source
""",
    ("offline_messages", "offline_bytes"): """
SELECT (SELECT a.name FROM accounts AS a WHERE a.id = o.account), count(*), sum(o.bytes)
FROM offline AS o GROUP BY o.account
""",
    ("offline_messages_per_source", "offline_bytes_per_source"): """
SELECT source, count(*), sum(bytes) FROM offline GROUP BY source
""",
    ("roster_items",): """
SELECT a.name, count(*) FROM roster AS r JOIN accounts AS a ON a.id = r.account
WHERE r.listed = 1 GROUP BY r.account
""",
    ("released_keys",): """
SELECT l.source, (length(l.keys) + coalesce((
    SELECT sum(length(p.keys)) FROM released_pages AS p WHERE p.source = l.source
), 0)) / 8 -- bytes of a key
FROM released_latest AS l
""",
    ("unsealed_events",): "SELECT lane, last - sealed FROM lanes",
    ("nodes_per_account",): "SELECT owner, count(*) FROM nodes GROUP BY owner",
    ("affiliations",): """
SELECT n.name, count(*) FROM affiliations AS f JOIN nodes AS n ON n.id = f.node GROUP BY f.node
""",
    ("subscriptions_per_account",): """
SELECT a.name, count(*) FROM subscriptions AS s JOIN accounts AS a ON a.id = s.account
GROUP BY s.account
""",
    ("items_per_node",): "SELECT name, items FROM nodes",
    ("items_per_queue", "queue_bytes_per_queue"): """
SELECT coalesce(n.name, '$share:' || q.share || ':' || q.filter), q.items, q.bytes
FROM queues AS q LEFT JOIN nodes AS n ON n.id = q.node
""",
    ("notifications_per_account",): """
SELECT a.name, count(*) FROM notifications AS w JOIN accounts AS a ON a.id = w.account
GROUP BY w.account
""",
}
"""Whose, and how much: the first option's figure, then the second's."""

_REFUSALS: Final = "SELECT count(*) FROM refusals"
_SEGMENTS: Final = "SELECT count(*), coalesce(sum(bytes), 0) FROM segments WHERE state = ?"
_IN_DOUBT: Final = "SELECT count(*) FROM dead WHERE state = 'in doubt'"
_UNSEALED: Final = "SELECT sum(last - sealed) FROM lanes"
_QUEUED_DEAD: Final = """
SELECT coalesce(sum((
    SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'
)), 0) FROM queues AS q
"""


def limits(tx: Transaction) -> dict[str, Used]:
    """Return how much is used of each option of `[limits]` that bounds rows, by its name."""
    found = {"refusal_sources": Used(_figure(tx, _REFUSALS))}
    for names, sql in _TOTALS.items():
        found.update(zip(names, map(Used, tx.row(sql)), strict=True))
    for names, sql in _EACH.items():
        found.update(zip(names, _fullest(tx.run(sql), len(names)), strict=True))
    for name, state in (("backlog_bytes", "waiting"), ("recent_bytes", "acknowledged")):
        found[name] = Used(tx.row(_SEGMENTS, (state,))[1])
    return found


def waiting(tx: Transaction) -> Waiting:
    """Return how many messages, events and segments wait."""
    held, outbox, offline, dead, queued, *_ = (_figure(tx, sql) for sql in _TOTALS.values())
    return Waiting(
        held,
        outbox,
        offline,
        dead,
        in_doubt=_figure(tx, _IN_DOUBT),
        events_unsealed=_figure(tx, _UNSEALED),
        segments=tx.row(_SEGMENTS, ("waiting",))[0],
        queued=queued,
        queued_dead=_figure(tx, _QUEUED_DEAD),
    )


def _figure(tx: Transaction, sql: str) -> int:
    return int(tx.row(sql)[0])


def _fullest(rows: Iterable[tuple[str, int, int]], figures: int) -> list[Used]:
    """Return the largest of each column of figures, and whose it is; nobody's where there is none.

    A row at a time: there may be as many as there are accounts.
    """
    largest = [Used(0)] * figures
    for of, *mine in rows:
        for column, figure in enumerate(mine):
            if figure > largest[column].figure:
                largest[column] = Used(int(figure), of)
    return largest
