"""Items with a content type, a quality of service, an expiry and properties."""

from __future__ import annotations

from base64 import b64encode

import pytest

from edge.engine.dispatch.encoding import unpack
from edge.engine.dispatch.item_attributes import (
    MAX_BYTES,
    MAX_PROPERTIES,
    NO_ATTRIBUTES,
    ItemAttributes,
    charge,
)
from edge.features.outbox.store import outbox
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.pubsub.store import items
from edge.features.queues.service.messages import ItemDelivery
from tests.helpers import queue_nodes
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import (
    NODE,
    create,
    publish,
    publish_content,
    reading,
    retrieve,
    stored_ids,
    subscribe,
)
from tests.helpers.pubsub import item as item_xml
from tests.helpers.qos_devices import take_requests
from tests.helpers.store import Gateway, MakeGateway

BYTES = b"\x00\xff no XML"
PROPERTIES = (("unit", "\u00b0C"), ("key", b"\x00\x01"), ("unit", "K"))
IMAGE = ItemAttributes("image/png", properties=PROPERTIES)
DATA = f"<data xmlns='urn:x-fieldpost:content' type='image/png'>{b64encode(BYTES).decode()}</data>"


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def published(gateway: Gateway, full: str = VALVE) -> list[ItemPublished]:
    """Return the typed events that a session was sent, and acknowledge them."""
    found = [one.message for one in gateway.sends(full)]
    events = [one.event for one in found if isinstance(one, Notification)]
    return [one for one in events if isinstance(one, ItemPublished)]


