"""Retained items, and the options of subscriptions that XMPP does not have."""

from __future__ import annotations

from itertools import product

import pytest

from edge.engine.dispatch import destinations
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.custody import service as custody
from edge.features.pubsub.rules.subscription import DeliveryOptions, RetainHandling
from edge.features.pubsub.service import subscriptions
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.notifications import (
    ItemPublished,
    NodeEvent,
    NodePurged,
    Notification,
)
from edge.features.pubsub.service.subscriptions import Target
from tests.helpers.people import PUMP, VALVE, VALVE_BARE
from tests.helpers.pubsub import NODE, SERVICE, create, publish_content, retract, stored_ids
from tests.helpers.pubsub import item as item_xml
from tests.helpers.pubsub import publish as publish_xml
from tests.helpers.pubsub import subscribe as subscribe_xml
from tests.helpers.store import Gateway, MakeGateway

RETAINED = ItemAttributes("a/b", retain=True)
PLAIN = ItemAttributes("a/b", retain=False)
NO_LOCAL = DeliveryOptions(no_local=True)
AS_PUBLISHED = DeliveryOptions(retain_as_published=True)


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def subscribe(
    gateway: Gateway, full: str, target: str, delivery: DeliveryOptions, jid: str | None = None
) -> None:
    """Subscribe a session, by its full JID unless another is given, as another protocol does."""

    def act(tx: Transaction) -> None:
        sender, context = sessions.sender(tx, gateway.generation(full)), gateway.router.context
        assert sender is not None
        to = Target(target, None, target)
        subscriptions.subscribe(
            context, tx, sender, to, jid or full, {}, f"{full} {target}", delivery
        )

    gateway.commit(act)


def events(gateway: Gateway, full: str = VALVE) -> list[NodeEvent]:
    found = [one.message for one in gateway.sends(full)]
    return [one.event for one in found if isinstance(one, Notification)]


def payloads(gateway: Gateway, full: str = VALVE) -> list[tuple[bytes, bool]]:
    """Return the payloads that a session was sent, and whether each was sent as retained."""
    found = events(gateway, full)
    return [(one.payload, one.retain) for one in found if isinstance(one, ItemPublished)]


# Retained items


def test_only_a_retained_item_is_kept_and_it_replaces_all_others(gateway: Gateway) -> None:
    for id in ("x1", "x2"):
        publish_xml(gateway, PUMP, NODE, item_xml(id, "<v xmlns='urn:v'/>"))
    publish_content(gateway, PUMP, NODE, b"1", PLAIN, "m1")
    assert stored_ids(gateway, PUMP) == ["x1", "x2"]
    publish_content(gateway, PUMP, NODE, b"2", RETAINED, "m2")
    assert stored_ids(gateway, PUMP) == ["m2"]
    publish_content(gateway, PUMP, NODE, b"3", RETAINED, "m3")
    assert stored_ids(gateway, PUMP) == ["m3"]
    publish_xml(gateway, PUMP, NODE, item_xml("x3", "<v xmlns='urn:v'/>"))
    assert stored_ids(gateway, PUMP) == ["m3", "x3"]


@pytest.mark.parametrize("count", [1, 70])  # 70: more than the store caches
def test_an_empty_retained_publication_deletes_the_retained_item(
    build: MakeGateway, count: int
) -> None:
    gateway = build()
    create(gateway, PUMP, "long", max_items="max")
    for number in range(count):
        publish_content(gateway, PUMP, "long", b"1", ItemAttributes("a/b"), f"m{number}")
    subscribe_xml(gateway, VALVE, "long")
    assert payloads(gateway) == [(b"1", True)]
    publish_content(gateway, PUMP, "long", b"", RETAINED, "empty")
    assert events(gateway) == [
        ItemPublished("long", "empty", b"", "pump1@gw.example", "a/b"),
        NodePurged("long"),
    ]
    assert stored_ids(gateway, PUMP, "long") == []
    assert gateway.connection.execute("SELECT items, bytes FROM items_total").fetchone() == (0, 0)
    subscribe(gateway, VALVE, "#", DeliveryOptions())
    assert payloads(gateway) == []
    publish_content(gateway, PUMP, "long", b"", RETAINED, "again")  # nothing is left to delete
    assert NodePurged("long") not in events(gateway)


def test_an_item_without_payload_of_xmpp_is_kept(gateway: Gateway) -> None:
    publish_xml(gateway, PUMP, NODE, item_xml("x1"))
    assert stored_ids(gateway, PUMP) == ["x1"]


def test_no_older_item_is_retained_once_the_retained_one_expires(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, NODE, b"1", RETAINED, "m1")
    publish_content(gateway, PUMP, NODE, b"2", RETAINED._replace(expiry=5), "m2")
    gateway.clock.service += 5
    gateway.run_timers()
    subscribe(gateway, VALVE, "#", DeliveryOptions())
    assert payloads(gateway) == []


def test_a_node_without_items_retains_nothing(gateway: Gateway) -> None:
    create(gateway, PUMP, "transient", persist_items="0")
    publish_content(gateway, PUMP, "transient", b"1", RETAINED)
    assert gateway.count("SELECT count(*) FROM items") == 0


def test_filters_get_the_retained_items_of_all_nodes(gateway: Gateway) -> None:
    publish_content(gateway, PUMP, NODE, b"1", RETAINED)
    publish_content(gateway, PUMP, "auto/a", b"2", RETAINED)
    publish_content(gateway, PUMP, "auto/b", b"3", PLAIN)
    subscribe(gateway, VALVE, "#", DeliveryOptions())
    assert payloads(gateway) == [(b"1", True), (b"2", True)]


