"""Delivery of notifications at the level of their subscription."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

import pytest

from edge.engine.dispatch.encoding import encode
from edge.engine.store.database import Transaction
from edge.features.outbox.store import dead_letters, outbox
from edge.features.pubsub.rules.subscription import SubscriptionOptions
from edge.features.pubsub.service import notifications
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from edge.xmpp import PROTOCOL
from tests.helpers.people import PUMP, VALVE, VALVE_BARE, make_available
from tests.helpers.qos_devices import (
    CAM,
    CLIENT,
    Build,
    DeviceRequest,
    bind_eligible,
    empty_result,
    error_result,
    make_eligible,
    received_result,
    send_assured,
    states,
    take_requests,
)
from tests.helpers.store import DOMAIN, Gateway, read_element

SERVICE: Final = f"pubsub.{DOMAIN}"
OTHER: Final = "valve@gw.example/spare"
EVENT: Final = "{http://jabber.org/protocol/pubsub#event}"


@pytest.fixture
def build(build_with_devices: Build) -> Build:
    return build_with_devices


@pytest.fixture
def gateway(build: Build) -> Gateway:
    return build()


def subscribe(
    gateway: Gateway, qos: int, jid: str = VALVE_BARE, *, presence: bool = False, subid: str = "s1"
) -> Subscription:
    name = jid.partition("@")[0]

    def unit(tx: Transaction) -> Subscription:
        options = SubscriptionOptions(qos=qos, presence=presence)
        return subscriptions.add(tx, name, jid, subid, filter="#", options=options)

    return gateway.tx(unit)


def notify(
    gateway: Gateway, subscription: Subscription, text: str, kind: str | None = None
) -> None:
    event = ItemPublished("meters", text, b"")
    notification = Notification(event, subscription.jid, kind)
    context = gateway.router.context
    gateway.tx(lambda tx: notifications.send(context, tx, subscription, notification))


def item(message: Element | None) -> str | None:
    found = None if message is None else message.find(f"{EVENT}event/{EVENT}items/{EVENT}item")
    return None if found is None else found.get("id")


def received_items(gateway: Gateway, full: str) -> list[str | None]:
    return [item(one.message) for one in take_requests(gateway, full)]


def answer_all(gateway: Gateway, full: str, *requests: DeviceRequest) -> list[DeviceRequest]:
    """Answer all requests of the outbox to a session; return them."""
    answered: list[DeviceRequest] = []
    found = list(requests) or take_requests(gateway, full)
    while found:
        for one in found:
            assert one.sender == SERVICE
            gateway.send(full, received_result(one) if one.step == "assured" else empty_result(one))
        answered += found
        found = take_requests(gateway, full)
    return answered


def test_at_level_0_a_headline_goes_to_all_sessions(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    make_available(gateway, OTHER, priority=5)
    notify(gateway, subscribe(gateway, 0), "i1", "headline")
    assert gateway.elements(VALVE)[0].get("type") == "headline"
    (message,) = gateway.elements(OTHER)
    assert (message.tag, message.get("from")) == (f"{CLIENT}message", SERVICE)
    assert (message.get("to"), message.get("type"), item(message)) == (VALVE_BARE, "headline", "i1")


def test_at_level_0_a_normal_message_goes_to_the_most_available_session(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    make_available(gateway, OTHER, priority=5)
    notify(gateway, subscribe(gateway, 0), "i1")
    assert gateway.elements(VALVE) == []
    assert [item(one) for one in gateway.elements(OTHER)] == ["i1"]


def test_at_level_0_a_normal_message_is_stored_offline(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 0), "i1")
    bind_eligible(gateway, VALVE)
    assert [item(one) for one in gateway.elements(VALVE)] == ["i1"]


def test_at_level_0_a_headline_without_a_session_is_logged(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 0), "i1", "headline")
    (event,) = gateway.events(name="nobody_there")
    assert event.source == VALVE_BARE
    bind_eligible(gateway, VALVE)
    assert gateway.elements(VALVE) == []


def test_at_level_0_a_message_to_a_full_jid_goes_only_to_its_session(gateway: Gateway) -> None:
    subscription = subscribe(gateway, 0, VALVE)
    make_available(gateway, OTHER)
    notify(gateway, subscription, "i1")
    assert [event.name for event in gateway.events()] == ["nobody_there"]
    gateway.bind(VALVE)
    notify(gateway, subscription, "i2")
    (message,) = gateway.elements(VALVE)
    assert (message.get("to"), item(message)) == (VALVE, "i2")
    assert gateway.elements(OTHER) == []


@pytest.mark.parametrize(("qos", "step"), [(1, "acknowledged"), (2, "assured")])
def test_at_higher_levels_the_service_is_the_sender(gateway: Gateway, qos: int, step: str) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, qos), "i1", "headline")
    (one,) = take_requests(gateway, VALVE)
    assert (one.step, one.sender, one.to) == (step, SERVICE, VALVE)
    assert one.message is not None
    assert (one.message.get("from"), one.message.get("to")) == (SERVICE, VALVE_BARE)
    assert (one.message.get("type"), item(one.message)) == ("headline", "i1")
    answer_all(gateway, VALVE, one)
    assert states(gateway) == []


def test_an_answer_to_another_address_or_from_another_session_is_ignored(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1), "i1")
    (one,) = take_requests(gateway, VALVE)
    for address in (f"{SERVICE}/meters", DOMAIN):
        assert gateway.send(VALVE, empty_result(one._replace(sender=address))) is None
    assert gateway.send(CAM, empty_result(one)) is None
    assert states(gateway) == ["offered"]


def test_a_full_jids_notification_waits_for_its_session(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    notify(gateway, subscribe(gateway, 2, VALVE), "i1")
    assert received_items(gateway, OTHER) == []
    bind_eligible(gateway, VALVE)
    assert [item(one.message) for one in answer_all(gateway, VALVE)] == ["i1", None]
    assert received_items(gateway, OTHER) == []


def test_a_full_jids_notification_is_sent_again_only_to_its_session(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.end(VALVE)
    assert received_items(gateway, OTHER) == []
    bind_eligible(gateway, VALVE)
    (again,) = take_requests(gateway, VALVE)
    assert again.id == one.id


def test_the_outbox_row_of_a_full_jid_names_its_session(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    row = gateway.tx(lambda tx: outbox.find(tx, 1))
    assert row is not None
    assert (row.only_session, row.session, row.queue_item, row.source) == (
        VALVE,
        VALVE,
        None,
        f"{SERVICE}/s1",
    )
    stored = gateway.tx(lambda tx: outbox.content(tx, 1))
    assert read_element(encode(gateway.router.context, PROTOCOL, stored)).get("from") is None


def test_notifications_that_wait_for_a_session_use_no_window(build: Build) -> None:
    gateway = build(outbox_window=2)
    bind_eligible(gateway, VALVE)
    bind_eligible(gateway, OTHER)
    for subid in ("a0", "a1", "a2"):
        notify(gateway, subscribe(gateway, 1, VALVE, subid=subid), subid)
    assert received_items(gateway, VALVE) == ["a0", "a1"]
    gateway.end(VALVE)
    for subid in ("b0", "b1"):
        notify(gateway, subscribe(gateway, 1, subid=subid), subid)
    assert received_items(gateway, OTHER) == ["b0", "b1"]


def test_a_session_with_unknown_capabilities_is_queried(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE, qos=None)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (query,) = gateway.elements(VALVE)
    assert query[0].tag == "{http://jabber.org/protocol/disco#info}query"
    assert received_items(gateway, OTHER) == []
    make_eligible(gateway, VALVE)
    assert received_items(gateway, VALVE) == ["i1"]


# Limits


def test_the_limit_of_one_source_does_not_apply(build: Build) -> None:
    gateway = build(outbox_messages_per_source=2)
    subscription = subscribe(gateway, 1)
    for number in range(5):
        notify(gateway, subscription, f"i{number}")
    assert len(states(gateway)) == 5


def test_a_full_outbox_is_logged_and_keeps_its_reserve_for_others(build: Build) -> None:
    gateway = build(outbox_messages_per_account=8)
    subscription = subscribe(gateway, 1)
    for number in range(9):
        notify(gateway, subscription, f"i{number}")
    assert len(states(gateway)) == 7  # an eighth is reserved for sources with few messages
    (event,) = gateway.events(name="outbox_messages_per_account")
    assert (event.source, event.tags) == (VALVE_BARE, {"limit": "7"})
    send_assured(gateway, PUMP, "m1", "text", VALVE_BARE)
    assert len(states(gateway)) == 8


# Failures and ended subscriptions


def test_a_failed_notification_becomes_a_dead_letter_without_a_report(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, error_result(one, "cancel", "not-allowed"))
    (dead,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    found = dead.sender, dead.destination, dead.state
    assert found == (f"{SERVICE}/meters", VALVE, "failed")
    (event,) = gateway.events(name="dead")
    assert event.source == f"{SERVICE}/meters"
    assert gateway.sent == []
    bind_eligible(gateway, OTHER)
    gateway.tx(lambda tx: dead_letters.requeue(tx, dead.row, may_repeat=False))
    gateway.tx(gateway.router.context.run_external_change)
    assert received_items(gateway, OTHER) == [], "it is bound to its session"
    (again,) = take_requests(gateway, VALVE)
    assert (again.sender, item(again.message)) == (SERVICE, "i1")


def end(gateway: Gateway, subscription: Subscription) -> list[float | None]:
    """End a subscription; return the numbers of dropped notifications in the event log."""
    gateway.tx(lambda tx: notifications.drop_waiting(gateway.router.context, tx, subscription))
    return [event.value for event in gateway.events(name="notifications_dropped")]


def test_waiting_notifications_are_dropped_with_their_subscription(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    first, other = subscribe(gateway, 1), subscribe(gateway, 1, subid="s2")
    for text in ("i1", "i2", "i3"):
        notify(gateway, first, text)
    notify(gateway, other, "j1")
    assert end(gateway, first) == [2.0]
    assert [item(one.message) for one in answer_all(gateway, VALVE)] == ["i1", "j1"]
    assert states(gateway) == []


def test_a_subscription_bound_to_presence_keeps_received_notifications(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    subscription = subscribe(gateway, 2, VALVE, presence=True)
    notify(gateway, subscription, "i1")
    gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    notify(gateway, subscription, "i2")
    assert states(gateway) == ["released", "offered"]
    assert end(gateway, subscription) == [1.0]
    assert states(gateway) == ["released"]
