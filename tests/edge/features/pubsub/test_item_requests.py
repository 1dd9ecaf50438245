"""Requests to retrieve and delete items (XEP-0060, sections 6.5 and 7.2; XEP-0059)."""

from __future__ import annotations

import pytest

from tests.helpers.people import PUMP, UNTRUSTED, VALVE
from tests.helpers.pubsub import (
    NODE,
    create,
    element,
    error_of,
    item,
    item_ids,
    notifications,
    publish,
    reading,
    refusal,
    result_set,
    retract,
    retrieve,
    stored_ids,
    subscribe,
)
from tests.helpers.store import Gateway, MakeGateway

UNSUPPORTED = ("feature-not-implemented", "unsupported")


@pytest.fixture
def gateway(build_empty: MakeGateway) -> Gateway:
    """A gateway on which the pump owns a node with five items."""
    gateway = build_empty(unacknowledged_bytes=64 * 1024)
    create(gateway, PUMP, NODE, publish_model="open", max_items="200")
    for number in range(5):
        publish(gateway, PUMP, NODE, item(f"i{number}", reading(number)))
    return gateway


def test_items_are_retrieved_in_the_order_of_publication(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE)
    assert item_ids(reply) == ["i0", "i1", "i2", "i3", "i4"]
    assert result_set(reply) is None
    assert reply.content[0].get("node") == NODE
    assert [one[0].get("watts") for one in reply.content[0]] == ["0", "1", "2", "3", "4"]


def test_max_items_retrieves_the_newest_items_with_a_result_set(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE, max_items="2")
    assert item_ids(reply) == ["i3", "i4"]
    assert result_set(reply) == ("i3", "3", "i4", "5")


def test_items_are_retrieved_by_id(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE, item("i3") + item("none") + item("i1") + item("i3"))
    assert item_ids(reply) == ["i3", "i1"]
    assert error_of(retrieve(gateway, VALVE, NODE, item("none"))) == ("cancel", "item-not-found")


@pytest.mark.parametrize(
    ("rsm", "found", "expected"),
    [
        ("<max>2</max>", ["i0", "i1"], ("i0", "0", "i1", "5")),
        ("<max>2</max><after>i1</after>", ["i2", "i3"], ("i2", "2", "i3", "5")),
        ("<max>2</max><before/>", ["i3", "i4"], ("i3", "3", "i4", "5")),
        ("<max>2</max><before>i3</before>", ["i1", "i2"], ("i1", "1", "i2", "5")),
        ("<max>2</max><index>3</index>", ["i3", "i4"], ("i3", "3", "i4", "5")),
        ("<max>0</max>", [], (None, None, None, "5")),
        ("<after>i4</after>", [], (None, None, None, "5")),
        ("<before>i0</before>", [], (None, None, None, "5")),
        ("<max>9</max>", ["i0", "i1", "i2", "i3", "i4"], ("i0", "0", "i4", "5")),
    ],
)
def test_items_are_retrieved_in_pages(
    gateway: Gateway, rsm: str, found: list[str], expected: tuple[str | None, ...]
) -> None:
    reply = retrieve(gateway, VALVE, NODE, rsm=rsm)
    assert item_ids(reply) == found
    assert result_set(reply) == expected


@pytest.mark.parametrize("rsm", ["<after>none</after>", "<before>none</before>"])
def test_a_page_needs_an_existing_item(gateway: Gateway, rsm: str) -> None:
    assert error_of(retrieve(gateway, VALVE, NODE, rsm=rsm)) == ("cancel", "item-not-found")


def test_an_answer_is_limited_in_number(gateway: Gateway) -> None:
    for number in range(5, 105):
        publish(gateway, PUMP, NODE, item(f"i{number}"))
    reply = retrieve(gateway, VALVE, NODE)
    assert len(item_ids(reply)) == 100
    assert result_set(reply) == ("i5", "5", "i104", "105")


def test_an_answer_is_limited_in_bytes_and_pages_return_all_items(gateway: Gateway) -> None:
    large = f"<x xmlns='urn:x'>{'y' * 20_000}</x>"
    for number in range(5):
        publish(gateway, PUMP, NODE, item(f"i{number}", large))
    assert item_ids(retrieve(gateway, VALVE, NODE)) == ["i4"]
    by_id = retrieve(gateway, VALVE, NODE, item("i0") + item("none") + item("i1"))
    assert (item_ids(by_id), result_set(by_id)) == (["i0"], ("i0", "0", "i0", "2"))
    found: list[str] = []
    rsm = "<max>10</max>"
    while page := item_ids(retrieve(gateway, VALVE, NODE, rsm=rsm)):
        found += page
        rsm = f"<max>10</max><after>{page[-1]}</after>"
    assert found == ["i0", "i1", "i2", "i3", "i4"]


