"""Messages that are addressed to nodes, at each level of quality of service."""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.people import PUMP, UNTRUSTED, VALVE
from tests.helpers.pubsub import (
    NODE,
    PUBSUB,
    SERVICE,
    create,
    embedded,
    error_of,
    item,
    message_to_node,
    notifications,
    publish,
    reading,
    retrieve,
    send_message,
    stored_ids,
    subscribe,
)
from tests.helpers.store import Gateway, MakeGateway, Reply, acknowledged, assured, deliver

ADDRESS: Final = f"{SERVICE}/{NODE}"
ITEM: Final = f"<item xmlns='{PUBSUB}' id='r1'>{reading(1)}</item>"
FULL: Final = ("wait", "resource-constraint")
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def send(gateway: Gateway, level: int, content: str, node: str = NODE) -> Reply | None:
    return send_message(gateway, PUMP, level, content, node)


@LEVELS
@pytest.mark.parametrize("node", [NODE, "auto/created"])
def test_an_item_in_a_message_is_published(gateway: Gateway, level: int, node: str) -> None:
    subscribe(gateway, VALVE, "#")
    reply = send(gateway, level, ITEM, node)
    assert (reply and (reply.type, reply.payload)) == (("result", None) if level else None)
    (one,) = notifications(gateway, VALVE)
    assert (one.node, one.items) == (node, [("r1", "1")])
    assert stored_ids(gateway, PUMP, node) == ["r1"]
    assert gateway.count("SELECT publisher FROM items") == PUMP


@LEVELS
@pytest.mark.parametrize(
    ("content", "payload"),
    [(reading(8), reading(8)), ("<body>hello</body>", "<body xmlns='jabber:client'>hello</body>")],
)
def test_any_element_is_published_as_the_payload_of_a_new_item(
    gateway: Gateway, level: int, content: str, payload: str
) -> None:
    send(gateway, level, content)
    assert len(stored_ids(gateway, PUMP)) == 1
    assert gateway.count("SELECT body FROM items") == payload.encode()


def test_an_embedded_body_without_namespace_gets_the_one_of_clients(gateway: Gateway) -> None:
    gateway.send(PUMP, acknowledged("<message><body>hello</body></message>", ADDRESS))
    found = retrieve(gateway, PUMP, NODE).content
    assert (found[0][0][0].tag, found[0][0][0].text) == ("{jabber:client}body", "hello")


def test_an_assured_message_is_published_once(gateway: Gateway) -> None:
    send(gateway, 2, reading(1))
    assert gateway.ask(PUMP, deliver("m1", ADDRESS)).type == "result", "a repeated request"
    assert len(stored_ids(gateway, PUMP)) == 1
    send(gateway, 2, reading(1))  # reuses the msgId for a new message
    assert len(stored_ids(gateway, PUMP)) == 2


@LEVELS
def test_elements_about_the_message_are_ignored(gateway: Gateway, level: int) -> None:
    metadata = (
        "<origin-id xmlns='urn:xmpp:sid:0' id='1'/><request xmlns='urn:xmpp:receipts'/>"
        "<store xmlns='urn:xmpp:hints'/>"
    )
    send(gateway, level, metadata + ITEM)
    assert stored_ids(gateway, PUMP) == ["r1"]


@pytest.mark.parametrize(
    "content",
    [
        "<store xmlns='urn:xmpp:hints'/>",
        "",
        reading(1) * 2,
        f"<item xmlns='{PUBSUB}'>{reading(1) * 2}</item>",
        f"<item xmlns='{PUBSUB}' id='{'x' * 257}'/>",
        "21.5" + ITEM,
        ITEM + "21.5",
        f"<item xmlns='{PUBSUB}'>21.5</item>",
        f"<item xmlns='{PUBSUB}'>{reading(1)}21.5</item>",
    ],
)
def test_a_message_must_contain_exactly_one_item(gateway: Gateway, content: str) -> None:
    assert error_of(send(gateway, 0, content)) == ("modify", "not-acceptable")
    replies = [send(gateway, level, content) for level in (1, 2)]
    assert [reply and reply.type for reply in replies] == ["result"] * 2
    assert stored_ids(gateway, PUMP) == []
    assert gateway.count("SELECT count(*) FROM dead") == 2


