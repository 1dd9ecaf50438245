"""Shared subscriptions (MQTT-234) on an in-process gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.features.accounts.store import accounts
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import StoredDeadLetter
from edge.features.queues.rules.transitions import MAX_DELIVERIES
from edge.features.queues.service import admin
from edge.features.queues.store import overview, queue_items, queue_members, queues
from edge.xmpp.namespaces import REDELIVERED, clark
from tests.helpers import queue_nodes
from tests.helpers.people import PUMP, VALVE, VALVE_BARE, make_available
from tests.helpers.pubsub import create, element, send_request, subscribe
from tests.helpers.qos_devices import (
    CAM,
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
from tests.helpers.shared_subscriptions import (
    NODE,
    SHARE,
    answer,
    answer_all,
    item_states,
    join,
    leave,
    offered_items,
    plain_items,
    publish,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

OTHER: Final = f"valve@{DOMAIN}/spare"
SENT_TO: Final = """
SELECT s.full FROM temp.in_flight AS u JOIN temp.sessions AS s USING (generation)
WHERE u.kind = 'share'
"""
TIMES: Final = clark(REDELIVERED, "redelivered")


@pytest.fixture
def build(build_with_devices: Build) -> Build:
    """A function that builds a gateway on which the pump publishes and all sessions support QoS."""

    def build(**limits: float) -> Gateway:
        gateway = build_with_devices(**limits)
        create(gateway, PUMP, NODE, publish_model="open")
        make_eligible(gateway, CAM)
        bind_eligible(gateway, VALVE)
        return gateway

    return build


@pytest.fixture
def gateway(build: Build) -> Gateway:
    return build()


def ids(count: int) -> list[str]:
    return [f"i{number}" for number in range(count)]


def offer_item(gateway: Gateway, qos: str) -> DeviceRequest:
    """Offer an item to the valve before the camera joins."""
    join(gateway, VALVE, qos=qos)
    publish(gateway, "i1")
    (offer,) = take_requests(gateway, VALVE)
    join(gateway, CAM, qos=qos)
    return offer


def list_dead(gateway: Gateway) -> list[StoredDeadLetter]:
    return gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))


# Members share items


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_each_item_goes_to_one_member(gateway: Gateway, qos: str) -> None:
    for full in (VALVE, CAM):
        join(gateway, full, qos=qos)
    publish(gateway, *ids(6))
    take = plain_items if qos == "0" else answer_all
    both = take(gateway, VALVE), take(gateway, CAM)
    assert sorted(name or "" for one in both for name in one) == ids(6)
    assert [len(one) for one in both] == [3, 3]
    assert item_states(gateway) == []


def test_a_delivery_names_the_subscription(gateway: Gateway) -> None:
    found = join(gateway, VALVE)
    publish(gateway, "i1")
    (one,) = take_requests(gateway, VALVE)
    assert one.message is not None
    headers = one.message.iter("{http://jabber.org/protocol/shim}header")
    assert [(header.get("name"), header.text) for header in headers] == [("SubID", found)]


def test_shares_filters_and_nodes_each_deliver_an_item_once(gateway: Gateway) -> None:
    """Another name or another filter is another share."""
    for share in (SHARE, "$share:other:plant/#", "$share:pool:plant/+/temp"):
        join(gateway, VALVE, share)
    for node in ("plant/#", NODE):
        join(gateway, VALVE, node, qos="1")
    publish(gateway, "i1")
    assert answer_all(gateway, VALVE) == ["i1"] * 5


def test_a_share_gets_only_items_that_match_its_filter(gateway: Gateway) -> None:
    create(gateway, PUMP, "site/gate")
    join(gateway, VALVE)
    publish(gateway, "i1", node="site/gate")
    assert offered_items(gateway, VALVE) == []
    publish(gateway, "i2")
    assert offered_items(gateway, VALVE) == ["i2"]


# Connected members


def test_items_wait_while_all_members_are_full(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_requests="2")
    publish(gateway, *ids(5))
    first, _second = take_requests(gateway, VALVE)
    assert [state for _item, state in item_states(gateway)].count("ready") == 3
    gateway.send(VALVE, empty_result(first))
    assert offered_items(gateway, VALVE) == ["i2"]
    join(gateway, CAM)
    assert (offered_items(gateway, VALVE), offered_items(gateway, CAM)) == ([], ["i3", "i4"])


def test_a_durable_member_gets_nothing_while_disconnected(gateway: Gateway) -> None:
    join(gateway, VALVE)
    gateway.end(VALVE)
    join(gateway, CAM)
    publish(gateway, *ids(3))
    assert answer_all(gateway, CAM) == ids(3)
    bind_eligible(gateway, VALVE)
    assert offered_items(gateway, VALVE) == []


def test_items_published_without_connected_members_wait_for_the_first(gateway: Gateway) -> None:
    join(gateway, VALVE)
    gateway.end(VALVE)
    publish(gateway, *ids(3))
    assert states(gateway) == []
    bind_eligible(gateway, OTHER)
    assert answer_all(gateway, OTHER) == ids(3)


def queries(gateway: Gateway, full: str) -> int:
    """Return the number of capability queries sent to a session since the last call."""
    found = [one[0].tag for one in gateway.elements(full) if len(one)]
    return found.count("{http://jabber.org/protocol/disco#info}query")


@pytest.mark.parametrize("jid", [OTHER, VALVE_BARE])
def test_a_member_is_queried_for_qos_before_an_item_waits(gateway: Gateway, jid: str) -> None:
    bind_eligible(gateway, OTHER, qos=None)
    join(gateway, OTHER, jid=jid)
    assert queries(gateway, OTHER) == 1
    gateway.end(OTHER)
    bind_eligible(gateway, OTHER, qos=None)
    gateway.run_timers()
    assert queries(gateway, OTHER) == 1


def test_a_full_jid_is_queried_without_presence_and_for_new_caps(gateway: Gateway) -> None:
    join(gateway, VALVE, jid=VALVE)
    gateway.end(VALVE)
    gateway.bind(VALVE)
    assert queries(gateway, VALVE) == 0  # the session does not know yet that it is bound
    gateway.run_timers()
    assert queries(gateway, VALVE) == 1
    c = "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='urn:example:w' ver='new'/>"
    gateway.send(VALVE, f"<presence><priority>-1</priority>{c}</presence>")
    assert gateway.due == gateway.clock.service
    gateway.run_timers()
    assert queries(gateway, VALVE) == 1


@pytest.mark.parametrize("qos", ["0", None])
def test_a_session_is_not_queried_for_a_subscription_that_needs_no_qos(
    gateway: Gateway, qos: str | None
) -> None:
    bind_eligible(gateway, OTHER, qos=None)
    create(gateway, PUMP, "work", queueing="1")
    if qos is None:
        subscribe(gateway, OTHER, "work", jid=OTHER, queue_requests="5")
    else:
        join(gateway, OTHER, jid=OTHER, qos=qos)
    gateway.run_timers()
    assert queries(gateway, OTHER) == 0


@pytest.mark.parametrize("qos", ["0", "1", "2", None])
def test_a_resumed_member_gets_its_part_of_the_items(gateway: Gateway, qos: str | None) -> None:
    create(gateway, PUMP, "work", queueing="1")
    node = "work" if qos is None else NODE
    for full in (VALVE, CAM):
        if qos is None:
            subscribe(gateway, full, "work", queue_requests="5")
        else:
            join(gateway, full, qos=qos)

    def take(full: str) -> list[str | None]:
        if qos not in (None, "0"):
            return answer_all(gateway, full)
        found = plain_items(gateway, full)
        for id in found if qos is None else ():
            content = element("retract", element("item", id=id), node="work")
            assert send_request(gateway, full, content).type == "result"
        gateway.sent.clear()
        return found

    gateway.detach(VALVE)
    for number in range(3):
        publish(gateway, f"away{number}", node=node)
        assert take(CAM) == [f"away{number}"]
    gateway.resume(VALVE)
    for number, full in enumerate([VALVE, CAM, VALVE, CAM]):
        publish(gateway, f"back{number}", node=node)
        assert take(full) == [f"back{number}"]


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_session_without_qos_support_gets_no_items_at_qos_1_or_2(
    gateway: Gateway, qos: str
) -> None:
    bind_eligible(gateway, OTHER, qos="")
    join(gateway, OTHER, jid=OTHER, qos=qos)
    join(gateway, CAM, qos=qos)
    publish(gateway, *ids(2))
    assert answer_all(gateway, CAM) == ids(2)
    assert gateway.elements(OTHER) == []


def test_a_session_without_qos_support_gets_items_if_downgraded(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.set_downgrade(tx, "valve", downgrade=True))
    bind_eligible(gateway, OTHER, qos="")
    join(gateway, OTHER, jid=OTHER)
    publish(gateway, *ids(2))
    assert plain_items(gateway, OTHER) == ids(2)
    assert item_states(gateway) == []


# QoS 1: reassigned


def end(gateway: Gateway, _offer: DeviceRequest) -> None:
    gateway.end(VALVE)


def become_unavailable(gateway: Gateway, _offer: DeviceRequest) -> None:
    gateway.send(VALVE, "<presence type='unavailable'/>")


def refuse(gateway: Gateway, offer: DeviceRequest) -> None:
    gateway.send(VALVE, error_result(offer, "cancel", "not-allowed"))


def end_with_its_subscription(gateway: Gateway, _offer: DeviceRequest) -> None:
    join(gateway, VALVE, expire="presence")
    gateway.end(VALVE)
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1


def unsubscribe(gateway: Gateway, _offer: DeviceRequest) -> None:
    leave(gateway, VALVE)


def remove_account(gateway: Gateway, _offer: DeviceRequest) -> None:
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'valve'"))
    gateway.tx(gateway.router.context.run_external_change)


@pytest.mark.parametrize(
    "lose",
    [end, end_with_its_subscription, become_unavailable, refuse, unsubscribe, remove_account],
)
def test_qos_1_lost_item_goes_to_another_member(
    gateway: Gateway, lose: Callable[[Gateway, DeviceRequest], None]
) -> None:
    lose(gateway, offer_item(gateway, "1"))
    (one,) = take_requests(gateway, CAM)
    assert one.message is not None
    assert [redelivered.get("times") for redelivered in one.message.iter(TIMES)] == ["1"]
    answer(gateway, CAM, one)
    assert item_states(gateway) == []
    assert states(gateway) == []
    assert list_dead(gateway) == []


def test_qos_1_acknowledged_item_is_not_reassigned(gateway: Gateway) -> None:
    join(gateway, VALVE)
    join(gateway, CAM)
    publish(gateway, "i1")
    full = next(full for full in (VALVE, CAM) if answer_all(gateway, full))
    gateway.end(full)
    assert offered_items(gateway, CAM if full == VALVE else VALVE) == []


def test_qos_1_answer_of_an_ended_session_is_ignored(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    (one,) = take_requests(gateway, VALVE)
    gateway.end(VALVE)
    bind_eligible(gateway, VALVE)
    (again,) = take_requests(gateway, VALVE)
    assert again.msg_id == one.msg_id or again.id != one.id
    gateway.send(VALVE, empty_result(one))
    assert [state for _item, state in item_states(gateway)] == ["locked"]
    gateway.send(VALVE, empty_result(again))
    assert item_states(gateway) == []


def test_qos_1_item_goes_to_another_member_after_a_restart(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    gateway.crash()
    gateway.run_timers()
    assert states(gateway) == []
    assert item_states(gateway) == [("i1", "ready")]
    bind_eligible(gateway, CAM)
    join(gateway, CAM)
    assert answer_all(gateway, CAM) == ["i1"]


def test_qos_1_item_stays_with_a_member_that_returns_after_a_restart(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    gateway.crash()
    bind_eligible(gateway, VALVE)
    gateway.run_timers()
    assert answer_all(gateway, VALVE) == ["i1"]
    assert item_states(gateway) == []


def test_qos_1_item_that_is_always_refused_is_dead(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    for _ in range(MAX_DELIVERIES):
        refuse(gateway, *take_requests(gateway, VALVE))
    assert item_states(gateway) == [("i1", "dead")]
    assert len(gateway.events(name="queue_dead")) == 1


def test_qos_1_item_without_answer_goes_to_another_member(build: Build) -> None:
    gateway = build(retry_attempts=2)
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    for attempt in (1, 2):
        assert offered_items(gateway, VALVE) == ["i1"], attempt
        assert offered_items(gateway, CAM) == []
        gateway.clock.service += 3600
        gateway.run_timers()
    assert answer_all(gateway, CAM) == ["i1"]
    assert item_states(gateway) == []
    assert offered_items(gateway, VALVE) == []


def test_qos_1_item_stays_after_a_wait_error(gateway: Gateway) -> None:
    offer = offer_item(gateway, "1")
    gateway.send(VALVE, error_result(offer, "wait", "resource-constraint"))
    assert offered_items(gateway, CAM) == []
    gateway.end(VALVE)
    assert offered_items(gateway, CAM) == ["i1"]


def test_qos_1_items_that_were_never_sent_do_not_count_deliveries(gateway: Gateway) -> None:
    """Only `outbox_window` messages are in flight to an account at a time."""
    sent = gateway.limits.outbox_window
    join(gateway, VALVE, queue_requests="50")
    publish(gateway, *ids(40))
    for _each in range(MAX_DELIVERIES):
        gateway.end(VALVE)
        bind_eligible(gateway, VALVE)
        gateway.run_timers()
    found = Counter(state for _item, state in item_states(gateway))
    assert found == {"dead": sent, "locked": 40 - sent}
    assert answer_all(gateway, VALVE) == ids(40)[sent:]


def test_qos_1_item_is_not_passed_between_members_while_the_gateway_stops(gateway: Gateway) -> None:
    for full in (VALVE, CAM):
        join(gateway, full)
    publish(gateway, "i1")
    gateway.lifecycle.stop()
    for full in (VALVE, CAM):
        gateway.end(full)
    assert item_states(gateway) == [("i1", "ready")]
    assert gateway.count("SELECT deliveries FROM queue_items") == 1


# QoS 0 and 2: never reassigned


def test_qos_0_items_lost_with_a_session_are_logged_and_not_reassigned(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0")
    publish(gateway, "received")
    assert plain_items(gateway, VALVE) == ["received"]
    publish(gateway, *ids(2))
    join(gateway, CAM, qos="0")
    gateway.end(VALVE)
    assert plain_items(gateway, CAM) == []
    assert item_states(gateway) == []
    (event,) = gateway.events(name="share_lost")
    assert event.value == 2.0
    bind_eligible(gateway, VALVE)
    assert plain_items(gateway, VALVE) == []


def test_qos_0_items_in_flight_do_not_exceed_requests(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0", queue_requests="2")
    publish(gateway, *ids(5))
    assert [state for _item, state in item_states(gateway)] == ["ready"] * 3
    assert plain_items(gateway, VALVE) == ids(2)
    assert plain_items(gateway, VALVE) == ["i2", "i3"]
    assert plain_items(gateway, VALVE) == ["i4"]


def test_qos_2_item_waits_for_its_member(gateway: Gateway) -> None:
    offer = offer_item(gateway, "2")
    gateway.end(VALVE)
    assert offered_items(gateway, CAM) == []
    bind_eligible(gateway, VALVE)
    (again,) = take_requests(gateway, VALVE)
    assert (again.id, again.msg_id) == (offer.id, offer.msg_id)
    answer(gateway, VALVE, again)
    assert answer_all(gateway, VALVE) == []
    assert item_states(gateway) == []


@pytest.mark.parametrize("steps", [0, 1])
def test_qos_2_item_stays_with_its_member_after_a_restart(gateway: Gateway, steps: int) -> None:
    join(gateway, VALVE, qos="2")
    join(gateway, CAM, jid=CAM, qos="2")
    publish(gateway, "i1")
    full = next(full for full in (VALVE, CAM) if (found := take_requests(gateway, full)))
    if steps:
        gateway.send(full, received_result(found[0]))
    gateway.crash()
    gateway.run_timers()
    other = CAM if full == VALVE else VALVE
    bind_eligible(gateway, other)
    assert take_requests(gateway, other) == []
    bind_eligible(gateway, full)
    assert [one.step for one in take_requests(gateway, full)] == [["assured", "deliver"][steps]]


def test_qos_2_unsent_items_go_to_another_member(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2", queue_requests="20")
    publish(gateway, *ids(12))
    sent = len(take_requests(gateway, VALVE))
    assert sent < 12
    join(gateway, CAM, qos="2", queue_requests="20")
    gateway.end(VALVE)
    assert answer_all(gateway, CAM) == ids(12)[sent:]
    bind_eligible(gateway, VALVE)
    assert answer_all(gateway, VALVE) == ids(12)[:sent]


def test_qos_2_offered_item_is_dead_when_the_subscription_ends(gateway: Gateway) -> None:
    offer_item(gateway, "2")
    leave(gateway, VALVE)
    assert offered_items(gateway, CAM) == []
    assert item_states(gateway) == [("i1", "dead")]
    assert states(gateway) == []


def test_qos_2_received_item_is_in_doubt_when_the_subscription_ends(gateway: Gateway) -> None:
    gateway.send(VALVE, received_result(offer_item(gateway, "2")))
    (release,) = take_requests(gateway, VALVE)
    leave(gateway, VALVE)
    assert offered_items(gateway, CAM) == []
    assert item_states(gateway) == []
    (dead,) = list_dead(gateway)
    assert (dead.state, dead.session) == ("in doubt", VALVE)
    gateway.tx(lambda tx: dead_letters.requeue(tx, dead.row, may_repeat=False))
    gateway.tx(gateway.router.context.run_external_change)
    (again,) = take_requests(gateway, VALVE)
    assert (again.id, again.step) == (release.id, "deliver")
    gateway.send(VALVE, empty_result(again))
    assert states(gateway) == []


def test_qos_2_plain_message_is_in_doubt_when_the_subscription_ends(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.set_downgrade(tx, "valve", downgrade=True))
    make_eligible(gateway, VALVE, qos="")
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    join(gateway, CAM, qos="2")
    leave(gateway, VALVE)
    assert offered_items(gateway, CAM) == []
    assert item_states(gateway) == []
    (dead,) = list_dead(gateway)
    assert (dead.state, dead.session) == ("in doubt", None)


def test_qos_2_requeued_item_in_doubt_goes_to_the_same_account(gateway: Gateway) -> None:
    gateway.send(VALVE, received_result(offer_item(gateway, "2")))
    refuse(gateway, *take_requests(gateway, VALVE))
    assert item_states(gateway) == []
    (dead,) = list_dead(gateway)
    gateway.tx(lambda tx: dead_letters.requeue(tx, dead.row, may_repeat=True))
    gateway.tx(gateway.router.context.run_external_change)
    assert answer_all(gateway, VALVE) == ["i1"]


def test_requeued_dead_items_go_to_any_member(gateway: Gateway) -> None:
    refuse(gateway, offer_item(gateway, "2"))
    leave(gateway, VALVE)

    def requeue(tx: Transaction) -> None:
        (queue,) = overview.page(tx, 0, 10)
        admin.requeue(tx, queue, ["i1"])

    gateway.tx(requeue)
    gateway.tx(gateway.router.context.run_external_change)
    assert answer_all(gateway, CAM) == ["i1"]


@pytest.mark.parametrize(
    ("before", "now", "expected"), [("1", "0", []), ("1", "2", ["locked"]), ("2", "1", ["locked"])]
)
def test_a_change_of_qos_applies_to_later_items(
    gateway: Gateway, before: str, now: str, expected: list[str]
) -> None:
    join(gateway, VALVE, qos=before)
    publish(gateway, "i1")
    join(gateway, VALVE, qos=now)
    join(gateway, CAM, qos=now)
    gateway.end(VALVE)
    take = plain_items if now == "0" else offered_items
    assert take(gateway, CAM) == (["i1"] if before == "1" else [])
    assert [state for _item, state in item_states(gateway)] == expected


# Counters of items in flight


def test_items_at_qos_0_received_by_one_session_do_not_count_for_another(gateway: Gateway) -> None:
    bind_eligible(gateway, OTHER)
    join(gateway, VALVE, qos="0", queue_requests="1")
    for name in "abcd":
        publish(gateway, name)
        assert plain_items(gateway, VALVE) + plain_items(gateway, OTHER) == [name]
    gateway.end(VALVE)
    publish(gateway, "e")
    assert plain_items(gateway, OTHER) == ["e"]


@pytest.mark.parametrize("jid", [None, VALVE])
def test_items_at_qos_0_lost_with_a_session_do_not_count_for_another(
    gateway: Gateway, jid: str | None
) -> None:
    """A membership by full JID ends with its session."""
    bind_eligible(gateway, OTHER)
    join(gateway, VALVE, qos="0", queue_requests="1")
    if jid is not None:
        join(gateway, VALVE, "$share:pool:other", jid, qos="0", expire="presence")
    publish(gateway, "a")
    holder = gateway.count(SENT_TO)
    gateway.end(holder)
    publish(gateway, "b")
    assert plain_items(gateway, OTHER if holder == VALVE else VALVE) == ["b"]


def test_items_sent_at_qos_0_do_not_count_after_a_change_to_qos_1(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0", queue_requests="2")
    publish(gateway, "a", "b")
    join(gateway, VALVE, qos="1", queue_requests="2")
    assert plain_items(gateway, VALVE) == ["a", "b"]
    publish(gateway, "c")
    assert answer_all(gateway, VALVE) == ["c"]


def test_items_locked_at_qos_1_stop_counting_after_a_change_to_qos_0(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="1", queue_requests="1")
    publish(gateway, "a")
    join(gateway, VALVE, qos="0", queue_requests="1")
    assert answer_all(gateway, VALVE) == ["a"]
    for name in "bcd":
        publish(gateway, name)
        assert plain_items(gateway, VALVE) == [name]


def test_a_unit_that_needs_the_database_loses_no_counts_of_others(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0")
    (member,) = gateway.commit(lambda tx: queue_members.with_room(tx, 1, 1))
    tx = Transaction(None, gateway.clock(), gateway.cache)
    queue_members.count_assignment(tx, 1, member, 10, 1000)
    tx.take_sends()
    with pytest.raises(NeedsDatabase):
        queue_members.has_stalled(tx)
    tx.undo()
    tx.connect(gateway.connection, tx.now)
    tx.run_before_commit()
    assert gateway.count("SELECT in_flight FROM temp.queue_members") == 1


# The end of a shared subscription


@pytest.mark.parametrize("end", [unsubscribe, remove_account])
def test_a_share_ends_with_its_last_member(
    gateway: Gateway, end: Callable[[Gateway, DeviceRequest], None]
) -> None:
    join(gateway, VALVE, queue_requests="1")
    publish(gateway, *ids(3))
    (offer,) = take_requests(gateway, VALVE)
    end(gateway, offer)
    assert item_states(gateway) == []
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM queues") == 0
    (event,) = gateway.events(name="share_ended")
    assert (event.value, event.unit, event.level) == (3.0, "items", "Warning")
    publish(gateway, "later")
    join(gateway, CAM)
    assert offered_items(gateway, CAM) == []


# Policies


def test_by_hash_items_of_a_publisher_go_to_one_member_in_order(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_policy="hash")
    join(gateway, CAM, queue_policy="hash")
    publish(gateway, *ids(5))
    recipient = gateway.count("SELECT DISTINCT recipient FROM outbox")
    full = VALVE if recipient == "valve" else CAM
    (first,) = take_requests(gateway, full)
    assert take_requests(gateway, CAM if full == VALVE else VALVE) == []
    answer(gateway, full, first)
    assert answer_all(gateway, full) == ids(5)[1:]


# Limits


@pytest.mark.parametrize("another", [False, True])
def test_items_wait_for_a_member_whose_outbox_is_full_or_go_to_another(
    build: Build, another: bool
) -> None:
    gateway = build(outbox_messages_per_account=8)
    gateway.end(VALVE)
    for number in range(7):
        send_assured(gateway, PUMP, f"m{number}", "x", VALVE_BARE)
    bind_eligible(gateway, VALVE)
    join(gateway, VALVE)
    if another:
        join(gateway, CAM)
    publish(gateway, *ids(2))
    assert answer_all(gateway, CAM) == (ids(2) if another else [])
    assert item_states(gateway) == ([] if another else [("i0", "ready"), ("i1", "ready")])
    answer_all(gateway, VALVE)
    gateway.clock.service += 60
    gateway.run_timers()
    assert answer_all(gateway, VALVE) == ([] if another else ids(2))


def test_a_full_share_refuses_publications(build: Build) -> None:
    gateway = build(items_per_queue=2)
    join(gateway, VALVE)
    gateway.end(VALVE)
    publish(gateway, *ids(2))
    item = element("item", "<v xmlns='urn:v'/>", id="i2")
    reply = send_request(gateway, PUMP, element("publish", item, node=NODE))
    assert reply.error == ("wait", "resource-constraint")
    assert [item for item, _state in item_states(gateway)] == ids(2)


def test_unserved_shares_leave_capacity_for_queue_nodes(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(Limits(queue_items=4, items_per_queue=4))
    queue_nodes.set_up(gateway)
    create(gateway, queue_nodes.OWNER, NODE)
    gateway.add("idle")
    make_available(gateway, f"idle@{DOMAIN}/1", priority=-1)
    join(gateway, f"idle@{DOMAIN}/1")
    publish(gateway, "a", "b", full=queue_nodes.OWNER)
    item = element("item", "<v xmlns='urn:v'/>", id="c")
    refused = send_request(gateway, queue_nodes.OWNER, element("publish", item, node=NODE))
    assert refused.error == ("wait", "resource-constraint")
    queue_nodes.publish(gateway, "d", "e")
    assert queue_nodes.try_publish(gateway, "f").error == ("wait", "resource-constraint")


def test_cached_queues_are_limited(gateway: Gateway) -> None:
    def use(tx: Transaction) -> list[int]:
        for queue in range(queues.CACHED_QUEUES + 2):
            queue_members.with_room(tx, queue, 1)
            queue_items.next_ready(tx, queue, 1)
        return [len(tx.cache[name]) for name in (queue_members._IMAGE, queue_items._DRAINED)]

    assert max(gateway.tx(use)) <= queues.CACHED_QUEUES


def test_a_member_gets_no_items_of_nodes_it_may_not_subscribe_to(gateway: Gateway) -> None:
    create(gateway, PUMP, "plant/secret", access_model="whitelist")
    join(gateway, VALVE)
    publish(gateway, "i1", node="plant/secret")
    assert item_states(gateway) == []
    assert offered_items(gateway, VALVE) == []
