"""Items of nodes: their places, what is kept of them, and what it is counted as."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge.engine import database
from edge.engine.database import Transaction
from edge.features.custody.quota import Usage
from edge.features.pubsub.rules.node import Config
from edge.features.pubsub.store import items, nodes
from tests.helpers.store import Clock, in_memory

PUBLISHER = "pump1@gw.example/fw"


@pytest.fixture
def tx() -> Iterator[Transaction]:
    with in_memory() as connection, database.single(connection, Clock()()) as tx:
        nodes.add(tx, "a", "pump1@gw.example", Config())
        nodes.add(tx, "b", "pump1@gw.example", Config())
        yield tx


def put(tx: Transaction, *names: str, node: int = 1, size: int = 10) -> None:
    for name in names:
        items.put(tx, node, name, PUBLISHER, name.encode(), size)


def ids(found: list[items.Item]) -> list[str]:
    return [item.item for item in found]


def test_an_item_is_kept_as_it_was_published(tx: Transaction) -> None:
    put(tx, "x")
    item = items.get(tx, 1, "x")
    assert item is not None
    assert item[1:] == ("x", PUBLISHER, tx.now.wall, 10, b"x")
    assert items.get(tx, 2, "x") is None


def test_an_id_that_is_published_anew_goes_to_the_end(tx: Transaction) -> None:
    put(tx, "x", "y")
    put(tx, "x", size=30)
    assert ids(items.page(tx, 1, 9)) == ["y", "x"]
    assert items.total(tx) == Usage(2, 40)
    last = items.last(tx, 1)
    assert last is not None
    assert last.item == "x"
    assert last.size == 30


def test_pages_go_forward_and_backward(tx: Transaction) -> None:
    put(tx, *"abcdef")
    put(tx, "other", node=2)
    b, e = items.place(tx, 1, "b"), items.place(tx, 1, "e")
    assert b is not None
    assert ids(items.page(tx, 1, 2)) == ["a", "b"]
    assert ids(items.page(tx, 1, 2, after=b)) == ["c", "d"]
    assert ids(items.page(tx, 1, 2, skip=3)) == ["d", "e"]
    assert ids(items.page(tx, 1, 2, before=e)) == ["c", "d"]
    assert ids(items.page(tx, 1, 2, before=items.END)) == ["e", "f"]
    assert items.earlier(tx, 1, b) == 1
    assert items.names(tx, 1, 2, 3) == ["c", "d", "e"]
    assert items.place(tx, 1, "other") is None


def test_a_page_is_bounded_in_bytes_and_has_one_at_least(tx: Transaction) -> None:
    put(tx, *"abcd")
    assert ids(items.page(tx, 1, 9, max_bytes=25)) == ["a", "b"]
    assert ids(items.page(tx, 1, 9, before=items.END, max_bytes=25)) == ["c", "d"]
    assert ids(items.page(tx, 1, 9, max_bytes=1)) == ["a"]


def test_the_oldest_are_trimmed(tx: Transaction) -> None:
    put(tx, *"abcd")
    assert items.trim(tx, 1, 9) == 0
    assert items.trim(tx, 1, 2) == 2
    assert ids(items.page(tx, 1, 9)) == ["c", "d"]
    assert items.total(tx) == Usage(2, 20)


def test_what_leaves_for_a_new_item_is_told_beforehand(tx: Transaction) -> None:
    put(tx, *"abcd")
    assert items.leaving(tx, 1, "b", 4) == Usage(1, 10)
    assert items.leaving(tx, 1, "new", 4) == Usage(1, 10)
    assert items.leaving(tx, 1, "new", 2) == Usage(3, 30)
    assert items.leaving(tx, 1, "new", 5) == Usage(0, 0)


def test_removing_and_purging_count(tx: Transaction) -> None:
    put(tx, *"abc")
    put(tx, "other", node=2)
    assert items.remove(tx, 1, "b")
    assert not items.remove(tx, 1, "b")
    node = nodes.by_id(tx, 1)
    assert node is not None
    assert (node.items, node.bytes) == (2, 20)
    assert items.purge(tx, 1) == 2
    assert items.total(tx) == Usage(1, 10)


def test_a_node_takes_its_items_along(tx: Transaction) -> None:
    put(tx, *"abc")
    nodes.remove(tx, 1)
    assert items.total(tx) == Usage(0, 0)


def test_items_expire_in_batches(tx: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "EXPIRY_BATCH", 2)
    now = tx.now.service
    for name, expires in (("a", now), ("b", now - 1), ("c", now - 2), ("d", now + 5), ("e", None)):
        items.put(tx, 1, name, PUBLISHER, b"", 10, expires)
    assert tx.due == now - 2
    assert items.expire(tx) == 2
    assert items.first_due(tx) == now
    assert items.expire(tx) == 1
    assert ids(items.page(tx, 1, 9)) == ["d", "e"]
    assert items.first_due(tx) == now + 5


def test_the_charge_is_in_bytes() -> None:
    assert items.charge("ä", "p", b"xyz") == 2 + 1 + 3 + items.OVERHEAD
