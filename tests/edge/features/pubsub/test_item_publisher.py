"""Whom items name as their publisher (XEP-0060, sections 7.1.2.3 and 12.17)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.people import PUMP, VALVE, make_available
from tests.helpers.pubsub import (
    EVENT,
    NODE,
    OWNER,
    PUBSUB,
    affiliate,
    create,
    element,
    form,
    item,
    publish,
    retrieve,
    send_request,
    subscribe,
)
from tests.helpers.qos_devices import make_eligible, take_requests
from tests.helpers.store import DOMAIN, Gateway

METER: Final = f"meter@{DOMAIN}/fw"
NAMED: Final = [
    ({}, f"meter@{DOMAIN}"),
    ({"itemreply": "publisher"}, f"meter@{DOMAIN}"),
    ({"itemreply": "owner"}, f"pump1@{DOMAIN}"),
    ({"itemreply": "none"}, None),
]
"""Options of a node, and whom items of the meter name."""


def notified(gateway: Gateway, full: str) -> list[str | None]:
    """Return the publishers that items in plain messages named since the last call."""
    found = (one for message in gateway.elements(full) for one in message.iter(f"{{{EVENT}}}item"))
    return [one.get("publisher") for one in found]


def retrieved(gateway: Gateway) -> list[str | None]:
    """Return the publishers that retrieved items name."""
    reply = retrieve(gateway, VALVE, NODE)
    return [one.get("publisher") for one in reply.content.iter(f"{{{PUBSUB}}}item")]


def configure(gateway: Gateway, full: str, **values: str) -> None:
    content = element("configure", form("node_config", values), node=NODE)
    reply = send_request(gateway, full, content, ns=OWNER)
    assert reply.type == "result", (reply.error, reply.text)


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    """A gateway on which the valve is available and the meter may publish."""
    gateway.add("meter")
    make_available(gateway, VALVE)
    return gateway


@pytest.mark.parametrize(("config", "named"), NAMED)
def test_an_item_names_its_publisher_as_its_node_says(
    gateway: Gateway, config: dict[str, str], named: str | None
) -> None:
    create(gateway, PUMP, NODE, publish_model="open", **config)
    subscribe(gateway, VALVE, NODE)
    publish(gateway, METER, NODE, element("item", id="a", publisher=f"spoof@{DOMAIN}"))
    subscribe(gateway, VALVE, "plant/+")
    assert notified(gateway, VALVE) == [named]
    subscribe(gateway, VALVE, NODE, VALVE)
    assert notified(gateway, VALVE) == [named]  # the last item
    assert retrieved(gateway) == [named]


@pytest.mark.parametrize(("config", "named"), NAMED)
def test_an_item_of_a_queue_names_its_publisher_as_its_node_says(
    gateway: Gateway, config: dict[str, str], named: str | None
) -> None:
    create(gateway, PUMP, "jobs", publish_model="open", queueing="1", **config)
    create(gateway, PUMP, NODE, publish_model="open", **config)
    publish(gateway, METER, "jobs", item("a"))
    subscribe(gateway, VALVE, "jobs", queue_requests="5")
    publish(gateway, METER, "jobs", item("b"))
    subscribe(gateway, VALVE, "$share:pool:plant/#", qos="0")
    publish(gateway, METER, NODE, item("c"))
    assert notified(gateway, VALVE) == [named] * 3


@pytest.mark.parametrize("target", ["plant/+", "$share:pool:plant/#"])
@pytest.mark.parametrize("qos", ["1", "2"])
def test_an_item_in_an_outbox_names_its_publisher(gateway: Gateway, target: str, qos: str) -> None:
    create(gateway, PUMP, NODE, publish_model="open")
    make_eligible(gateway, VALVE)
    subscribe(gateway, VALVE, target, qos=qos)
    publish(gateway, METER, NODE, item("a"))
    (request,) = take_requests(gateway, VALVE)
    assert request.message is not None
    (found,) = request.message.iter(f"{{{EVENT}}}item")
    assert found.get("publisher") == f"meter@{DOMAIN}"


def test_an_owner_is_named_that_is_an_owner_still(gateway: Gateway) -> None:
    create(gateway, PUMP, NODE, itemreply="owner")
    publish(gateway, PUMP, NODE, item("a"))
    affiliate(gateway, PUMP, NODE, cam="owner", meter="owner")
    assert retrieved(gateway) == [f"pump1@{DOMAIN}"]
    affiliate(gateway, METER, NODE, pump1="publisher")
    assert retrieved(gateway) == [f"cam@{DOMAIN}"]
    configure(gateway, METER, itemreply="none")
    assert retrieved(gateway) == [None]


def test_a_waiting_item_of_a_deleted_node_names_nobody(gateway: Gateway) -> None:
    create(gateway, PUMP, NODE)
    gateway.send(VALVE, "<presence type='unavailable'/>")
    subscribe(gateway, VALVE, "$share:pool:plant/#", qos="0")
    publish(gateway, PUMP, NODE, item("a"))
    send_request(gateway, PUMP, element("delete", node=NODE), ns=OWNER)
    gateway.sends(VALVE)
    gateway.send(VALVE, "<presence/>")
    assert notified(gateway, VALVE) == [None]
