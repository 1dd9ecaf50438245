"""Publications that leave nothing to keep, and so need no stored node."""

from __future__ import annotations

import pytest

from edge.config.options import AccessRule
from edge.engine.dispatch import destinations
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.custody import service
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.service.errors import PubsubError
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import (
    OWNER,
    SERVICE,
    affiliate,
    change_access,
    create,
    element,
    notifications,
    publish_content,
    send_request,
    stored_ids,
    subscribe,
)
from tests.helpers.pubsub_image import caches_equal_rows
from tests.helpers.store import Gateway, MakeGateway

TOPIC = "auto/ack/1"
PLAIN = ItemAttributes("a/b", retain=False)
RETAINED = ItemAttributes("a/b", retain=True)


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def names(gateway: Gateway) -> list[str]:
    sql = "SELECT name FROM nodes WHERE name <> 'plant/energy'"
    return [name for (name,) in gateway.tx(lambda tx: tx.rows(sql))]


def test_it_reaches_filters(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "auto/#")
    publish_content(gateway, PUMP, TOPIC, b"x", PLAIN)
    assert [one.node for one in notifications(gateway, VALVE)] == [TOPIC]
    assert names(gateway) == []


def test_it_reaches_a_share(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "$share:work:auto/#")
    publish_content(gateway, PUMP, TOPIC, b"x", PLAIN)
    assert gateway.count("SELECT node FROM queue_items") == TOPIC
    assert names(gateway) == []


def test_it_runs_without_statements(gateway: Gateway) -> None:
    context = gateway.router.context
    target = destinations.find(context, f"{SERVICE}/{TOPIC}")
    request = service.request(target, b"1", attributes=PLAIN)

    def act(tx: Transaction) -> None:
        sender = sessions.sender(tx, gateway.generation(PUMP))
        assert sender is not None
        service.acknowledge(context, tx, sender, request)

    subscribe(gateway, VALVE, "auto/#")
    gateway.commit(act)
    gateway.commit_in_memory(act)
    assert len(notifications(gateway, VALVE)) == 2
    gateway.commit(lambda tx: caches_equal_rows(gateway.router.context, tx))


@pytest.mark.parametrize("payload", [b"x", b""])
def test_only_something_to_keep_creates_the_node(gateway: Gateway, payload: bytes) -> None:
    publish_content(gateway, PUMP, TOPIC, payload, PLAIN)
    publish_content(gateway, PUMP, TOPIC, payload, RETAINED)
    assert names(gateway) == ([TOPIC] if payload else [])
    publish_content(gateway, PUMP, "auto/2", payload, NO_ATTRIBUTES)  # as XMPP publishes
    assert "auto/2" in names(gateway)


def test_the_node_decides_as_soon_as_it_exists(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "auto/#")
    publish_content(gateway, PUMP, TOPIC, b"1", PLAIN)
    create(gateway, PUMP, TOPIC, access_model="whitelist", publish_model="publishers")
    publish_content(gateway, PUMP, TOPIC, b"2", PLAIN)
    assert len(notifications(gateway, VALVE)) == 1
    with pytest.raises(PubsubError, match="may not publish"):
        publish_content(gateway, VALVE, TOPIC, b"3", PLAIN)
    affiliate(gateway, PUMP, TOPIC, valve="publisher")
    publish_content(gateway, VALVE, TOPIC, b"4", PLAIN)
    send_request(gateway, PUMP, element("delete", node=TOPIC), ns=OWNER)
    notifications(gateway, VALVE)
    publish_content(gateway, PUMP, TOPIC, b"5", PLAIN)
    assert [one.node for one in notifications(gateway, VALVE)] == [TOPIC]
    gateway.commit(lambda tx: caches_equal_rows(gateway.router.context, tx))


def test_rights_are_checked(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, TOPIC, b"1", PLAIN)
    with pytest.raises(PubsubError) as refused:
        publish_content(gateway, PUMP, "elsewhere/1", b"x", PLAIN)
    assert refused.value.reason is Reason.NODE_NOT_FOUND
    change_access(gateway, AccessRule(device="*", publish=["%u/#"], subscribe=["#"]))
    with pytest.raises(PubsubError) as refused:
        publish_content(gateway, PUMP, TOPIC, b"2", PLAIN)
    assert refused.value.reason is Reason.NOT_ALLOWED_BY_RULE


def test_the_limits_of_nodes_do_not_apply(build: MakeGateway) -> None:
    gateway = build(nodes_per_account=2)
    publish_content(gateway, PUMP, "auto/kept", b"1", RETAINED)
    publish_content(gateway, PUMP, TOPIC, b"x", PLAIN)
    publish_content(gateway, PUMP, TOPIC, b"", RETAINED)
    with pytest.raises(PubsubError) as refused:
        publish_content(gateway, PUMP, TOPIC, b"x", RETAINED)
    assert refused.value.reason is Reason.TOO_MANY_NODES
    assert refused.value.text == "the limit nodes_per_account = 2 is reached"
    publish_content(gateway, PUMP, "auto/kept", b"2", RETAINED)
    publish_content(gateway, PUMP, "auto/kept", b"", RETAINED)
    assert stored_ids(gateway, PUMP, "auto/kept") == []
