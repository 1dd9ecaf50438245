"""Messages without XML: from custody to nodes, to accounts and to the event log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from edge.config.options import Readings
from edge.engine.dispatch import destinations
from edge.engine.dispatch.hooks import Context, Destination, Message
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.log import refusals
from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.custody import service
from edge.features.custody.service import CustodyError
from edge.features.outbox.store import dead_letters
from edge.features.pubsub.service import publishing
from edge.features.pubsub.service.publishing import NewItem
from edge.features.pubsub.store import items, nodes
from edge.jid import Jid
from tests.helpers.people import PUMP, VALVE, VALVE_BARE
from tests.helpers.pubsub import NODE, SERVICE
from tests.helpers.qos_devices import bind_eligible, take_requests
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

AT_NODE = f"{SERVICE}/{NODE}"
JSON = b'{"t": 21.5}'
SAID = ItemAttributes("application/json", 2, True, 60.0, (("unit", "C"), ("raw", b"\0\xff")))
LEVELS = pytest.mark.parametrize("qos", [0, 1, 2])


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build(topics=["plant/+"])


@pytest.fixture
def published(gateway: Gateway) -> list[NewItem]:
    """The items that are published, also by units of work that are undone."""
    found: list[NewItem] = []
    hooks = gateway.router.context.hooks
    hooks.on(publishing.ITEM_PUBLISHED, lambda *args: found.append(args[4]))
    return found


def hand_over(
    gateway: Gateway,
    body: bytes,
    attributes: ItemAttributes,
    to: str = AT_NODE,
    qos: int = 2,
    wait: float = 0.0,
) -> None:
    """Hand a message over as a protocol without XML does; at level 2 the gateway crashes before it
    is released."""
    context = gateway.router.context
    target = destinations.find(context, to)
    if qos == 0:
        _run(gateway, partial(_send, context, target, body, attributes))
        return
    request = service.request(target, body, None, "7" if qos == 2 else "", b"", attributes)
    take = service.offer if qos == 2 else service.acknowledge
    _run(gateway, lambda tx, sender: take(context, tx, sender, request))
    if qos == 2:
        gateway.crash()
        gateway.clock.service += wait
        gateway.bind(PUMP)
        _run(gateway, lambda tx, sender: service.deliver(context, tx, sender, "7"))


def _send(
    context: Context, target: tuple[Destination, Jid], body: bytes, attributes: ItemAttributes,
    tx: Transaction, sender: Sender,
) -> None:  # fmt: skip
    destination, to = target
    message = Message(sender, to, body, len(body), 0, attributes=attributes)
    assert destinations.hand_over(context, tx, destination, message) is None


def _run(gateway: Gateway, work: Callable[[Transaction, Sender], object]) -> None:
    def unit(tx: Transaction) -> None:
        sender = sessions.sender(tx, gateway.generation(PUMP))
        assert sender is not None
        work(tx, sender)

    gateway.commit(unit)


@LEVELS
def test_a_node_gets_the_body_byte_for_byte(
    gateway: Gateway, published: list[NewItem], qos: int
) -> None:
    hand_over(gateway, JSON, SAID, qos=qos)
    (item,) = published
    assert item.payload == JSON
    assert item.attributes == SAID._replace(qos=qos)
    assert len(item.id) == 16
    (event,) = gateway.events("readings")
    assert (event.name, event.value, event.topic, event.qos) == ("t", 21.5, NODE, qos)


@LEVELS
def test_bytes_of_an_unknown_type_become_an_item_without_events(
    gateway: Gateway, published: list[NewItem], qos: int
) -> None:
    hand_over(gateway, b"\0\xff", ItemAttributes("image/png"), qos=qos)
    assert [item.payload for item in published] == [b"\0\xff"]
    assert gateway.events("readings") == []


def test_the_time_in_custody_counts_towards_the_expiry(
    gateway: Gateway, published: list[NewItem]
) -> None:
    hand_over(gateway, JSON, SAID, wait=20.0)
    assert [item.attributes.expiry for item in published] == [40.0]
    hand_over(gateway, JSON, SAID, wait=60.0)
    assert len(published) == 1
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert letter.reason == "the item expired before its sender released it"


@LEVELS
@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"{", "it is not valid JSON: "), (b"\0\xff", "it is not UTF-8"), (b"null", "it must be")],
)
def test_an_item_is_published_although_no_events_can_be_read(
    gateway: Gateway, published: list[NewItem], qos: int, body: bytes, reason: str
) -> None:
    for _ in range(3):
        hand_over(gateway, body, SAID, qos=qos)
    assert [item.payload for item in published] == [body] * 3
    assert gateway.events("readings") == []
    (event,) = gateway.events("system")
    assert (event.kind, event.name, event.value, event.source) == (
        "limit",
        "unlogged",
        1.0,
        PUMP.partition("/")[0],
    )
    assert (event.text or "").startswith(f"{NODE}: invalid JSON: {reason}")
    assert gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10)) == []
    gateway.clock.service += gateway.limits.refusal_window
    gateway.tx(lambda tx: refusals.close_due_windows(tx, 60.0))
    assert [(event.value, event.text) for event in gateway.events("system")[1:]] == [(2.0, None)]


def test_an_empty_payload_is_no_unreadable_one(gateway: Gateway) -> None:
    hand_over(gateway, b"", SAID)
    assert gateway.events("system") == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_full_database_still_deletes_retained_items(build: MakeGateway, qos: int) -> None:
    gateway = build(topics=["plant/+"], database_bytes=8 << 20, database_reserve=4 << 20)

    def keep(tx: Transaction) -> None:
        node = nodes.get(tx, NODE)
        assert node is not None
        items.put(tx, node.id, "kept", PUMP, JSON, 100)

    gateway.commit(keep)
    with pytest.raises(CustodyError, match="the limit database_bytes"):
        hand_over(gateway, JSON, SAID, qos=1)
    hand_over(gateway, b"", SAID, qos=qos)
    assert gateway.count("SELECT count(*) FROM items") == 0


def ruled(build: MakeGateway, **options: Any) -> Gateway:
    """Return a gateway with a rule for readings of the node, and no `[uplink] topics`."""
    other = Readings(filter="plant/+/other", name="other")
    return build(readings=[other, Readings(filter="plant/+", **options), Readings(filter="#")])


@LEVELS
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"t": 21.5, "state": "ON", "lost": null}', "application/json"),
        (b'[{"n": "t", "v": 21.5}]', "application/octet-stream"),
        (b'{"Time": "2026-03-04T10:15:00", "t": 21.5}', "text/plain; charset=utf-8"),
    ],
)
def test_a_rule_reads_every_content_type(
    build: MakeGateway, qos: int, body: bytes, content_type: str
) -> None:
    gateway = ruled(build, fields=["t"], name="%2 %f", unit={"t": "Cel"}, time="Time")
    hand_over(gateway, body, ItemAttributes(content_type), qos=qos)
    (event,) = gateway.events("readings")
    level, name = NODE.split("/")[1], f"{NODE.split('/')[1]} t"
    assert level
    assert (event.name, event.value, event.unit, event.qos) == (name, 21.5, "Cel", qos)
    assert (event.topic, event.source) == (NODE, PUMP)
    assert event.tags == ({"timestamp": "2026-03-04T10:15:00"} if b"Time" in body else {})
    assert gateway.events("system") == []


def test_a_reading_is_logged_once_although_its_release_is_repeated(build: MakeGateway) -> None:
    gateway = ruled(build)
    hand_over(gateway, b"21.5", ItemAttributes("text/plain"), wait=2.5)
    context = gateway.router.context
    _run(gateway, lambda tx, sender: service.deliver(context, tx, sender, "7"))
    (event,) = gateway.events("readings")
    assert (event.name, event.value, event.qos, event.latency_ms) == (
        NODE.rpartition("/")[2],
        21.5,
        2,
        2500,
    )


def test_a_rule_that_selects_nothing_logs_nothing(build: MakeGateway) -> None:
    gateway = ruled(build, fields=["humidity"])
    hand_over(gateway, JSON, SAID)
    assert gateway.events("readings") == gateway.events("system") == []


def test_unreadable_json_for_the_event_log_is_a_dead_letter(gateway: Gateway) -> None:
    hand_over(gateway, b"{", SAID, DOMAIN)
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert letter.reason.startswith("invalid JSON")


@LEVELS
def test_the_gateway_takes_readings_in_json(gateway: Gateway, qos: int) -> None:
    hand_over(gateway, JSON, ItemAttributes("application/json"), DOMAIN, qos)
    assert [event.value for event in gateway.events("readings")] == [21.5]


def test_an_account_gets_the_element_of_the_content_type(gateway: Gateway) -> None:
    hand_over(gateway, JSON, ItemAttributes("application/json"), VALVE_BARE)
    bind_eligible(gateway, VALVE)
    (request,) = take_requests(gateway, VALVE)
    assert request.message is not None
    assert request.message.get("from") == PUMP
    assert request.message.findtext("{urn:xmpp:json:0}json") == JSON.decode()
