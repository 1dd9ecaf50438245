"""What the centre is told of how full queues are: which, how much, and of empty ones once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from edge import background_tasks
from edge.engine.database import Transaction
from edge.engine.events import StoredEvent
from edge.features.queues.store import depth_events, queue_items, queues
from tests.helpers import queued
from tests.helpers.manual_time import ManualTime
from tests.helpers.queues import ONE, TWO, prepare, publish, retract, wait, work
from tests.helpers.store import Gateway, new_database, opened

FIGURES = ("ready", "locked", "delayed", "dead", "oldest_s", "members")
WORK = ("delivered", "redelivered", "timeouts")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(new_database(tmp_path))
    yield made
    made.close()


def round_of(gateway: Gateway) -> list[StoredEvent]:
    """Look at the queues as upkeep does, and return what is told."""
    before = len(gateway.events("system", "depth"))
    gateway.tx(lambda tx: depth_events.write_events(tx, depth_events.depths(tx)))
    return gateway.events("system", "depth")[before:]


def figures(row: StoredEvent, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(row.tags[name]) for name in names)


def put(gateway: Gateway, queue: queues.Queue, count: int) -> None:
    def unit(tx: Transaction) -> None:
        for number in range(count):
            queue_items.enqueue(tx, queue, "n", f"i{number}", ONE, b"")

    gateway.tx(unit)


def test_a_queue_is_told_with_its_items_by_state_and_the_oldest_ones_age(gateway: Gateway) -> None:
    queue = gateway.tx(queued.node)
    gateway.tx(lambda tx: queued.fill(tx, queue))
    gateway.clock.service += 40
    (row,) = round_of(gateway)
    assert (row.kind, row.topic, row.value, row.unit) == ("queue", "work", 4.0, "items")
    assert figures(row, FIGURES) == (2, 1, 1, 1, 40, 0)


def test_a_share_is_told_by_its_name(gateway: Gateway) -> None:
    queue = gateway.tx(queued.share)
    put(gateway, queue, 1)
    (row,) = round_of(gateway)
    assert row.topic == "$share:pool:plant/#"


def test_what_waits_until_later_is_not_old(gateway: Gateway) -> None:
    queue = gateway.tx(queued.node)
    gateway.tx(
        lambda tx: queue_items.enqueue(tx, queue, "n", "late", ONE, b"", due=tx.now.service + 900)
    )
    gateway.clock.service += 500
    (row,) = round_of(gateway)
    assert figures(row, FIGURES) == (0, 0, 1, 0, 0, 0)


def test_an_empty_queue_is_told_once(gateway: Gateway) -> None:
    queue = gateway.tx(queued.node)
    assert round_of(gateway) == []
    put(gateway, queue, 2)
    assert [row.value for row in round_of(gateway)] == [2.0]
    gateway.tx(lambda tx: queue_items.delete_all(tx, queue.id))
    assert [row.value for row in round_of(gateway)] == [0.0]
    assert round_of(gateway) == []


def test_after_a_restart_too_and_where_the_queue_itself_is_gone(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    before = Gateway(path)
    queue = before.tx(queued.share)
    put(before, queue, 1)
    round_of(before)
    before.close()
    after = Gateway(path)
    after.tx(lambda tx: queues.remove(tx, queue.id))
    (row,) = round_of(after)
    assert (row.topic, row.value) == ("$share:pool:plant/#", 0.0)
    assert figures(row, FIGURES + WORK) == (0,) * 9
    assert round_of(after) == []
    after.close()


def test_dead_items_alone_are_not_told(gateway: Gateway) -> None:
    queue = gateway.tx(queued.node)
    put(gateway, queue, 1)
    gateway.tx(lambda tx: queue_items.dead_letter(tx, 1, "expired"))
    assert round_of(gateway) == []


def test_what_members_were_given_is_counted_from_event_to_event(gateway: Gateway) -> None:
    prepare(gateway, queue_lock_timeout="30")
    work(gateway, ONE)
    publish(gateway, "a", "b", "c")
    (row,) = round_of(gateway)
    assert figures(row, FIGURES) == (1, 2, 0, 0, 0, 1)
    assert figures(row, WORK) == (2, 0, 0)
    assert retract(gateway, ONE, "a").type == "result"
    work(gateway, TWO)
    wait(gateway, 30)
    (row,) = round_of(gateway)
    given, again, timeouts = figures(row, WORK)
    assert timeouts == 2, "the third item was given to the first worker when it had room"
    assert given == again + 1 == 3
    (row,) = round_of(gateway)
    assert figures(row, WORK) == (0, 0, 0)


def test_the_deepest_are_told_by_name_and_the_rest_together(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_events, "MAX_QUEUES", 2)
    made = [gateway.tx(partial(queued.node, name=f"q{number}")) for number in range(4)]
    for queue, count in zip(made, (1, 4, 2, 3), strict=True):
        put(gateway, queue, count)
    gateway.tx(lambda tx: depth_events.count_delivery(tx, made[0].id, again=False))
    gateway.tx(lambda tx: depth_events.count_delivery(tx, made[2].id, again=True))
    rows = round_of(gateway)
    assert [(row.topic, row.value) for row in rows] == [("q1", 4.0), ("q3", 3.0), ("other", 3.0)]
    assert figures(rows[2], WORK) == (2, 1, 0)
    for queue in made:
        gateway.tx(partial(queue_items.delete_all, queue=queue.id))
    assert {row.topic: row.value for row in round_of(gateway)} == {"q1": 0, "q3": 0, "other": 0}
    assert round_of(gateway) == []


async def test_the_task_tells_every_five_minutes(tmp_path: Path) -> None:
    path = new_database(tmp_path)
    with_items = Gateway(path)
    queue = with_items.tx(queued.node)
    put(with_items, queue, 3)
    with_items.close()
    time = ManualTime()
    async with opened(path) as store, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(background_tasks.log_queue_depths(store, time.sleep))
        nap = await time.nap()
        assert nap.seconds == background_tasks.DEPTHS
        nap.end()
        await time.nap()
        told = await store.read(lambda tx: tx.rows("SELECT topic, value FROM events"))
        task.cancel()
    assert told == [("work", 3.0)]
