"""Periodic events about the depth of queues."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from edge import background_tasks
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import SYSTEM, StoredEvent
from edge.features.queues.store import depth_events, queue_items, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from tests.helpers import queue_rows
from tests.helpers.manual_time import ManualTime
from tests.helpers.queue_nodes import ONE, TWO, advance, publish, retract, set_up, subscribe_worker
from tests.helpers.store import Gateway, MakeGateway, new_database, opened

FIGURES = ("ready", "locked", "delayed", "dead", "oldest_s", "members")
THROUGHPUT = ("delivered", "redelivered", "timeouts")


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway()


def depth_rows(gateway: Gateway) -> list[StoredEvent]:
    """Write depth events, and return them."""
    before = len(gateway.events("system", "depth"))
    gateway.tx(lambda tx: depth_events.write_events(tx, depth_events.depths(tx)))
    return gateway.events("system", "depth")[before:]


def figures(row: StoredEvent, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(row.tags[name]) for name in names)


def put(gateway: Gateway, queue: queues.Queue, count: int) -> None:
    def unit(tx: Transaction) -> None:
        for number in range(count):
            queue_items.enqueue(tx, queue, NewQueuedItem("n", f"i{number}", ONE, b""))

    gateway.tx(unit)


def test_an_event_counts_items_by_state_and_the_oldest_age(gateway: Gateway) -> None:
    queue = gateway.tx(queue_rows.node)
    gateway.tx(lambda tx: queue_rows.fill(tx, queue))
    gateway.clock.service += 40
    (row,) = depth_rows(gateway)
    assert (row.kind, row.topic, row.value, row.unit) == ("queue", "work", 4.0, "items")
    assert figures(row, FIGURES) == (2, 1, 1, 1, 40, 0)


def test_delayed_items_have_no_age(gateway: Gateway) -> None:
    queue = gateway.tx(queue_rows.node)
    gateway.tx(
        lambda tx: queue_items.enqueue(
            tx, queue, NewQueuedItem("n", "late", ONE, b"", due=tx.now.service + 900)
        )
    )
    gateway.clock.service += 500
    (row,) = depth_rows(gateway)
    assert figures(row, FIGURES) == (0, 0, 1, 0, 0, 0)


def test_an_empty_queue_is_reported_once(gateway: Gateway) -> None:
    queue = gateway.tx(queue_rows.node)
    assert depth_rows(gateway) == []
    put(gateway, queue, 2)
    assert [row.value for row in depth_rows(gateway)] == [2.0]
    gateway.tx(lambda tx: queue_items.delete_all(tx, queue.id))
    assert [row.value for row in depth_rows(gateway)] == [0.0]
    assert depth_rows(gateway) == []


def test_a_removed_queue_is_reported_as_empty_after_a_restart(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    before = Gateway(path)
    queue = before.tx(queue_rows.share)
    put(before, queue, 1)
    depth_rows(before)
    before.close()
    after = Gateway(path)
    after.tx(lambda tx: queues.remove(tx, queue.id))
    (row,) = depth_rows(after)
    assert (row.topic, row.value) == ("$share:pool:plant/#", 0.0)
    assert figures(row, FIGURES + THROUGHPUT) == (0,) * 9
    assert depth_rows(after) == []
    after.close()


def test_a_queue_with_only_dead_items_is_not_reported(gateway: Gateway) -> None:
    queue = gateway.tx(queue_rows.node)
    put(gateway, queue, 1)
    gateway.tx(lambda tx: queue_items.dead_letter(tx, 1, "expired"))
    assert depth_rows(gateway) == []


def test_throughput_is_counted_between_events(gateway: Gateway) -> None:
    set_up(gateway, queue_lock_timeout="30")
    subscribe_worker(gateway, ONE)
    publish(gateway, "a", "b", "c")
    (row,) = depth_rows(gateway)
    assert figures(row, FIGURES) == (1, 2, 0, 0, 0, 1)
    assert figures(row, THROUGHPUT) == (2, 0, 0)
    assert retract(gateway, ONE, "a").type == "result"
    subscribe_worker(gateway, TWO)
    advance(gateway, 30)
    (row,) = depth_rows(gateway)
    delivered, redelivered, timeouts = figures(row, THROUGHPUT)
    assert timeouts == 2  # the first worker got the third item, too
    assert delivered == redelivered + 1 == 3
    (row,) = depth_rows(gateway)
    assert figures(row, THROUGHPUT) == (0, 0, 0)


def test_the_deepest_queues_get_own_events_and_the_rest_one(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_events, "MAX_QUEUES", 2)
    nodes = [gateway.tx(partial(queue_rows.node, name=f"q{number}")) for number in range(4)]
    for queue, count in zip(nodes, (1, 4, 2, 3), strict=True):
        put(gateway, queue, count)
    gateway.tx(lambda tx: depth_events.count_delivery(tx, nodes[0].id, again=False))
    gateway.tx(lambda tx: depth_events.count_delivery(tx, nodes[2].id, again=True))
    rows = depth_rows(gateway)
    assert [(row.topic, row.value) for row in rows] == [("q1", 4.0), ("q3", 3.0), ("other", 3.0)]
    assert figures(rows[2], THROUGHPUT) == (2, 1, 0)
    for queue in nodes:
        gateway.tx(partial(queue_items.delete_all, queue=queue.id))
    assert {row.topic: row.value for row in depth_rows(gateway)} == {"q1": 0, "q3": 0, "other": 0}
    assert depth_rows(gateway) == []


async def test_the_background_task_writes_events_periodically(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    with_items = Gateway(path)
    queue = with_items.tx(queue_rows.node)
    put(with_items, queue, 3)
    with_items.close()
    time = ManualTime()
    async with opened(path) as store, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(background_tasks.log_queue_depths(store, time.sleep))
        sleep = await time.next_sleep()
        assert sleep.seconds == background_tasks.DEPTH_INTERVAL
        sleep.end()
        await time.next_sleep()
        rows = await store.read(lambda tx: events.read(tx, SYSTEM, 0, 10, 1000))
        task.cancel()
    assert [(row.topic, row.value) for row in rows] == [("work", 3.0)]
