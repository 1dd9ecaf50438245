"""What an operator does to a queue beside a running gateway: it sees it, and does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.features.queues.store import overview
from edge.ops import queue as admin
from tests.helpers.queues import (
    NODE,
    ONE,
    PUBLISHER,
    TWO,
    Word,
    given,
    offer,
    prepare,
    publish,
    retract,
    states,
    told,
    wait,
    work,
)
from tests.helpers.store import Gateway, new_database


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(new_database(tmp_path))
    prepare(made)
    yield made
    made.close()


def look(gateway: Gateway) -> None:
    """See what another process has changed."""
    gateway.tx(gateway.router.run_external_change)


def test_an_item_is_taken_from_a_worker_and_given_to_another(
    gateway: Gateway, tmp_path: Path
) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    assert given(gateway, ONE) == ["a"]
    work(gateway, TWO)
    admin.unlock(tmp_path, NODE, "a")
    look(gateway)
    assert told(gateway, ONE) == [Word("unlock", "a")]
    assert told(gateway, TWO) == [Word("item", "a", 1)]
    assert retract(gateway, ONE, "a").error == ("cancel", "conflict")
    assert retract(gateway, TWO, "a").type == "result"


def test_what_was_unlocked_without_a_gateway_is_given_out_when_one_starts(
    gateway: Gateway, tmp_path: Path
) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    gateway.crash()
    admin.unlock(tmp_path, NODE, "a")
    gateway.bind(TWO)
    work(gateway, TWO)
    gateway.ring()
    assert told(gateway, TWO) == [Word("item", "a", 1)]


def test_an_item_at_its_last_delivery_is_not_dead_by_that(gateway: Gateway, tmp_path: Path) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    for _ in range(4):
        wait(gateway, 61)
    admin.unlock(tmp_path, NODE, "a")
    look(gateway)
    assert states(gateway) == {"a": "locked"}
    wait(gateway, 61)
    assert states(gateway) == {"a": "dead"}


def test_dead_items_wait_again_and_go_to_who_is_there(gateway: Gateway, tmp_path: Path) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'dead', reason = 'x'"))
    look(gateway)
    told(gateway, ONE)
    assert admin.requeue(tmp_path, NODE, ["a", "b"]) == 2
    look(gateway)
    assert told(gateway, ONE) == [Word("item", "a", 1)]
    assert states(gateway) == {"a": "locked", "b": "ready"}


def test_a_worker_whose_items_are_deleted_has_room_again(gateway: Gateway, tmp_path: Path) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    told(gateway, ONE)
    assert admin.purge(tmp_path, NODE) == 2
    look(gateway)
    assert retract(gateway, ONE, "a").error == ("cancel", "item-not-found")
    publish(gateway, "c", by=PUBLISHER)
    assert given(gateway, ONE) == ["c"]


def test_a_worker_that_has_too_many_bytes_is_seen(tmp_path: Path) -> None:
    made = Gateway(new_database(tmp_path), Limits(unacknowledged_bytes=64 * 1024))
    with closing(made) as gateway:
        prepare(gateway)
        work(gateway, ONE, requests=5)
        offer(gateway, "large", text="x" * 70_000)
        publish(gateway, "b")
        assert states(gateway) == {"large": "locked", "b": "ready"}
        (one,) = gateway.tx(lambda tx: overview.attendance(tx, 1, 10))
        assert (one.session, one.in_flight, one.too_many_bytes) == (ONE, 1, True)
