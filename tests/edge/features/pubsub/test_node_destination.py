"""Nodes as the destination of messages at every level, and the service, which is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, make_available, provision
from tests.helpers.pubsub import (
    SERVICE,
    create,
    embedded,
    item_ids,
    message_to_node,
    notifications,
    reading,
    retrieve,
    subscribe,
)
from tests.helpers.store import QOS, Gateway, Reply, acknowledged, assured, deliver, new_database

NODE = "plant/energy"
AT = f"{SERVICE}/{NODE}"
NAMED = f"<item xmlns='http://jabber.org/protocol/pubsub' id='r1'>{reading(1)}</item>"


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Make gateways with these limits, where the pump has a node that is open to all."""
    made: list[Gateway] = []

    def build(**limits: float) -> Gateway:
        gateway = Gateway(
            new_database(tmp_path),
            Limits(**limits),  # type: ignore[arg-type]
            pubsub=Pubsub(auto_create=["auto/#"]),
        )
        made.append(gateway)
        provision(gateway)
        make_available(gateway, VALVE)
        create(gateway, PUMP, NODE, publish_model="open")
        return gateway

    yield build
    for gateway in made:
        gateway.close()


@pytest.fixture
def gateway(build: Callable[..., Gateway]) -> Gateway:
    """One with its defaults."""
    return build()


def send(gateway: Gateway, level: int, content: str, full: str = PUMP, to: str = AT) -> Reply:
    """Send a message to a node at a level; returns the answer to its last step, if any."""
    if level == 0:
        reply = gateway.send(full, f"<message to='{to}' id='m'>{content}</message>")
    elif level == 1:
        reply = gateway.send(full, acknowledged(embedded(content), to))
    else:
        reply = gateway.send(full, assured("m1", embedded(content), to))
        if reply is not None and reply.error is None:
            reply = gateway.send(full, deliver("m1", to))
    return reply  # type: ignore[return-value]


def kept(gateway: Gateway, node: str = NODE) -> list[str]:
    return item_ids(retrieve(gateway, PUMP, node))


LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


@LEVELS
def test_a_message_is_published_at_each_level(gateway: Gateway, level: int) -> None:
    subscribe(gateway, VALVE, NODE)
    reply = send(gateway, level, NAMED)
    if level:
        assert (reply.type, reply.payload) == ("result", None)
    else:
        assert reply is None
    assert [one.items for one in notifications(gateway, VALVE)] == [[("r1", "1")]]
    assert kept(gateway) == ["r1"]
    publisher = gateway.count("SELECT publisher FROM items")
    assert publisher == PUMP


@LEVELS
def test_any_element_is_a_payload_and_gets_an_id(gateway: Gateway, level: int) -> None:
    send(gateway, level, reading(8))
    assert len(kept(gateway)) == 1
    body = gateway.count("SELECT body FROM items")
    assert body == reading(8).encode()


@LEVELS
def test_a_body_keeps_its_namespace(gateway: Gateway, level: int) -> None:
    send(gateway, level, "<body>hello</body>")
    assert gateway.count("SELECT body FROM items") == b"<body xmlns='jabber:client'>hello</body>"


def test_a_body_in_a_message_of_the_exchanges_namespace_is_a_clients(gateway: Gateway) -> None:
    gateway.send(PUMP, acknowledged("<message><body>hello</body></message>", AT))
    found = retrieve(gateway, PUMP, NODE).payload
    assert found is not None
    assert (found[0][0][0].tag, found[0][0][0].text) == ("{jabber:client}body", "hello")


def test_an_item_may_have_no_payload(gateway: Gateway) -> None:
    send(gateway, 1, "<item xmlns='http://jabber.org/protocol/pubsub' id='bare'/>")
    assert kept(gateway) == ["bare"]


def test_an_assured_message_is_published_once(gateway: Gateway) -> None:
    send(gateway, 2, reading(1))
    assert gateway.send(PUMP, deliver("m1", AT)).type == "result"  # type: ignore[union-attr]
    assert len(kept(gateway)) == 1
    send(gateway, 2, reading(1))  # the msgId is used again: a new message
    assert len(kept(gateway)) == 2


@LEVELS
def test_what_clients_say_of_the_message_itself_is_passed_over(
    gateway: Gateway, level: int
) -> None:
    about = (
        "<origin-id xmlns='urn:xmpp:sid:0' id='1'/><request xmlns='urn:xmpp:receipts'/>"
        "<store xmlns='urn:xmpp:hints'/>"
    )
    send(gateway, level, about + NAMED)
    assert kept(gateway) == ["r1"]


UNREADABLE = [
    "<store xmlns='urn:xmpp:hints'/>",
    "",
    reading(1) + reading(2),
    f"<item xmlns='http://jabber.org/protocol/pubsub'>{reading(1) * 2}</item>",
    f"<item xmlns='http://jabber.org/protocol/pubsub' id='{'x' * 257}'/>",
]


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_is_no_item_is_refused_or_kept_as_dead(gateway: Gateway, content: str) -> None:
    assert send(gateway, 0, content).error == ("modify", "not-acceptable")
    assert send(gateway, 1, content).type == "result"
    assert send(gateway, 2, content).type == "result"
    assert kept(gateway) == []
    assert gateway.count("SELECT count(*) FROM dead") == 2