def test_the_limit_of_items_does_not_apply_to_replacing_and_deleting(build: MakeGateway) -> None:
    gateway = build(items_per_source=8)
    for number in range(8):
        publish_content(gateway, PUMP, f"auto/{number}", b"1", RETAINED)
    with pytest.raises(PubsubError, match="the limit items_per_source = 8 is reached"):
        publish_content(gateway, PUMP, "auto/more", b"1", RETAINED)
    publish_content(gateway, PUMP, "auto/7", b"2", RETAINED)
    publish_content(gateway, PUMP, "auto/7", b"", RETAINED)
    publish_content(gateway, PUMP, "auto/more", b"1", RETAINED)
    assert stored_ids(gateway, PUMP, "auto/more") == ["i1"]


# Options


@pytest.mark.parametrize("target", ["#", NODE])
@pytest.mark.parametrize("jid", [VALVE, VALVE_BARE])
def test_a_subscriber_does_not_get_its_own_items_with_no_local(
    gateway: Gateway, target: str, jid: str
) -> None:
    publish_content(gateway, VALVE, NODE, b"0", RETAINED, "m0")
    subscribe(gateway, VALVE, target, NO_LOCAL, jid)
    publish_content(gateway, VALVE, NODE, b"1", RETAINED, "m1")
    publish_content(gateway, PUMP, NODE, b"2", RETAINED, "m2")
    assert payloads(gateway) == [(b"2", False)]


def test_another_session_of_the_account_gets_them(gateway: Gateway) -> None:
    other = f"{VALVE_BARE}/other"
    gateway.bind(other)
    subscribe(gateway, VALVE, "#", NO_LOCAL)
    publish_content(gateway, other, NODE, b"1", PLAIN)
    assert payloads(gateway) == [(b"1", False)]


def test_retain_as_published_tells_what_the_publication_asked_for(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "#", AS_PUBLISHED)
    subscribe(gateway, PUMP, "#", DeliveryOptions())
    publish_content(gateway, PUMP, NODE, b"1", RETAINED, "m1")
    publish_content(gateway, PUMP, NODE, b"2", PLAIN, "m2")
    publish_xml(gateway, PUMP, NODE, item_xml("x1", "<v xmlns='urn:v'/>"))
    kept = (b"<v xmlns='urn:v'/>", False)
    assert payloads(gateway) == [(b"1", True), (b"2", False), kept]
    assert payloads(gateway, PUMP) == [(b"1", False), (b"2", False), kept]


def test_overlapping_filters_share_what_is_cached(gateway: Gateway) -> None:
    """An item that a session gets once costs as little as with one filter, at many nodes."""
    choices = product(*((level, "+") for level in "abcdefg"))
    filters = ["/".join(("auto", *levels, "+")) for levels in choices]
    for filter in filters:
        subscribe(gateway, VALVE, filter, DeliveryOptions(only_items=True, identifier=1))
    context, names = gateway.router.context, [f"auto/a/b/c/d/e/f/g/{n}" for n in range(100)]
    for name in names:
        publish_content(gateway, PUMP, name, b"0", PLAIN)
    gateway.sends(VALVE)

    def act(tx: Transaction) -> None:
        for name in names:
            target = destinations.find(context, f"{SERVICE}/{name}")
            request = custody.request(target, b"1", attributes=PLAIN)
            sender = sessions.sender(tx, gateway.generation(PUMP))
            assert sender is not None
            custody.acknowledge(context, tx, sender, request)

    gateway.commit_in_memory(act)
    found = [send.message for send in gateway.sends(VALVE)]
    assert len(found) == len(names)
    assert all(
        isinstance(one, Notification) and one.identifiers == (1,) * len(filters) for one in found
    )


@pytest.mark.parametrize(
    ("handling", "first", "again"),
    [
        (RetainHandling.ALWAYS, True, True),
        (RetainHandling.IF_NEW, True, False),
        (RetainHandling.NEVER, False, False),
    ],
)
def test_retain_handling_decides_when_kept_items_are_sent(
    gateway: Gateway, handling: RetainHandling, first: bool, again: bool
) -> None:
    publish_content(gateway, PUMP, NODE, b"1", RETAINED)
    for sent in (first, again):
        subscribe(gateway, VALVE, "#", DeliveryOptions(retain_handling=handling))
        assert payloads(gateway) == ([(b"1", True)] if sent else [])


def test_the_options_are_stored(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "#", DeliveryOptions(True, True, RetainHandling.NEVER))
    gateway.cache.clear()
    publish_content(gateway, VALVE, NODE, b"1", RETAINED, "m1")
    publish_content(gateway, PUMP, NODE, b"2", RETAINED, "m2")
    assert payloads(gateway) == [(b"2", True)]
    subscribe(gateway, VALVE, "#", DeliveryOptions())
    assert gateway.count("SELECT options FROM subscriptions") == "{}"


def test_a_subscription_to_items_alone_gets_no_other_event(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "plant/+", DeliveryOptions(only_items=True))
    publish_xml(gateway, PUMP, NODE, item_xml("i1", "<v xmlns='urn:v'/>"))
    retract(gateway, PUMP, NODE, "i1", notify="1")
    publish_xml(gateway, PUMP, NODE, item_xml("i2", "<v xmlns='urn:v'/>"))
    gateway.crash()  # the options are read again
    gateway.bind(VALVE)
    retract(gateway, PUMP, NODE, "i2", notify="1")
    publish_xml(gateway, PUMP, NODE, item_xml("i3", "<v xmlns='urn:v'/>"))
    found = [one for one in events(gateway) if not isinstance(one, ItemPublished)]
    assert found == []
