"""Notifications at the level of their subscription: how they travel, wait, and end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from edge.engine.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.outbox.store import dead_letters, outbox
from edge.features.pubsub.service import notifications
from edge.features.pubsub.service.notifications import ItemPublished, Notification
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.subscriptions import Subscription
from tests.helpers.people import PUMP, VALVE, VALVE_BARE, make_available
from tests.helpers.qos_devices import (
    CAM,
    CLIENT,
    Build,
    DeviceRequest,
    bind_eligible,
    empty_result,
    error_result,
    gateway_builder,
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
def build(tmp_path: Path) -> Iterator[Build]:
    with gateway_builder(tmp_path) as build:
        yield build


@pytest.fixture
def gateway(build: Build) -> Gateway:
    return build()


def subscribe(
    gateway: Gateway, qos: int, jid: str = VALVE_BARE, *, presence: bool = False, subid: str = "s1"
) -> Subscription:
    name = jid.partition("@")[0]

    def unit(tx: Transaction) -> Subscription:
        return subscriptions.add(tx, name, jid, subid, filter="#", qos=qos, presence=presence)

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


def items(messages: list[Element]) -> list[str | None]:
    return [item(message) for message in messages]


def told(gateway: Gateway, full: str) -> list[str | None]:
    return [item(one.message) for one in take_requests(gateway, full)]


def answer_all(gateway: Gateway, full: str) -> list[DeviceRequest]:
    """Take what a session was handed, and answer it until nothing more comes."""
    taken = []
    while found := take_requests(gateway, full):
        for one in found:
            gateway.send(full, received_result(one) if one.step == "assured" else empty_result(one))
        taken += found
    return taken


# Level 0


def test_at_level_0_it_is_a_message_to_the_best_session(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    make_available(gateway, OTHER, priority=5)
    notify(gateway, subscribe(gateway, 0), "i1", "headline")
    assert gateway.elements(VALVE)[0].get("type") == "headline"
    (message,) = gateway.elements(OTHER)
    assert (message.tag, message.get("from")) == (f"{CLIENT}message", SERVICE)
    assert (message.get("to"), message.get("type"), item(message)) == (VALVE_BARE, "headline", "i1")


def test_at_level_0_a_normal_one_goes_to_one_session_alone(gateway: Gateway) -> None:
    make_available(gateway, VALVE)
    make_available(gateway, OTHER, priority=5)
    notify(gateway, subscribe(gateway, 0), "i1")
    assert gateway.elements(VALVE) == []
    assert items(gateway.elements(OTHER)) == ["i1"]


def test_at_level_0_who_is_away_finds_it_stored(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 0), "i1")
    bind_eligible(gateway, VALVE)
    assert items(gateway.elements(VALVE)) == ["i1"]


def test_at_level_0_a_headline_for_nobody_is_logged(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 0), "i1", "headline")
    (event,) = gateway.events(name="nobody_there")
    assert event.source == VALVE_BARE
    bind_eligible(gateway, VALVE)
    assert gateway.elements(VALVE) == []


def test_at_level_0_a_session_has_it_alone_that_is_subscribed_alone(gateway: Gateway) -> None:
    subscription = subscribe(gateway, 0, VALVE)
    make_available(gateway, OTHER)
    notify(gateway, subscription, "i1")
    assert [event.name for event in gateway.events()] == ["nobody_there"]
    gateway.bind(VALVE)
    notify(gateway, subscription, "i2")
    (message,) = gateway.elements(VALVE)
    assert (message.get("to"), item(message)) == (VALVE, "i2")
    assert gateway.elements(OTHER) == []


def test_at_level_0_a_revoked_account_is_sent_nothing(gateway: Gateway) -> None:
    subscription = subscribe(gateway, 0)
    gateway.tx(lambda tx: tx.run("UPDATE accounts SET revoked = 1 WHERE name = 'valve'"))
    notify(gateway, subscription, "i1")
    assert gateway.count("SELECT count(*) FROM offline") == 0
    assert [event.name for event in gateway.events()] == ["nobody_there"]


# Levels 1 and 2


@pytest.mark.parametrize(("qos", "step"), [(1, "acknowledged"), (2, "assured")])
def test_at_a_level_it_comes_from_the_service(gateway: Gateway, qos: int, step: str) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, qos), "i1", "headline")
    (one,) = take_requests(gateway, VALVE)
    assert (one.step, one.sender, one.to) == (step, SERVICE, VALVE)
    assert one.message is not None
    assert (one.message.get("from"), one.message.get("to")) == (SERVICE, VALVE_BARE)
    assert (one.message.get("type"), item(one.message)) == ("headline", "i1")


def test_an_acknowledged_one_is_over_when_it_is_answered(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1), "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, empty_result(one))
    assert states(gateway) == []


def test_an_assured_one_is_released_and_over(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 2), "i1")
    (offer,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, received_result(offer))
    (release,) = take_requests(gateway, VALVE)
    assert (release.step, release.sender) == ("deliver", SERVICE)
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []


def test_an_answer_to_another_address_of_the_service_is_none(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1), "i1")
    (one,) = take_requests(gateway, VALVE)
    assert gateway.send(VALVE, empty_result(one._replace(sender=f"{SERVICE}/meters"))) is None
    assert gateway.send(VALVE, empty_result(one._replace(sender=DOMAIN))) is None
    assert states(gateway) == ["offered"]
    assert gateway.send(CAM, empty_result(one)) is None
    assert states(gateway) == ["offered"]


def test_an_answer_of_before_the_gateway_was_made_anew_is_passed_over(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1), "i1")
    (one,) = take_requests(gateway, VALVE)
    stranger = one._replace(id=one.id.replace("01JZ", "01JA"))
    assert gateway.send(VALVE, empty_result(stranger)) is None
    assert states(gateway) == ["offered"]


def test_who_is_away_has_them_in_order_when_it_comes(gateway: Gateway) -> None:
    subscription = subscribe(gateway, 1)
    for text in ("i1", "i2", "i3"):
        notify(gateway, subscription, text)
    bind_eligible(gateway, VALVE)
    assert [item(one.message) for one in answer_all(gateway, VALVE)] == ["i1", "i2", "i3"]


def test_they_outlast_a_crash(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 2), "i1")
    (offer,) = take_requests(gateway, VALVE)
    gateway.crash()
    bind_eligible(gateway, VALVE)
    (again,) = take_requests(gateway, VALVE)
    assert (again.id, again.msg_id) == (offer.id, offer.msg_id)


def test_subscriptions_do_not_wait_for_each_other(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1), "i1")
    notify(gateway, subscribe(gateway, 1, subid="s2"), "i2")
    assert told(gateway, VALVE) == ["i1", "i2"]


# One session alone


def test_one_session_alone_has_what_it_is_subscribed_to(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER, priority=5)
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    assert told(gateway, OTHER) == []
    (one,) = take_requests(gateway, VALVE)
    assert one.message is not None
    assert (one.to, one.message.get("to")) == (VALVE, VALVE)


def test_it_waits_for_that_session_and_no_other(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    notify(gateway, subscribe(gateway, 2, VALVE), "i1")
    assert told(gateway, OTHER) == []
    bind_eligible(gateway, VALVE)
    assert [item(one.message) for one in answer_all(gateway, VALVE)] == ["i1", None]
    assert told(gateway, OTHER) == []


def test_what_was_sent_to_it_is_not_another_s_when_it_goes(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.leave(VALVE)
    assert told(gateway, OTHER) == []
    bind_eligible(gateway, VALVE)
    (again,) = take_requests(gateway, VALVE)
    assert again.id == one.id


def test_what_waits_for_one_session_takes_no_place_on_the_way(build: Build) -> None:
    gateway = build(outbox_window=2)
    bind_eligible(gateway, VALVE)
    bind_eligible(gateway, OTHER)
    alone = [subscribe(gateway, 1, VALVE, subid=f"a{number}") for number in range(3)]
    for number, subscription in enumerate(alone):
        notify(gateway, subscription, f"i{number}")
    assert told(gateway, VALVE) == ["i0", "i1"]
    gateway.leave(VALVE)
    shared = [subscribe(gateway, 1, subid=f"b{number}") for number in range(2)]
    for number, subscription in enumerate(shared):
        notify(gateway, subscription, f"j{number}")
    assert told(gateway, OTHER) == ["j0", "j1"]


def test_a_session_of_which_nothing_is_known_is_asked_though_another_takes(
    gateway: Gateway,
) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE, qos=None)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (asked,) = gateway.elements(VALVE)
    assert asked[0].tag == "{http://jabber.org/protocol/disco#info}query"
    assert told(gateway, OTHER) == []
    make_eligible(gateway, VALVE)
    assert told(gateway, VALVE) == ["i1"]


def test_a_session_without_quality_of_service_has_it_plainly_if_its_account_allows(
    gateway: Gateway,
) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE, qos="")
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    assert gateway.elements(VALVE) == []
    gateway.tx(lambda tx: accounts.set_downgrade(tx, "valve", downgrade=True))
    make_eligible(gateway, VALVE, qos="")
    (message,) = gateway.elements(VALVE)
    assert (message.tag, message.get("from"), item(message)) == (f"{CLIENT}message", SERVICE, "i1")
    assert states(gateway) == []
    assert told(gateway, OTHER) == []


def test_a_session_that_is_negative_takes_nothing_for_itself_alone(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE, priority=-1)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    assert told(gateway, VALVE) == []
    make_eligible(gateway, VALVE)
    assert told(gateway, VALVE) == ["i1"]


# Limits


def test_nodes_are_not_bound_by_the_limit_of_one_source(build: Build) -> None:
    gateway = build(outbox_messages_per_source=2)
    subscription = subscribe(gateway, 1)
    for number in range(5):
        notify(gateway, subscription, f"i{number}")
    assert len(states(gateway)) == 5


def test_a_full_outbox_is_told_and_leaves_room_to_others(build: Build) -> None:
    gateway = build(outbox_messages_per_account=8)
    subscription = subscribe(gateway, 1)
    for number in range(9):
        notify(gateway, subscription, f"i{number}")
    assert len(states(gateway)) == 7  # an eighth is for those who send little
    (event,) = gateway.events(name="outbox_messages_per_account")
    assert (event.source, event.tags) == (VALVE_BARE, {"limit": "7"})
    send_assured(gateway, PUMP, "m1", "there is room", VALVE_BARE)
    assert len(states(gateway)) == 8


def test_all_outboxes_together_bound_notifications_too(build: Build) -> None:
    gateway = build(outbox_messages=8)
    notify(gateway, subscribe(gateway, 1), "i1")
    subscription = subscribe(gateway, 1, "cam@gw.example", subid="s2")
    for number in range(9):
        notify(gateway, subscription, f"j{number}")
    assert len(states(gateway)) == 7
    assert [event.name for event in gateway.events()] == ["outbox_messages"]


# The end


def test_one_that_fails_is_kept_and_nobody_is_told(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.send(VALVE, error_result(one, "cancel", "not-allowed"))
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert (letter.sender, letter.destination) == (f"{SERVICE}/meters", VALVE)
    assert letter.state == "failed"
    (event,) = gateway.events(name="dead")
    assert event.source == f"{SERVICE}/meters"
    assert gateway.sent == []


def test_one_that_is_requeued_is_for_that_session_alone_still(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    gateway.send(VALVE, error_result(take_requests(gateway, VALVE)[0], "cancel", "not-allowed"))
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    gateway.tx(lambda tx: dead_letters.requeue(tx, letter.row, may_repeat=False))
    gateway.tx(gateway.router.run_external_change)
    (one,) = take_requests(gateway, VALVE)
    assert (one.sender, item(one.message)) == (SERVICE, "i1")
    assert told(gateway, OTHER) == []


def test_one_in_doubt_is_released_again_by_the_operator(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    notify(gateway, subscribe(gateway, 2), "i1")
    gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    gateway.send(VALVE, error_result(take_requests(gateway, VALVE)[0], "cancel", "not-allowed"))
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert (letter.state, letter.session) == ("in doubt", VALVE)
    gateway.tx(lambda tx: dead_letters.requeue(tx, letter.row, may_repeat=False))
    gateway.tx(gateway.router.run_external_change)
    (release,) = take_requests(gateway, VALVE)
    assert (release.step, release.sender) == ("deliver", SERVICE)
    gateway.send(VALVE, empty_result(release))
    assert states(gateway) == []


def test_one_that_waits_too_long_dies(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 1), "i1")
    gateway.clock.service += gateway.limits.outbox_ttl + 1
    gateway.ring()
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert letter.destination == VALVE_BARE


def end(gateway: Gateway, subscription: Subscription) -> None:
    gateway.tx(lambda tx: notifications.drop_waiting(gateway.router.context, tx, subscription))


def dropped(gateway: Gateway) -> list[float | None]:
    return [event.value for event in gateway.events(name="notifications_dropped")]


def test_what_waits_for_a_subscription_is_dropped_with_it_and_told(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    first, other = subscribe(gateway, 1), subscribe(gateway, 1, subid="s2")
    for text in ("i1", "i2", "i3"):
        notify(gateway, first, text)
    notify(gateway, other, "j1")
    end(gateway, first)
    assert dropped(gateway) == [2.0]
    assert [item(one.message) for one in answer_all(gateway, VALVE)] == ["i1", "j1"]
    assert states(gateway) == []


def test_nothing_is_told_of_a_subscription_that_nothing_waited_for(gateway: Gateway) -> None:
    end(gateway, subscribe(gateway, 1))
    assert dropped(gateway) == []


def test_what_ends_with_a_session_leaves_what_that_has_received(gateway: Gateway) -> None:
    bind_eligible(gateway, VALVE)
    subscription = subscribe(gateway, 2, VALVE, presence=True)
    notify(gateway, subscription, "i1")
    gateway.send(VALVE, received_result(take_requests(gateway, VALVE)[0]))
    notify(gateway, subscription, "i2")
    assert states(gateway) == ["released", "offered"]
    end(gateway, subscription)
    assert dropped(gateway) == [1.0]
    assert states(gateway) == ["released"]


def test_rows_name_for_whom_alone_they_are(gateway: Gateway) -> None:
    notify(gateway, subscribe(gateway, 1, VALVE), "i1")
    row = gateway.tx(lambda tx: outbox.find(tx, 1))
    assert row is not None
    assert (row.only_session, row.session, row.queue_item, row.source) == (
        VALVE,
        VALVE,
        None,
        f"{SERVICE}/s1",
    )
    assert read_element(gateway.tx(lambda tx: outbox.body(tx, 1))).get("from") is None
