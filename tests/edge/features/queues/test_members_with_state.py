"""Subscriptions and memberships of shares of sessions whose state outlives them."""

from __future__ import annotations

from typing import Final

import pytest

from edge.engine.sessions.sessions import Declaration
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import create, list_subscriptions, subscribe
from tests.helpers.qos_devices import CAM, Build, make_eligible, states, take_requests
from tests.helpers.shared_subscriptions import (
    NODE,
    SHARE,
    answer_all,
    item_states,
    join,
    leave,
    offered_items,
    publish,
)
from tests.helpers.store import QOS, Gateway

NUMBERED: Final = Declaration(
    QOS, adopts=False, resends=False, ordered=True, window=4, ids=1000, durable=500.0
)


def connect(gateway: Gateway, declared: Declaration = NUMBERED) -> bool:
    gateway.bind(VALVE, declared)
    make_eligible(gateway, VALVE)
    return gateway.is_resumed


def crash(gateway: Gateway) -> None:
    """Kill the gateway; all but the valve come back."""
    gateway.crash()
    gateway.run_timers()
    for full in (PUMP, CAM):
        gateway.bind(full)
        make_eligible(gateway, full)


@pytest.fixture
def gateway(build_with_devices: Build) -> Gateway:
    gateway = build_with_devices()
    create(gateway, PUMP, NODE, publish_model="open")
    make_eligible(gateway, CAM)
    connect(gateway)
    return gateway


def test_notifications_wait_for_an_absent_session_across_restarts(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE, VALVE, qos="2")
    gateway.end(VALVE)
    publish(gateway, "i1")
    crash(gateway)
    publish(gateway, "i2")
    assert connect(gateway) is True
    assert answer_all(gateway, VALVE) == ["i1", "i2"]
    assert states(gateway) == []


@pytest.mark.parametrize("qos", ["1", "2"])
def test_share_gives_no_item_to_an_absent_member(gateway: Gateway, qos: str) -> None:
    join(gateway, VALVE, jid=VALVE, qos=qos)
    join(gateway, CAM, qos=qos)
    gateway.end(VALVE)
    publish(gateway, "i1", "i2")
    assert answer_all(gateway, CAM) == ["i1", "i2"]
    crash(gateway)
    publish(gateway, "i3")
    assert answer_all(gateway, CAM) == ["i3"]
    assert connect(gateway) is True
    publish(gateway, "i4")
    both = answer_all(gateway, VALVE), answer_all(gateway, CAM)
    assert sorted(map(len, both)) == [0, 1]
    publish(gateway, "i5", "i6")
    assert all(answer_all(gateway, full) for full in (VALVE, CAM))
    assert item_states(gateway) == []


def test_item_at_qos_2_waits_for_the_member_that_was_offered_it(gateway: Gateway) -> None:
    join(gateway, VALVE, jid=VALVE, qos="2")
    publish(gateway, "i1")
    join(gateway, CAM, qos="2")
    assert offered_items(gateway, VALVE) == ["i1"]
    gateway.end(VALVE)
    crash(gateway)
    assert offered_items(gateway, CAM) == []
    assert connect(gateway) is True
    assert answer_all(gateway, VALVE) == ["i1"]
    assert item_states(gateway) == []


def leave_with_items(gateway: Gateway, qos: str) -> None:
    """Let the valve leave a share while it has as many items as fit its window; one was not sent to
    it yet."""
    join(gateway, VALVE, jid=VALVE, qos=qos, queue_requests="5")
    publish(gateway, *(f"i{number}" for number in range(5)))
    join(gateway, CAM, qos=qos)
    leave(gateway, VALVE, jid=VALVE)


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_member_that_leaves_completes_what_it_was_sent(gateway: Gateway, qos: str) -> None:
    leave_with_items(gateway, qos)
    assert answer_all(gateway, CAM) == ["i4"]
    gateway.tx(gateway.router.context.run_external_change)
    join(gateway, VALVE, jid=VALVE, qos=qos)
    assert answer_all(gateway, VALVE) == ["i0", "i1", "i2", "i3"]
    assert item_states(gateway) == []
    assert states(gateway) == []


@pytest.mark.parametrize("ends", ["crash", "end"])
def test_items_of_a_member_that_left_return_with_it_at_qos_2(gateway: Gateway, ends: str) -> None:
    leave_with_items(gateway, "2")
    crash(gateway) if ends == "crash" else gateway.end(VALVE)
    connect(gateway)
    assert answer_all(gateway, CAM) == ["i4"]
    assert answer_all(gateway, VALVE) == ["i0", "i1", "i2", "i3"]


def test_items_of_a_member_that_left_go_to_another_at_qos_1(gateway: Gateway) -> None:
    leave_with_items(gateway, "1")
    gateway.end(VALVE)
    assert answer_all(gateway, CAM) == ["i4", "i0", "i1", "i2", "i3"]


def test_items_of_a_member_that_left_are_dead_when_its_state_ends(gateway: Gateway) -> None:
    leave_with_items(gateway, "2")
    assert answer_all(gateway, CAM) == ["i4"]
    gateway.end(VALVE)
    gateway.clock.service += 500
    gateway.run_timers()
    assert item_states(gateway) == [(f"i{number}", "dead") for number in range(4)]
    assert states(gateway) == []


@pytest.mark.parametrize("answers", [True, False])
def test_the_last_member_completes_what_it_was_sent(gateway: Gateway, answers: bool) -> None:
    join(gateway, VALVE, jid=VALVE, qos="2")
    publish(gateway, "i1")
    leave(gateway, VALVE, jid=VALVE)
    if answers:
        assert answer_all(gateway, VALVE) == ["i1"]
    else:
        assert connect(gateway, NUMBERED._replace(clean=True)) is False
        assert offered_items(gateway, VALVE) == []
    assert states(gateway) == []
    assert len(gateway.events("system", "share_ended")) == 1


@pytest.mark.parametrize("cause", ["expired", "clean", "killed"])
def test_subscriptions_end_with_the_state_of_their_session(gateway: Gateway, cause: str) -> None:
    subscribe(gateway, VALVE, NODE, VALVE, qos="2")
    subscribe(gateway, VALVE, NODE, qos="0")  # of the account
    join(gateway, VALVE, jid=VALVE, qos="2")
    publish(gateway, "i1")
    assert len(take_requests(gateway, VALVE)) == 2
    join(gateway, CAM, qos="2")
    gateway.end(VALVE)
    if cause == "killed":
        crash(gateway)
    if cause == "clean":
        assert connect(gateway, NUMBERED._replace(clean=True)) is False
    else:
        gateway.clock.service += 500
        gateway.run_timers()
    assert [one["jid"] for one in list_subscriptions(gateway, VALVE)] == [VALVE.split("/")[0]]
    assert states(gateway) == []
    assert item_states(gateway) == [("i1", "dead")]  # no other member may get it (MQTT 5, 4.8.2)


def test_share_ends_with_its_last_member(gateway: Gateway) -> None:
    join(gateway, VALVE, jid=VALVE, qos="2")
    gateway.end(VALVE)
    publish(gateway, "i1")
    gateway.clock.service += 500
    gateway.run_timers()
    assert item_states(gateway) == []
    assert gateway.count("SELECT count(*) FROM queues WHERE share IS NOT NULL") == 0
    (event,) = gateway.events("system", "share_ended")
    assert (event.value, event.tags["share"]) == (1.0, SHARE.split(":")[1])