@LEVELS
def test_the_sender_of_an_unfit_item_gets_an_error(gateway: Gateway, level: int) -> None:
    create(gateway, PUMP, "typed", type="urn:example:other")
    reply = send(gateway, level, reading(1), "typed")
    assert reply is not None
    if level:
        assert reply.type == "result"
        (reply,) = gateway.received(PUMP)
    assert error_of(reply) == ("modify", "not-acceptable")
    assert reply.text == "the payload's namespace differs from the node's pubsub#type"
    assert reply.attrs["from"] == f"{SERVICE}/typed"
    assert stored_ids(gateway, PUMP, "typed") == []
    assert gateway.count("SELECT count(*) FROM dead") == (1 if level else 0)
    assert [event.name for event in gateway.events("system", "unfit")] == ["unfit"]


@LEVELS
@pytest.mark.parametrize(
    ("full", "node", "error"),
    [
        (VALVE, "none", ("cancel", "item-not-found")),
        (VALVE, "mine", ("auth", "forbidden")),
        (UNTRUSTED, NODE, ("cancel", "not-allowed")),
        (PUMP, None, ("modify", "not-acceptable")),
    ],
)
def test_a_message_that_cannot_be_published_is_refused_at_once(
    gateway: Gateway, level: int, full: str, node: str | None, error: tuple[str, str]
) -> None:
    create(gateway, PUMP, "mine")
    assert error_of(send_message(gateway, full, level, reading(1), node)) == error
    assert gateway.count("SELECT count(*) FROM items") == 0


def test_a_message_of_type_error_is_ignored(gateway: Gateway) -> None:
    xml = message_to_node(NODE, reading(1)).replace("<message ", "<message type='error' ")
    assert gateway.send(PUMP, xml) is None
    assert stored_ids(gateway, PUMP) == []


@LEVELS
def test_a_message_that_exceeds_a_limit_is_refused(build: MakeGateway, level: int) -> None:
    gateway = build(items=1)
    send(gateway, 1, reading(1))
    assert error_of(send(gateway, level, reading(2))) == FULL
    assert [event.name for event in gateway.events("system", "items")] == ["items"]


def test_a_held_message_waits_for_capacity(build: MakeGateway) -> None:
    gateway = build(items=1)
    gateway.send(PUMP, assured("m1", embedded(reading(1)), ADDRESS))
    send(gateway, 1, ITEM)
    assert error_of(gateway.send(PUMP, deliver("m1", ADDRESS))) == FULL
    assert gateway.count("SELECT count(*) FROM held") == 1
    gateway.tx(lambda tx: tx.run("DELETE FROM items"))
    assert gateway.ask(PUMP, deliver("m1", ADDRESS)).type == "result"
    assert len(stored_ids(gateway, PUMP)) == 1


def test_a_held_message_for_a_deleted_node_becomes_a_dead_letter(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m1", embedded(reading(1)), ADDRESS))
    gateway.tx(lambda tx: tx.run("DELETE FROM nodes"))
    assert error_of(gateway.ask(PUMP, deliver("m1", ADDRESS))) == ("cancel", "item-not-found")
    assert gateway.count("SELECT count(*) FROM dead") == 1


@LEVELS
def test_a_message_to_a_queue_node_is_enqueued(gateway: Gateway, level: int) -> None:
    create(gateway, PUMP, "work", queueing="1")
    send(gateway, level, ITEM, "work")
    found = gateway.connection.execute("SELECT item, publisher FROM queue_items").fetchall()
    assert found == [("r1", PUMP)]


@LEVELS
def test_a_message_does_not_replace_a_locked_item(gateway: Gateway, level: int) -> None:
    create(gateway, PUMP, "work", queueing="1")
    send(gateway, 1, ITEM, "work")
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'locked'"))
    other = ITEM.replace(reading(1), reading(2))
    assert error_of(send(gateway, level, other, "work")) == ("cancel", "conflict")
    assert gateway.count("SELECT count(*) FROM queue_items") == 1
    assert refused_by(gateway) == ["item_exists"]


@LEVELS
def test_a_message_does_not_replace_an_item_of_another(gateway: Gateway, level: int) -> None:
    create(gateway, VALVE, "open", publish_model="open")
    publish(gateway, VALVE, "open", item("r1", reading(1)))
    assert error_of(send(gateway, level, ITEM, "open")) == ("auth", "forbidden")
    assert refused_by(gateway) == ["item_exists"]


def refused_by(gateway: Gateway) -> list[str | None]:
    """Return the rules under which refusals were logged."""
    return [event.name for event in gateway.events("system") if event.kind == "limit"]
