"""Items are retrieved, page by page, and deleted: XEP-0060, sections 6.5 and 7.2; XEP-0059."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from tests.helpers.people import APART, PUMP, VALVE, appear, provision
from tests.helpers.publishing import (
    ids,
    item,
    part,
    publish,
    reading,
    refused,
    retract,
    retrieve,
    specific,
    told,
)
from tests.helpers.store import Gateway, new_database
from tests.helpers.subscribing import PUBSUB, create, element, request, subscribe

NODE = "plant/energy"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A node of the pump's, which has five items."""
    made = Gateway(new_database(tmp_path), Limits(unacknowledged_bytes=64 * 1024))
    provision(made)
    appear(made, VALVE)
    create(made, PUMP, NODE, publish_model="open", max_items="200")
    for number in range(5):
        publish(made, PUMP, NODE, item(f"i{number}", reading(number)))
    yield made
    made.close()


# Retrieving


def test_all_items_come_in_the_order_of_their_publication(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE)
    assert ids(reply) == ["i0", "i1", "i2", "i3", "i4"]
    assert part(reply) is None
    assert reply.payload is not None
    assert reply.payload[0].get("node") == NODE
    assert [one[0].get("watts") for one in reply.payload[0]] == ["0", "1", "2", "3", "4"]


def test_the_newest_are_told_to_be_a_part(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE, max_items="2")
    assert ids(reply) == ["i3", "i4"]
    assert part(reply) == ("i3", "3", "i4", "5")


def test_items_are_asked_for_by_their_ids(gateway: Gateway) -> None:
    reply = retrieve(gateway, VALVE, NODE, item("i3") + item("none") + item("i1") + item("i3"))
    assert ids(reply) == ["i3", "i1"]
    assert refused(retrieve(gateway, VALVE, NODE, item("none"))) == ("cancel", "item-not-found")


