"""Queries for operators: the usage of each limit, and the numbers of waiting messages and events.

The handling of stanzas uses cheaper queries. A query reads no more rows than the limits of its
table allow, and no large bodies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge.engine.database import Transaction


class LimitUsage(NamedTuple):
    """The usage of a limit. If each source, account or lane has this limit, `value` is the largest
    usage, and `of` names whose it is."""

    value: int
    of: str | None = None


class WaitingCounts(NamedTuple):
    """Numbers of waiting messages, events, segments and items.

    Attributes:
        held: messages in custody, before their `deliver`.
        outbox: messages in outboxes.
        offline: plain messages for accounts without a session.
        dead: dead letters.
        in_doubt: dead letters that may have been delivered.
        events_unsealed: events that are not in a segment yet.
        segments: segments that the centre has not acknowledged.
        queued: items in queues.
        queued_dead: items in queues that are dead.
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


class AccountCounts(NamedTuple):
    """Numbers of waiting messages. The keys of `held` are bare JIDs of senders; the keys of the
    others are names of accounts."""

    held: dict[str, int]
    outbox: dict[str, int]
    offline: dict[str, int]


_TOTALS: Final[dict[tuple[str, ...], str]] = {
    ("held_messages", "held_bytes"): "SELECT count(*), coalesce(sum(bytes), 0) FROM held",
    ("outbox_messages", "outbox_bytes"): "SELECT count(*), coalesce(sum(bytes), 0) FROM outbox",
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
SELECT source, sum(keys) FROM (
    SELECT source, length(keys) / 8 AS keys FROM released_latest -- 8 bytes of a key
    UNION ALL SELECT source, sum(length(keys)) / 8 FROM released_pages GROUP BY source
    UNION ALL SELECT source, count(*) FROM custody WHERE released IS NOT NULL GROUP BY source
) GROUP BY source
""",
    ("unsealed_events",): "SELECT lane, last - sealed FROM lane_counters",
    ("nodes_per_account",): "SELECT owner, count(*) FROM nodes GROUP BY owner",
    ("affiliations",): """
SELECT n.name, count(*) FROM affiliations AS f JOIN nodes AS n ON n.id = f.node GROUP BY f.node
""",
    ("subscriptions_per_account",): """
SELECT a.name, count(*) FROM subscriptions AS s JOIN accounts AS a ON a.id = s.account
GROUP BY s.account
""",
    ("items_per_source", "items_bytes_per_source"): """
SELECT source, items, bytes FROM item_sources
""",
    ("queue_items_per_source", "queue_bytes_per_source"): """
SELECT source, items, bytes FROM queue_sources
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
"""The statement for the usage of one or two options; its rows are (owner, value of each option)."""

_HELD_BY_SOURCE: Final = "SELECT source, count(*) FROM held GROUP BY source"
_OUTBOX_BY_ACCOUNT: Final = """
SELECT a.name, count(*) FROM outbox AS o JOIN accounts AS a ON a.id = o.account GROUP BY o.account
"""
_OFFLINE_BY_ACCOUNT: Final = """
SELECT a.name, count(*) FROM offline AS o JOIN accounts AS a ON a.id = o.account GROUP BY o.account
"""
_REFUSALS: Final = "SELECT count(*) FROM refusals"
_SEGMENTS: Final = "SELECT count(*), coalesce(sum(bytes), 0) FROM segments WHERE state = ?"
_IN_DOUBT: Final = "SELECT count(*) FROM dead WHERE state = 'in doubt'"
_UNSEALED: Final = "SELECT sum(last - sealed) FROM lane_counters"
_QUEUED_DEAD: Final = """
SELECT coalesce(sum((
    SELECT count(*) FROM queue_items AS i WHERE i.queue = q.id AND i.state = 'dead'
)), 0) FROM queues AS q
"""


def limits(tx: Transaction) -> dict[str, LimitUsage]:
    """Return the usage of each option of `[limits]` that limits stored rows, by its name."""
    found = {"refusal_sources": LimitUsage(_count(tx, _REFUSALS))}
    for names, sql in _TOTALS.items():
        found.update(zip(names, map(LimitUsage, tx.row(sql)), strict=True))
    for names, sql in _EACH.items():
        found.update(zip(names, _fullest(tx.run(sql), len(names)), strict=True))
    for name, state in (("backlog_bytes", "waiting"), ("recent_bytes", "acknowledged")):
        found[name] = LimitUsage(tx.row(_SEGMENTS, (state,))[1])
    return found


def waiting(tx: Transaction) -> WaitingCounts:
    """Return the numbers of waiting messages, events, segments and items."""
    held, outbox, offline, dead, queued, *_ = (_count(tx, sql) for sql in _TOTALS.values())
    return WaitingCounts(
        held,
        outbox,
        offline,
        dead,
        in_doubt=_count(tx, _IN_DOUBT),
        events_unsealed=_count(tx, _UNSEALED),
        segments=tx.row(_SEGMENTS, ("waiting",))[0],
        queued=queued,
        queued_dead=_count(tx, _QUEUED_DEAD),
    )


def waiting_by_account(tx: Transaction) -> AccountCounts:
    """Return the numbers of messages in custody, in outboxes and in offline storage, by account."""
    statements = (_HELD_BY_SOURCE, _OUTBOX_BY_ACCOUNT, _OFFLINE_BY_ACCOUNT)
    return AccountCounts(*(dict(tx.rows(sql)) for sql in statements))


def _count(tx: Transaction, sql: str) -> int:
    return int(tx.row(sql)[0])


def _fullest(rows: Iterable[tuple[str, int, int]], columns: int) -> list[LimitUsage]:
    largest = [LimitUsage(0)] * columns
    for of, *mine in rows:
        for column, value in enumerate(mine):
            if value > largest[column].value:
                largest[column] = LimitUsage(int(value), of)
    return largest