@pytest.mark.parametrize(
    ("content", "conditions"),
    [
        ("<items/>", ("bad-request", "nodeid-required")),
        (element("items", node="none"), ("item-not-found", "")),
        (element("items", item(), node=NODE), ("bad-request", "")),
        (element("items", item("x") * 101, node=NODE), ("bad-request", "")),
        (element("items", item("x") + "<other/>", node=NODE), ("bad-request", "")),
        (element("items", node=NODE) + "<other/>", ("bad-request", "")),
        (element("items", node=NODE, max_items="-1"), ("bad-request", "")),
        (element("items", node="shut"), ("not-allowed", "closed-node")),
        (element("items", node="work"), UNSUPPORTED),
        (element("items", node="transient"), UNSUPPORTED),
    ],
)
def test_invalid_retrieval(gateway: Gateway, content: str, conditions: tuple[str, str]) -> None:
    create(gateway, PUMP, "shut", access_model="whitelist")
    create(gateway, PUMP, "work", queueing="1")
    create(gateway, PUMP, "transient", persist_items="0")
    assert refusal(gateway, VALVE, content, "get")[1:] == conditions


def test_an_untrusted_account_retrieves_nothing(gateway: Gateway) -> None:
    assert error_of(retrieve(gateway, UNTRUSTED, NODE)) == ("auth", "forbidden")


def test_a_deleted_item_is_announced(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    notifications(gateway, VALVE)
    assert retract(gateway, PUMP, NODE, "i2").type == "result"
    assert stored_ids(gateway, PUMP) == ["i0", "i1", "i3", "i4"]
    (one,) = notifications(gateway, VALVE)
    assert (one.element, one.node, one.items) == ("items", NODE, [("i2", "-None")])


@pytest.mark.parametrize(
    ("notify_retract", "notify", "times"),
    [("1", None, 1), ("1", "0", 0), ("0", None, 0), ("0", "true", 1), ("0", "false", 0)],
)
def test_notify_overrides_the_nodes_configuration(
    gateway: Gateway, notify_retract: str, notify: str | None, times: int
) -> None:
    create(gateway, PUMP, "n", notify_retract=notify_retract, send_last_published_item="never")
    publish(gateway, PUMP, "n", item("x"))
    subscribe(gateway, VALVE, "n")
    retract(gateway, PUMP, "n", "x", notify=notify)
    assert len(notifications(gateway, VALVE)) == times


def test_a_publisher_deletes_its_own_items_and_an_owner_all(gateway: Gateway) -> None:
    publish(gateway, VALVE, NODE, item("mine"))
    assert error_of(retract(gateway, VALVE, NODE, "i0")) == ("auth", "forbidden")
    assert retract(gateway, VALVE, NODE, "mine").type == "result"
    assert error_of(retract(gateway, VALVE, NODE, "mine")) == ("cancel", "item-not-found")
    publish(gateway, VALVE, NODE, item("mine"))
    assert retract(gateway, PUMP, NODE, "mine").type == "result"


@pytest.mark.parametrize(
    ("content", "conditions"),
    [
        ("<retract/>", ("bad-request", "nodeid-required")),
        (element("retract", item("x"), node="none"), ("item-not-found", "")),
        (element("retract", node=NODE), ("bad-request", "item-required")),
        (element("retract", item(), node=NODE), ("bad-request", "item-required")),
        (element("retract", item("i1") + "<other/>", node=NODE), ("bad-request", "")),
        (element("retract", item("i1"), node=NODE) * 2, ("bad-request", "")),
        (element("retract", item("i1") * 2, node=NODE), ("not-acceptable", "max-items-exceeded")),
        (element("retract", item("none"), node=NODE), ("item-not-found", "")),
        (element("retract", item("x"), node="transient"), UNSUPPORTED),
    ],
)
def test_invalid_deletion(gateway: Gateway, content: str, conditions: tuple[str, str]) -> None:
    create(gateway, PUMP, "transient", persist_items="0")
    assert refusal(gateway, PUMP, content)[1:] == conditions


def test_only_queues_accept_a_retract_of_type_get(gateway: Gateway) -> None:
    assert error_of(retract(gateway, PUMP, NODE, "i1", type_="get")) == ("modify", "bad-request")
    create(gateway, PUMP, "work", queueing="1")
    publish(gateway, PUMP, "work", item("j"))
    assert retract(gateway, PUMP, "work", "j", type_="get").type == "result"
    assert gateway.count("SELECT count(*) FROM queue_items") == 0