@pytest.mark.parametrize(
    ("rsm", "found", "told"),
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
def test_a_result_set_pages_through_the_items(
    gateway: Gateway, rsm: str, found: list[str], told: tuple[str | None, ...]
) -> None:
    reply = retrieve(gateway, VALVE, NODE, rsm=rsm)
    assert ids(reply) == found
    assert part(reply) == told


@pytest.mark.parametrize("rsm", ["<after>none</after>", "<before>none</before>"])
def test_a_page_begins_at_an_item_that_is_there(gateway: Gateway, rsm: str) -> None:
    assert refused(retrieve(gateway, VALVE, NODE, rsm=rsm)) == ("cancel", "item-not-found")


def test_an_answer_is_bounded_in_number(gateway: Gateway) -> None:
    for number in range(5, 105):
        publish(gateway, PUMP, NODE, item(f"i{number}"))
    reply = retrieve(gateway, VALVE, NODE)
    assert len(ids(reply)) == 100
    assert part(reply) == ("i5", "5", "i104", "105")


def test_an_answer_is_bounded_in_bytes_and_paging_gets_all(gateway: Gateway) -> None:
    large = f"<x xmlns='urn:x'>{'y' * 20_000}</x>"
    for number in range(5):
        publish(gateway, PUMP, NODE, item(f"i{number}", large))
    assert ids(retrieve(gateway, VALVE, NODE)) == ["i4"]
    assert ids(retrieve(gateway, VALVE, NODE, item("i0") + item("i1"))) == ["i0"]
    found: list[str] = []
    rsm = "<max>10</max>"
    while page := ids(retrieve(gateway, VALVE, NODE, rsm=rsm)):
        found += page
        rsm = f"<max>10</max><after>{page[-1]}</after>"
    assert found == ["i0", "i1", "i2", "i3", "i4"]


@pytest.mark.parametrize(
    ("content", "conditions"),
    [
        ("<items/>", ["bad-request", "nodeid-required"]),
        (element("items", node="none"), ["item-not-found"]),
        (element("items", item(), node=NODE), ["bad-request"]),
        (element("items", item("x") * 101, node=NODE), ["bad-request"]),
        (element("items", node=NODE, max_items="-1"), ["bad-request"]),
        (element("items", node="shut"), ["not-allowed", "closed-node"]),
        (element("items", node="work"), ["feature-not-implemented", "unsupported"]),
        (element("items", node="told"), ["feature-not-implemented", "unsupported"]),
    ],
)
def test_what_cannot_be_retrieved_is_refused(
    gateway: Gateway, content: str, conditions: list[str]
) -> None:
    create(gateway, PUMP, "shut", access_model="whitelist")
    create(gateway, PUMP, "work", queueing="1")
    create(gateway, PUMP, "told", persist_items="0")
    assert specific(gateway, VALVE, request(content, "get")) == conditions


def test_who_may_not_use_the_service_retrieves_nothing(gateway: Gateway) -> None:
    assert refused(retrieve(gateway, APART, NODE)) == ("auth", "forbidden")


def test_an_empty_node_has_no_items_and_says_so(gateway: Gateway) -> None:
    create(gateway, PUMP, "empty")
    reply = retrieve(gateway, VALVE, "empty")
    assert ids(reply) == []
    assert part(reply) is None


# Deleting


def test_an_item_is_deleted_and_told(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    told(gateway, VALVE)
    assert retract(gateway, PUMP, NODE, "i2").type == "result"
    assert ids(retrieve(gateway, PUMP, NODE)) == ["i0", "i1", "i3", "i4"]
    (one,) = told(gateway, VALVE)
    assert (one.of, one.node, one.items) == ("items", NODE, [("i2", "-None")])


@pytest.mark.parametrize(
    ("notify_retract", "notify", "times"),
    [("1", None, 1), ("1", "0", 0), ("0", None, 0), ("0", "true", 1), ("0", "false", 0)],
)
def test_the_request_says_whether_to_tell_or_else_the_node(
    gateway: Gateway, notify_retract: str, notify: str | None, times: int
) -> None:
    create(gateway, PUMP, "n", notify_retract=notify_retract, send_last_published_item="never")
    publish(gateway, PUMP, "n", item("x"))
    subscribe(gateway, VALVE, "n")
    retract(gateway, PUMP, "n", "x", notify=notify)
    assert len(told(gateway, VALVE)) == times


def test_a_publisher_deletes_its_own_and_an_owner_all(gateway: Gateway) -> None:
    publish(gateway, VALVE, NODE, item("mine"))
    assert refused(retract(gateway, VALVE, NODE, "i0")) == ("auth", "forbidden")
    assert retract(gateway, VALVE, NODE, "mine").type == "result"
    assert refused(retract(gateway, VALVE, NODE, "mine")) == ("cancel", "item-not-found")
    publish(gateway, VALVE, NODE, item("mine"))
    assert retract(gateway, PUMP, NODE, "mine").type == "result"


@pytest.mark.parametrize(
    ("content", "conditions"),
    [
        ("<retract/>", ["bad-request", "nodeid-required"]),
        (element("retract", item("x"), node="none"), ["item-not-found"]),
        (element("retract", node=NODE), ["bad-request", "item-required"]),
        (element("retract", item(), node=NODE), ["bad-request", "item-required"]),
        (element("retract", item("i1") * 2, node=NODE), ["not-acceptable", "max-items-exceeded"]),
        (element("retract", item("none"), node=NODE), ["item-not-found"]),
        (element("retract", item("x"), node="told"), ["feature-not-implemented", "unsupported"]),
    ],
)
def test_what_cannot_be_deleted_is_refused(
    gateway: Gateway, content: str, conditions: list[str]
) -> None:
    create(gateway, PUMP, "told", persist_items="0")
    assert specific(gateway, PUMP, request(content)) == conditions


def test_only_queues_take_a_get(gateway: Gateway) -> None:
    assert refused(retract(gateway, PUMP, NODE, "i1", type_="get")) == ("modify", "bad-request")
    create(gateway, PUMP, "work", queueing="1")
    publish(gateway, PUMP, "work", item("j"))
    assert retract(gateway, PUMP, "work", "j", type_="get").type == "result"
    assert gateway.count("SELECT count(*) FROM queue_items") == 0


def test_discovery_tells_what_is_done_with_items(gateway: Gateway) -> None:
    query = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
    reply = gateway.send(VALVE, f"<iq type='get' id='d' to='pubsub.gw.example'>{query}</iq>")
    assert reply is not None
    assert reply.payload is not None
    found = {one.get("var") for one in reply.payload}
    wanted = "publish item-ids publish-options retrieve-items persistent-items delete-items"
    assert {f"{PUBSUB}#{name}" for name in wanted.split()} <= found
