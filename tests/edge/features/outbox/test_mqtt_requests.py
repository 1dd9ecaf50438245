"""The packets of MQTT for messages whose time to live ends before they are answered."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.sessions.sessions import Declaration
from edge.features.outbox.service import QosRequest
from edge.mqtt.packets import Property, Publish, PubRel
from edge.routing.mqtt import MqttHooks
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import NODE, create, publish_content, subscribe
from tests.helpers.qos_devices import Build, make_eligible
from tests.helpers.store import QOS, Gateway

KEPT: Final = Declaration(
    QOS, adopts=False, resends=False, ordered=True, window=4, ids=1000, durable=500.0
)


@pytest.fixture
def gateway(build_with_devices: Build) -> Gateway:
    gateway = build_with_devices()
    create(gateway, PUMP, NODE, publish_model="open")
    connect(gateway)
    subscribe(gateway, VALVE, NODE, VALVE, qos="2")
    return gateway


def connect(gateway: Gateway) -> None:
    gateway.bind(VALVE, KEPT)
    make_eligible(gateway, VALVE)


def publish(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, NODE, b"x", ItemAttributes("a/b", expiry=60))


def packet(gateway: Gateway) -> Publish | PubRel | None:
    """Return the packet of the only message that the session is sent."""
    context = gateway.router.context
    sends = [one.message for one in gateway.sends(VALVE)]
    (message,) = [one for one in sends if isinstance(one, QosRequest)]
    return context.hooks.of(MqttHooks).packet(context, message, lambda: gateway.clock.service)


def test_an_expired_message_that_was_sent_is_repeated(gateway: Gateway) -> None:
    publish(gateway)
    first = packet(gateway)
    assert isinstance(first, Publish)
    assert first.properties[Property.MESSAGE_EXPIRY] == 60
    gateway.end(VALVE)
    gateway.clock.service += 61
    connect(gateway)
    left = {**first.properties, Property.MESSAGE_EXPIRY: 0}
    assert packet(gateway) == replace(first, dup=True, properties=left)


def test_an_expired_message_that_was_not_sent_has_no_packet(gateway: Gateway) -> None:
    gateway.end(VALVE)
    publish(gateway)
    gateway.clock.service += 60
    connect(gateway)
    assert packet(gateway) is None
