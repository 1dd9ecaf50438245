"""Compare the caches and images of publish-subscribe and queues with their rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from edge.engine.dispatch.hooks import Context
from edge.engine.sessions import sessions
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.features.pubsub.rules.replacement import author_of
from edge.features.pubsub.service import notifications, publishing
from edge.features.pubsub.store import affiliations, items, nodes, recipients
from edge.features.queues.store import notifications as waiting
from edge.features.queues.store import queue_items, queue_members, queues
from tests.helpers.store import Gateway

T = TypeVar("T")


def caches_equal_rows(context: Context, tx: Transaction) -> None:
    fresh, cache = Transaction(tx._connection, tx.now), tx.cache
    if nodes._CACHE in cache:
        kept = cache[nodes._CACHE]
        assert kept.names == {node.id: name for name, node in kept.by_name.items()}
        for name, node in kept.by_name.items():
            assert nodes.get(fresh, name) == node
    for (node_id, bare), affiliation in cache.get(nodes.AFFILIATIONS, {}).items():
        assert affiliations.get(fresh, node_id, bare) == affiliation
    _recipients_equal_rows(context, fresh, cache)
    _item_ids_equal_rows(fresh, cache)
    for source, used in cache.get(items._USAGE, {}).items():
        assert used == (items.total(fresh) if source is None else items.usage_of(fresh, source))
    _queues_equal_rows(fresh, cache)
    for counts, counted in _COUNTS:
        assert fresh.rows(counts) == fresh.rows(counted)


def _item_ids_equal_rows(fresh: Transaction, cache: dict[str, Any]) -> None:
    if items._CACHE not in cache:
        return
    kept = cache[items._CACHE]
    assert kept.size >= sum(len(known or ()) + 1 for known in kept.by_node.values())
    for node_id, known in kept.by_node.items():
        if known is not None:
            rows = fresh.rows(items._KNOWN, (node_id, -1))
            stored = [(*row[:3], author_of(*row[3:])) for row in rows]
            assert [(item, *entry) for item, entry in known.items()] == stored


def _recipients_equal_rows(context: Context, fresh: Transaction, cache: dict[str, Any]) -> None:
    if recipients._CACHE not in cache:
        return
    kept = cache[recipients._CACHE]
    assert kept.size == sum(one.size for one in kept.by_name.values())
    for id, name in kept.names.items():
        stored = nodes.by_id(fresh, id)
        assert (name in kept.by_name) is (stored is not None and stored.name == name)
    for name, one in kept.by_name.items():
        node = nodes.get(fresh, name)
        for jid, target in one.targets.items():
            assert target.id == (nodes.NEW_NODE if node is None else node.id)
            _may_publish(context, fresh, name, jid)
        node = node or next(iter(one.targets.values()))
        found = recipients.get(Transaction(None, fresh.now, cache), name)
        if found is not None:
            assert list(notifications.recipients(context, fresh, node)) == list(found)
        if one.readers is not None:
            known = notifications._readers(fresh, node)
            assert list(known.subscriptions) == list(one.readers.subscriptions)
            assert known.affiliations == one.readers.affiliations


def _may_publish(context: Context, fresh: Transaction, name: str, jid: str) -> None:
    session = sessions.find(fresh, jid)
    sender = None if session is None else sessions.sender(fresh, session.generation)
    if sender is not None:
        publishing.find_target(context, fresh, sender, name)  # raises an error if it may not


_AUTHOR = "coalesce(i.author, substr(i.publisher, 1, instr(i.publisher || '/', '/') - 1))"
_COUNTS = (
    (
        "SELECT id, items, bytes FROM nodes WHERE items > 0 ORDER BY id",
        "SELECT node, count(*), sum(bytes) FROM items GROUP BY node ORDER BY node",
    ),
    (
        "SELECT * FROM item_sources ORDER BY source",
        f"SELECT {_AUTHOR}, count(*), sum(bytes) FROM items AS i GROUP BY 1 ORDER BY 1",  # noqa: S608 - of constants
    ),
    (
        "SELECT id, items, bytes FROM queues WHERE items > 0 ORDER BY id",
        "SELECT queue, count(*), sum(bytes) FROM queue_items GROUP BY queue ORDER BY queue",
    ),
    (
        "SELECT * FROM queue_sources ORDER BY source",
        f"""SELECT coalesce(q.owner, {_AUTHOR}), count(*), sum(i.bytes)
        FROM queue_items AS i JOIN queues AS q ON q.id = i.queue GROUP BY 1 ORDER BY 1""",  # noqa: S608 - of constants
    ),
    (
        "SELECT items, bytes FROM items_total",
        "SELECT count(*), coalesce(sum(bytes), 0) FROM items",
    ),
    (
        "SELECT items, bytes FROM queues_total",
        "SELECT count(*), coalesce(sum(bytes), 0) FROM queue_items",
    ),
)
"""Each count that the database has, with the rows that it counts."""


def _queues_equal_rows(fresh: Transaction, cache: dict[str, Any]) -> None:
    if queues._CACHE in cache:
        kept = cache[queues._CACHE]
        for queue in kept.by_id.values():
            assert queues.get(fresh, queue.id) == queue
        assert kept.of_nodes.items() <= {q.node: q.id for q in kept.by_id.values()}.items()
    for source, used in cache.get(queues._USAGE, {}).items():
        assert used == (queues.total(fresh) if source is None else queues.usage_of(fresh, source))
    for queue_id, cached in cache.get(queue_items._ITEMS, {}).items():
        for name, item in cached.items():
            assert queue_items.find(fresh, queue_id, name) == item
    for queue_id in cache.get(queue_items._DRAINED, ()):
        assert not queue_items.next_ready(fresh, queue_id, 1)
    for account, most in cache.get(waiting._MOST, {}).items():
        assert fresh.row(waiting._COUNT, (account,))[0] <= most
    for queue_id, image in cache.get(queue_members._IMAGE, {}).items():
        assert _members(image) == _members(queue_members._queue(fresh, queue_id))
        assert image.free == sorted(image.free)
        assert set(image.free) == {one.load for one in image.members.values() if one.free}


def _members(image: queue_members._Queue) -> dict[tuple[int, int], tuple[Any, ...]]:
    return {
        key: (one.full, one.bare, one.needs, one.plain, one.capacity, *one.counts)
        for key, one in image.members.items()
    }


class DryRunGateway(Gateway):
    """A gateway that first runs each unit in memory and undoes it; that must change nothing."""

    def commit(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit in its own transaction after a dry run, and compare caches and rows."""

        def run(tx: Transaction) -> T:
            dry_run = Transaction(None, tx.now, self.cache)
            with suppress(NeedsDatabase):
                unit(dry_run)
            dry_run.undo()
            self._check()
            return unit(tx)

        outcome = super().commit(run)
        self._check()
        return outcome

    def _check(self) -> None:
        tx = Transaction(self.connection, self.clock(), self.cache)
        caches_equal_rows(self.router.context, tx)
