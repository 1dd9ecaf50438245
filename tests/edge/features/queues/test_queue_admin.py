"""Changes that an operator makes to queues while the gateway runs or is stopped."""

from __future__ import annotations

from pathlib import Path

from edge.config.limits import Limits
from edge.features.queues.store import overview
from edge.ops.data import queue as admin
from tests.helpers.queue_nodes import (
    NODE,
    ONE,
    TWO,
    Received,
    advance,
    deliveries,
    messages,
    publish,
    retract,
    set_up,
    states,
    subscribe_worker,
    try_publish,
)
from tests.helpers.store import Gateway, MakeGateway


def notice_changes(gateway: Gateway) -> None:
    """Let the gateway notice the changes of another process."""
    gateway.tx(gateway.router.context.run_external_change)


def test_an_item_unlocked_by_the_operator_is_reassigned(gateway: Gateway, tmp_path: Path) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    assert deliveries(gateway, ONE) == ["a"]
    subscribe_worker(gateway, TWO)
    admin.unlock(tmp_path, NODE, "a")
    notice_changes(gateway)
    assert messages(gateway, ONE) == [Received("unlock", "a")]
    assert messages(gateway, TWO) == [Received("item", "a", 1)]
    assert retract(gateway, ONE, "a").error == ("cancel", "conflict")
    assert retract(gateway, TWO, "a").type == "result"


def test_an_item_unlocked_while_the_gateway_is_stopped_is_assigned_at_start(
    gateway: Gateway, tmp_path: Path
) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    gateway.crash()
    admin.unlock(tmp_path, NODE, "a")
    gateway.bind(TWO)
    subscribe_worker(gateway, TWO)
    gateway.run_timers()
    assert messages(gateway, TWO) == [Received("item", "a", 1)]


def test_operator_unlocks_do_not_count_as_deliveries(gateway: Gateway, tmp_path: Path) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    for _ in range(4):
        advance(gateway, 61)
    admin.unlock(tmp_path, NODE, "a")
    notice_changes(gateway)
    assert states(gateway) == {"a": "locked"}
    advance(gateway, 61)
    assert states(gateway) == {"a": "dead"}


def test_items_requeued_by_the_operator_are_assigned(gateway: Gateway, tmp_path: Path) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'dead', reason = 'x'"))
    notice_changes(gateway)
    messages(gateway, ONE)
    assert admin.requeue(tmp_path, NODE, ["a", "b"]) == 2
    notice_changes(gateway)
    assert messages(gateway, ONE) == [Received("item", "a", 1)]
    assert states(gateway) == {"a": "locked", "b": "ready"}


def test_a_purge_by_the_operator_frees_the_worker(gateway: Gateway, tmp_path: Path) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    messages(gateway, ONE)
    assert admin.purge(tmp_path, NODE) == 2
    notice_changes(gateway)
    assert retract(gateway, ONE, "a").error == ("cancel", "item-not-found")
    publish(gateway, "c")
    assert deliveries(gateway, ONE) == ["c"]


def test_attendance_shows_a_worker_with_too_many_bytes(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(Limits(unacknowledged_bytes=64 * 1024))
    set_up(gateway)
    subscribe_worker(gateway, ONE, requests=5)
    try_publish(gateway, "large", text="x" * 70_000)
    publish(gateway, "b")
    assert states(gateway) == {"large": "locked", "b": "ready"}
    (one,) = gateway.tx(lambda tx: overview.attendance(tx, 1, 10))
    assert (one.session, one.in_flight, one.too_many_bytes) == (ONE, 1, True)