@LEVELS
def test_what_the_node_does_not_take_is_kept_as_dead_and_told(gateway: Gateway, level: int) -> None:
    create(gateway, PUMP, "typed", type="urn:example:other")
    send(gateway, level, reading(1), to=f"{SERVICE}/typed")
    assert kept(gateway, "typed") == []
    assert gateway.count("SELECT count(*) FROM dead") == (1 if level else 0)
    assert [event.name for event in gateway.events("system", "unfit")] == ["unfit"]


@LEVELS
@pytest.mark.parametrize(
    ("node", "error"),
    [("none", ("cancel", "item-not-found")), ("mine", ("auth", "forbidden"))],
)
def test_where_nothing_can_be_published_is_told_at_once(
    gateway: Gateway, level: int, node: str, error: tuple[str, str]
) -> None:
    create(gateway, PUMP, "mine")
    reply = send(gateway, level, reading(1), VALVE, f"{SERVICE}/{node}")
    assert reply.error == error
    assert gateway.count("SELECT count(*) FROM items") == 0


@LEVELS
def test_who_is_not_trusted_is_refused(gateway: Gateway, level: int) -> None:
    assert send(gateway, level, reading(1), UNTRUSTED).error == ("cancel", "not-allowed")


@LEVELS
def test_the_service_takes_no_messages(gateway: Gateway, level: int) -> None:
    reply = send(gateway, level, reading(1), to=SERVICE)
    assert reply.error == ("modify", "not-acceptable")
    assert "node" in reply.text


def test_an_error_is_never_answered(gateway: Gateway) -> None:
    xml = message_to_node(NODE, reading(1)).replace("<message ", "<message type='error' ")
    assert gateway.send(PUMP, xml) is None
    assert kept(gateway) == []


@LEVELS
def test_a_node_makes_itself_for_a_message(gateway: Gateway, level: int) -> None:
    send(gateway, level, NAMED, to=f"{SERVICE}/auto/x")
    assert kept(gateway, "auto/x") == ["r1"]


@LEVELS
def test_beyond_a_bound_the_sender_waits(build: Callable[..., Gateway], level: int) -> None:
    gateway = build(items=1)
    send(gateway, 1, reading(1))
    reply = send(gateway, level, reading(2))
    assert reply.error == ("wait", "resource-constraint")
    assert [event.name for event in gateway.events("system", "items")] == ["items"]


def test_what_is_held_stays_held_while_there_is_no_room(build: Callable[..., Gateway]) -> None:
    gateway = build(items=1)
    gateway.send(PUMP, assured("m1", embedded(reading(1)), AT))
    send(gateway, 1, NAMED)
    reply = gateway.send(PUMP, deliver("m1", AT))
    assert reply is not None
    assert reply.error == ("wait", "resource-constraint")
    assert gateway.count("SELECT count(*) FROM held") == 1
    gateway.tx(lambda tx: tx.run("DELETE FROM items"))
    reply = gateway.send(PUMP, deliver("m1", AT))
    assert reply is not None
    assert reply.type == "result"
    assert len(kept(gateway)) == 1


def test_what_is_held_for_a_node_that_has_gone_dies(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m1", embedded(reading(1)), AT))
    gateway.tx(lambda tx: tx.run("DELETE FROM nodes"))
    reply = gateway.send(PUMP, deliver("m1", AT))
    assert reply is not None
    assert reply.error == ("cancel", "item-not-found")
    assert gateway.count("SELECT count(*) FROM dead") == 1


@LEVELS
def test_a_message_to_a_queue_node_stands_in_line(gateway: Gateway, level: int) -> None:
    create(gateway, PUMP, "work", queueing="1")
    send(gateway, level, NAMED, to=f"{SERVICE}/work")
    found = gateway.connection.execute("SELECT item, publisher FROM queue_items").fetchall()
    assert found == [("r1", PUMP)]


@LEVELS
def test_while_an_item_of_the_id_is_worked_on_the_sender_waits(
    gateway: Gateway, level: int
) -> None:
    create(gateway, PUMP, "work", queueing="1")
    at = f"{SERVICE}/work"
    send(gateway, 1, NAMED, to=at)
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'locked'"))
    reply = send(gateway, level, NAMED.replace("'1'/", "'2'/"), to=at)
    assert reply.error == ("wait", "resource-constraint")
    assert gateway.count("SELECT count(*) FROM queue_items") == 1


def test_all_namespaces_of_the_exchange_do(gateway: Gateway) -> None:
    gateway.send(PUMP, assured("m1", embedded(NAMED), AT, QOS))
    gateway.send(PUMP, deliver("m1", AT, QOS))
    assert kept(gateway) == ["r1"]