def test_a_payload_of_bytes_is_kept_and_notified_byte_for_byte(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    publish_content(gateway, PUMP, NODE, BYTES, IMAGE)
    (event,) = published(gateway)
    assert (event.payload, event.content_type, event.properties) == (BYTES, "image/png", PROPERTIES)
    node = gateway.count("SELECT id FROM nodes WHERE name = ?", NODE)
    kept = gateway.commit(lambda tx: items.last(tx, node))
    assert kept is not None
    assert (kept.payload, kept.attributes) == (BYTES, IMAGE)
    assert kept.size == charge(items.OVERHEAD, "i1", PUMP, BYTES, NO_ATTRIBUTES) + 9 + 17


def test_xmpp_gets_the_element_of_the_content_type(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    publish_content(gateway, PUMP, NODE, BYTES, IMAGE)
    (sent,) = gateway.sends(VALVE)
    assert DATA.encode() in sent.stanza
    found = retrieve(gateway, VALVE, NODE).content
    assert found.findtext(".//{urn:x-fieldpost:content}data") == b64encode(BYTES).decode()


def test_a_new_subscription_gets_the_content_type_and_properties(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, NODE, BYTES, IMAGE)
    subscribe(gateway, VALVE, "#")
    (event,) = published(gateway)
    assert (event.payload, event.content_type, event.properties) == (BYTES, "image/png", PROPERTIES)


def test_a_node_without_payloads_sends_no_content(gateway: Gateway) -> None:
    create(gateway, PUMP, "bare", deliver_payloads="0")
    subscribe(gateway, VALVE, "bare")
    publish_content(gateway, PUMP, "bare", BYTES, IMAGE)
    (event,) = published(gateway)
    assert (event.payload, event.content_type, event.properties) == (b"", "", ())


@pytest.mark.parametrize("published_at", [0, 1, 2])
@pytest.mark.parametrize("subscribed_at", [0, 1, 2])
def test_an_item_arrives_at_the_lower_level(
    gateway: Gateway, published_at: int, subscribed_at: int
) -> None:
    subscribe(gateway, VALVE, NODE, qos=str(subscribed_at))
    attributes = ItemAttributes(qos=published_at)
    publish_content(gateway, PUMP, NODE, reading(1).encode(), attributes)
    level = min(published_at, subscribed_at)
    rows = gateway.connection.execute("SELECT qos FROM outbox").fetchall()
    assert rows == ([(level,)] if level else [])
    assert len(published(gateway)) == (0 if level else 1)
    gateway.connection.execute("DELETE FROM outbox")
    subscribe(gateway, VALVE, "#", qos=str(subscribed_at))  # gets the kept item at the same level
    assert gateway.connection.execute("SELECT qos FROM outbox").fetchall() == rows


def test_xmpp_publishes_at_the_level_of_the_subscription(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE, qos="2")
    publish(gateway, PUMP, NODE, item_xml("x", reading(1)))
    assert gateway.count("SELECT qos FROM outbox") == 2


def test_a_notification_that_waits_keeps_content_type_and_properties(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE, qos="1")
    publish_content(gateway, PUMP, NODE, BYTES, IMAGE)
    row = gateway.count("SELECT id FROM outbox")
    content = gateway.commit(lambda tx: outbox.content(tx, row))
    stored = unpack(gateway.router.context, content)
    assert isinstance(stored, Notification)
    event = ItemPublished(NODE, "i1", BYTES, "pump1@gw.example", "image/png", None, PROPERTIES)
    assert stored.event == event


def test_an_expired_item_is_not_delivered_any_more(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, NODE, BYTES, ItemAttributes("image/png", expiry=60))
    gateway.clock.service += 59
    subscribe(gateway, VALVE, "#")
    (event,) = published(gateway)
    assert event.expires == gateway.clock.service + 1
    gateway.clock.service += 1
    subscribe(gateway, VALVE, "plant/#")
    assert published(gateway) == []
    gateway.run_timers()
    assert stored_ids(gateway, PUMP) == []


@pytest.mark.parametrize(("expiry", "seconds"), [(5.0, 5), (50.0, 10), (None, 10), (0.0, 0)])
def test_the_earlier_end_of_node_and_publication_holds(
    gateway: Gateway, expiry: float | None, seconds: float
) -> None:
    create(gateway, PUMP, "short", item_expire="10")
    publish_content(gateway, PUMP, "short", BYTES, ItemAttributes("a/b", expiry=expiry))
    expected = gateway.clock.service + seconds
    assert gateway.count("SELECT expires FROM items") == expected


@pytest.mark.parametrize(
    "attributes",
    [
        ItemAttributes(properties=(("a", "b"),) * (MAX_PROPERTIES + 1)),
        ItemAttributes("x" * (MAX_BYTES + 1)),
        ItemAttributes(properties=(("a", b"\x00" * MAX_BYTES),)),
    ],
)
def test_attributes_beyond_the_limits_are_refused(
    gateway: Gateway, attributes: ItemAttributes
) -> None:
    with pytest.raises(PubsubError, match="at most") as caught:
        publish_content(gateway, PUMP, NODE, BYTES, attributes)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert stored_ids(gateway, PUMP) == []


# Queues


def test_a_queue_keeps_content_type_and_properties(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    queue_nodes.set_up(gateway)
    for worker in (None, queue_nodes.ONE):  # one item waits, the other is assigned at once
        if worker is not None:
            queue_nodes.subscribe_worker(gateway, worker)
        id = f"for {worker}"
        publish_content(gateway, queue_nodes.PUBLISHER, queue_nodes.NODE, BYTES, IMAGE, id)
    for sent in gateway.sends(queue_nodes.ONE):
        delivery = sent.message
        assert isinstance(delivery, ItemDelivery)
        assert (delivery.body, delivery.content_type) == (BYTES, "image/png")
        assert delivery.properties == PROPERTIES
        assert DATA.encode() in sent.stanza


def test_the_same_bytes_of_another_content_type_are_another_item(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway()
    queue_nodes.set_up(gateway)
    publish_content(gateway, queue_nodes.PUBLISHER, queue_nodes.NODE, BYTES, IMAGE)
    publish_content(gateway, queue_nodes.PUBLISHER, queue_nodes.NODE, BYTES, IMAGE)
    text = ItemAttributes("text/plain")
    with pytest.raises(PubsubError):
        publish_content(gateway, queue_nodes.PUBLISHER, queue_nodes.NODE, BYTES, text)


def test_a_queued_item_expires_with_its_publication(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    queue_nodes.set_up(gateway)
    attributes = ItemAttributes("a/b", expiry=30)
    publish_content(gateway, queue_nodes.PUBLISHER, queue_nodes.NODE, BYTES, attributes)
    queue_nodes.advance(gateway, 30)
    queue_nodes.subscribe_worker(gateway, queue_nodes.ONE)
    assert queue_nodes.deliveries(gateway, queue_nodes.ONE) == []
    assert queue_nodes.states(gateway) == {"i1": "dead"}


@pytest.mark.parametrize("published_at", [0, 1, 2])
@pytest.mark.parametrize("subscribed_at", [0, 1, 2])
def test_an_item_of_a_share_arrives_at_the_lower_level(
    gateway: Gateway, published_at: int, subscribed_at: int
) -> None:
    subscribe(gateway, VALVE, "$share:pool:plant/#", VALVE, qos=str(subscribed_at))
    gateway.tx(lambda tx: tx.run("UPDATE temp.sessions SET qos = 'urn:xmpp:qos'"))
    attributes = ItemAttributes("image/png", published_at, True, properties=PROPERTIES)
    publish_content(gateway, PUMP, NODE, BYTES, attributes)
    level = min(published_at, subscribed_at)
    requests = take_requests(gateway, VALVE) if level else []
    assert [one.step for one in requests] == (
        [] if not level else [("acknowledged", "assured")[level - 1]]
    )
    assert gateway.count("SELECT count(*) FROM queue_items") == (1 if level else 0)
