"""Items in the database: their order, pages, usage and expiry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES
from edge.engine.rules.quota import StoreUsage, Usage
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import items, nodes
from tests.helpers.store import Clock, in_memory

PUBLISHER = "pump1@gw.example/fw"


@pytest.fixture
def tx() -> Iterator[Transaction]:
    with in_memory() as connection, database.transaction(connection, Clock()()) as tx:
        nodes.add(tx, "a", "pump1@gw.example", NodeConfig())
        nodes.add(tx, "b", "pump1@gw.example", NodeConfig())
        yield tx


def put(tx: Transaction, *names: str, node: int = 1, size: int = 10) -> None:
    for name in names:
        items.put(tx, node, name, PUBLISHER, name.encode(), size)


def ids(found: list[items.StoredItem]) -> list[str]:
    return [item.id for item in found]


def test_an_item_is_stored_as_published(tx: Transaction) -> None:
    put(tx, "x")
    item = items.get(tx, 1, "x")
    assert item is not None
    assert item[1:] == ("x", PUBLISHER, tx.now.wall, 10, b"x", None, NO_ATTRIBUTES)
    assert items.get(tx, 2, "x") is None


def test_an_item_published_again_moves_to_the_end(tx: Transaction) -> None:
    put(tx, "x", "y")
    put(tx, "x", size=30)
    assert ids(items.page(tx, 1, 9)) == ["y", "x"]
    assert items.total(tx) == Usage(2, 40)
    last = items.last(tx, 1)
    assert last is not None
    assert last.id == "x"
    assert last.size == 30


def test_items_of_many_nodes_are_replaced_without_statements(tx: Transaction) -> None:
    names = [f"n{number}" for number in range(600)]
    added = [nodes.add(tx, name, "pump1@gw.example", NodeConfig()) for name in names]
    for node in added:
        assert nodes.get(tx, node.name) == node
        put(tx, "x", node=node.id)
    assert items.total(tx) == Usage(600, 600 * 10)
    in_memory_only = Transaction(None, tx.now, tx.cache)
    for node in added:
        assert nodes.get(in_memory_only, node.name) == node._replace(items=1, bytes=10)
        put(in_memory_only, "x", node=node.id, size=20)
    assert items.total(in_memory_only) == Usage(600, 600 * 20)


def test_the_number_of_cached_item_ids_is_limited(tx: Transaction) -> None:
    names = [f"i{number}" for number in range(items.CACHED_ITEMS)]
    for number in range(items.CACHED // items.CACHED_ITEMS + 5):
        node = nodes.add(tx, f"n{number}", "pump1@gw.example", NodeConfig())
        put(tx, *names, node=node.id)
        cached = tx.cache[items._CACHE].by_node.values()
        assert sum(len(known) for known in cached) <= items.CACHED
    assert items.author(tx, 3, "i1") == "pump1@gw.example"


def test_pages_go_forward_and_backward(tx: Transaction) -> None:
    put(tx, *"abcdef")
    put(tx, "other", node=2)
    b, e = items.position(tx, 1, "b"), items.position(tx, 1, "e")
    assert b is not None
    assert ids(items.page(tx, 1, 2)) == ["a", "b"]
    assert ids(items.page(tx, 1, 2, after=b)) == ["c", "d"]
    assert ids(items.page(tx, 1, 2, skip=3)) == ["d", "e"]
    assert ids(items.page(tx, 1, 2, before=e)) == ["c", "d"]
    assert ids(items.page(tx, 1, 2, before=items.LAST_POSITION)) == ["e", "f"]
    assert items.count_before(tx, 1, b) == 1
    assert items.item_ids(tx, 1, 2, 3) == ["c", "d", "e"]
    assert items.position(tx, 1, "other") is None


def test_a_page_is_limited_in_bytes_but_has_at_least_one_item(tx: Transaction) -> None:
    put(tx, *"abcd")
    assert ids(items.page(tx, 1, 9, max_bytes=25)) == ["a", "b"]
    assert ids(items.page(tx, 1, 9, before=items.LAST_POSITION, max_bytes=25)) == ["c", "d"]
    assert ids(items.page(tx, 1, 9, max_bytes=1)) == ["a"]


def test_trim_removes_the_oldest_items(tx: Transaction) -> None:
    put(tx, *"abcd")
    assert items.trim(tx, 1, 9) == 0
    assert items.trim(tx, 1, 2) == 2
    assert ids(items.page(tx, 1, 9)) == ["c", "d"]
    assert items.total(tx) == Usage(2, 20)


def test_usage_replaced_by_a_new_item(tx: Transaction) -> None:
    put(tx, *"abcd")

    def replaced(item: str, max_items: int, source: str = "pump1@gw.example") -> StoreUsage:
        return items.usage_replaced(tx, 1, item, max_items, source)

    assert replaced("b", 4) == StoreUsage(Usage(1, 10), Usage(1, 10))
    assert replaced("new", 4) == StoreUsage(Usage(1, 10), Usage(1, 10))
    assert replaced("new", 2) == StoreUsage(Usage(3, 30), Usage(3, 30))
    assert replaced("new", 5) == StoreUsage(Usage(), Usage())
    assert replaced("b", 4, "pump2@gw.example") == StoreUsage(Usage(), Usage(1, 10))


def test_removing_and_purging_update_the_counts(tx: Transaction) -> None:
    put(tx, *"abc")
    put(tx, "other", node=2)
    assert items.remove(tx, 1, "b")
    assert not items.remove(tx, 1, "b")
    node = nodes.by_id(tx, 1)
    assert node is not None
    assert (node.items, node.bytes) == (2, 20)
    assert items.purge(tx, 1) == 2
    assert items.total(tx) == Usage(1, 10)


def test_items_expire_in_batches(tx: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "EXPIRY_BATCH", 2)
    now = tx.now.service
    for name, expires in (("a", now), ("b", now - 1), ("c", now - 2), ("d", now + 5), ("e", None)):
        items.put(tx, 1, name, PUBLISHER, b"", 10, expires)
    assert tx.due == now - 2
    assert items.expire(tx) == 2
    assert items.next_expiry(tx) == now
    assert items.expire(tx) == 1
    assert ids(items.page(tx, 1, 9)) == ["d", "e"]
    assert items.next_expiry(tx) == now + 5


def test_the_counts_follow_items_that_take_the_rows_of_others(tx: Transaction) -> None:
    put(tx, "x")
    put(tx, "y", "z", node=2)
    tx.write()
    put(tx, "x", size=30)
    items.put(tx, 2, "new", PUBLISHER, b"", 4, excess=1)
    assert ids(items.page(tx, 2, 9)) == ["z", "new"]
    assert tx.rows("SELECT items, bytes FROM nodes ORDER BY id") == [(1, 30), (2, 14)]
    assert tx.rows("SELECT * FROM item_sources") == [("pump1@gw.example", 3, 44)]
    assert tx.rows("SELECT items, bytes FROM items_total") == [(3, 44)]


def test_an_item_of_another_author_is_counted_anew(tx: Transaction) -> None:
    put(tx, "x")
    tx.write()
    items.put(tx, 1, "x", "valve@gw.example/fw", b"", 7)
    assert tx.rows("SELECT * FROM item_sources") == [("valve@gw.example", 1, 7)]


def test_the_position_of_a_replacing_item_is_not_used_again(tx: Transaction) -> None:
    for size in (10, 20):
        put(tx, "x", size=size)
        tx.write()
    last = items.position(tx, 1, "x")
    items.remove(tx, 1, "x")
    tx.cache.clear()  # as after a restart
    put(tx, "y")
    position = items.position(tx, 1, "y")
    assert last is not None
    assert position is not None
    assert position > last
