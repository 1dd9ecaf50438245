"""Shared subscriptions (MQTT-234): who is given what, what a loss makes of it, how shares end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edge.config.options import Pubsub
from edge.engine.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.outbox.store import dead_letters
from edge.features.queues.rules.transitions import MAX_DELIVERIES
from edge.features.queues.service import admin
from edge.features.queues.store import overview
from edge.xmpp.namespaces import REDELIVERED, clark
from tests.helpers.custody import (
    CAM,
    Build,
    able,
    building,
    come,
    done,
    hand_over,
    handed,
    received,
    refusal,
    states,
)
from tests.helpers.people import PUMP, VALVE, VALVE_BARE
from tests.helpers.shares import (
    NODE,
    POOL,
    answer,
    given,
    join,
    leave,
    publish,
    told,
    waiting,
    work,
)
from tests.helpers.store import DOMAIN, QOS, Gateway, new_database
from tests.helpers.subscribing import SERVICE, ask, create, element, subscribe

OTHER: Final = f"valve@{DOMAIN}/spare"
CAM_BARE: Final = f"cam@{DOMAIN}"


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with building(tmp_path) as build:
        yield build


@pytest.fixture
def gateway(build: Build) -> Gateway:
    return ready(build())


def ready(gateway: Gateway) -> Gateway:
    """Make the node that a gateway's pump publishes to; everybody takes quality of service."""
    create(gateway, PUMP, NODE, publish_model="open")
    able(gateway, CAM)
    come(gateway, VALVE)
    return gateway


def ids(count: int, letter: str = "i") -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


# A set of clients shares the messages of a subscription


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_each_message_goes_to_one_member(gateway: Gateway, qos: str) -> None:
    for full in (VALVE, CAM):
        join(gateway, full, qos=qos)
    publish(gateway, *ids(6))
    take = told if qos == "0" else work
    both = take(gateway, VALVE), take(gateway, CAM)
    assert sorted(name or "" for one in both for name in one) == ids(6)
    assert [len(one) for one in both] == [3, 3]
    assert waiting(gateway) == []


def test_a_share_is_notified_at_level_1_unless_it_says(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    (one,) = handed(gateway, VALVE)
    assert (one.step, one.sender, one.to) == ("acknowledged", SERVICE, VALVE)
    assert one.message is not None
    assert one.message.find(".//{urn:v}v") is not None


def test_a_notification_names_the_subscription(gateway: Gateway) -> None:
    found = join(gateway, VALVE)
    publish(gateway, "i1")
    (one,) = handed(gateway, VALVE)
    assert one.message is not None
    header = one.message.find(".//{http://jabber.org/protocol/shim}header")
    assert header is not None
    assert (header.get("name"), header.text) == ("SubID", found)


def test_both_ways_to_write_a_share_name_the_same(gateway: Gateway) -> None:
    join(gateway, VALVE, "$share:pool:plant/#")
    join(gateway, CAM, "$share/pool/plant/#")
    publish(gateway, *ids(4))
    assert len(given(gateway, VALVE)) == len(given(gateway, CAM)) == 2


@pytest.mark.parametrize("other", ["$share:other:plant/#", "$share:pool:plant/+/temp"])
def test_another_name_or_filter_is_another_share(gateway: Gateway, other: str) -> None:
    join(gateway, VALVE)
    join(gateway, CAM, other)
    publish(gateway, "i1")
    assert given(gateway, VALVE) == given(gateway, CAM) == ["i1"]


def test_shares_and_others_each_have_a_message_once(gateway: Gateway) -> None:
    for share in (POOL, "$share:other:#", "plant/#", NODE):
        join(gateway, VALVE, share, **({} if share.startswith("$") else {"qos": "1"}))
    publish(gateway, "i1")
    assert work(gateway, VALVE) == ["i1"] * 4


def test_a_share_has_what_its_filter_matches_alone(gateway: Gateway) -> None:
    create(gateway, PUMP, "site/gate")
    join(gateway, VALVE)
    publish(gateway, "i1", node="site/gate")
    assert given(gateway, VALVE) == []
    publish(gateway, "i2")
    assert given(gateway, VALVE) == ["i2"]


@pytest.mark.parametrize(
    "wrong",
    [
        "$share::plant/#",
        "$share:pool:",
        "$share:po+ol:plant",
        "$share:pool:plant/#/x",
        "$share:pool",
    ],
)
def test_a_share_that_is_written_wrongly_is_refused_and_told_why(
    gateway: Gateway, wrong: str
) -> None:
    reply = subscribe(gateway, VALVE, wrong)
    assert reply.error == ("modify", "bad-request")
    assert reply.text


def test_a_name_ends_with_the_first_colon(gateway: Gateway) -> None:
    create(gateway, PUMP, "a:plant")
    join(gateway, VALVE, "$share:pool:a:plant")
    publish(gateway, "i1", node="a:plant")
    assert given(gateway, VALVE) == ["i1"]


def test_shares_may_be_declined(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), pubsub=Pubsub(shares=False))
    gateway.add("valve")
    assert subscribe(gateway, VALVE, POOL).error == ("cancel", "feature-not-implemented")
    gateway.close()


# Not limited to one consumer, and only to who is there


def test_what_nobody_has_room_for_waits(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_requests="2")
    publish(gateway, *ids(5))
    first = handed(gateway, VALVE)
    assert len(first) == 2
    assert [state for _item, state in waiting(gateway)].count("ready") == 3
    gateway.send(VALVE, done(first[0]))
    assert given(gateway, VALVE) == ["i2"]


def test_a_second_member_takes_what_the_first_has_no_room_for(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_requests="1")
    publish(gateway, *ids(3))
    join(gateway, CAM, queue_requests="5")
    assert (given(gateway, VALVE), given(gateway, CAM)) == (["i0"], ["i1", "i2"])


def test_a_durable_member_that_is_away_is_given_nothing(gateway: Gateway) -> None:
    join(gateway, VALVE)
    gateway.leave(VALVE)
    join(gateway, CAM)
    publish(gateway, *ids(3))
    assert work(gateway, CAM) == ids(3)
    come(gateway, VALVE)
    assert given(gateway, VALVE) == []


def test_what_is_published_while_nobody_is_there_goes_to_who_comes_first(gateway: Gateway) -> None:
    join(gateway, VALVE)
    gateway.leave(VALVE)
    publish(gateway, *ids(3))
    assert states(gateway) == []
    come(gateway, OTHER)
    assert work(gateway, OTHER) == ids(3)


def test_a_member_that_waits_to_be_resumed_is_given_nothing_new(gateway: Gateway) -> None:
    join(gateway, VALVE)
    generation = gateway.generation(VALVE)
    gateway.tx(lambda tx: gateway.lifecycle.detach(tx, generation))
    publish(gateway, "i1")
    assert waiting(gateway) == [("i1", "ready")]
    gateway.tx(lambda tx: gateway.lifecycle.resume(tx, generation))
    assert given(gateway, VALVE) == ["i1"]


def test_a_full_jid_is_served_by_that_session_alone(gateway: Gateway) -> None:
    come(gateway, OTHER, priority=5)
    join(gateway, VALVE, jid=VALVE)
    publish(gateway, "i1")
    assert given(gateway, OTHER) == []
    assert given(gateway, VALVE) == ["i1"]


def test_a_full_jid_need_not_be_available(gateway: Gateway) -> None:
    gateway.bind(OTHER)
    join(gateway, OTHER, jid=OTHER)
    publish(gateway, "i1")
    (asked,) = gateway.elements(OTHER)
    query = asked[0]
    assert query.tag == "{http://jabber.org/protocol/disco#info}query"
    answered = (
        f"<iq type='result' id='{asked.get('id')}' to='{DOMAIN}'><query xmlns='"
        f"http://jabber.org/protocol/disco#info'><feature var='{QOS}'/></query></iq>"
    )
    gateway.send(OTHER, answered)
    assert given(gateway, OTHER) == ["i1"]
    publish(gateway, "i2")
    assert given(gateway, OTHER) == ["i2"]


def test_a_member_is_asked_what_it_takes_when_something_waits(gateway: Gateway) -> None:
    come(gateway, OTHER, qos=None)
    join(gateway, OTHER, jid=OTHER)
    assert gateway.elements(OTHER) == []
    publish(gateway, "i1")
    assert len(gateway.elements(OTHER)) == 1
    able(gateway, OTHER)
    assert given(gateway, OTHER) == ["i1"]


@pytest.mark.parametrize("qos", ["1", "2"])
def test_who_takes_no_quality_of_service_is_not_there_for_a_level(
    gateway: Gateway, qos: str
) -> None:
    come(gateway, OTHER, qos="")
    join(gateway, OTHER, jid=OTHER, qos=qos)
    join(gateway, CAM, qos=qos)
    publish(gateway, *ids(2))
    assert work(gateway, CAM) == ids(2)
    assert gateway.elements(OTHER) == []


def test_it_is_if_its_account_takes_plain_messages_instead(gateway: Gateway) -> None:
    gateway.tx(lambda tx: accounts.set_downgrade(tx, "valve", downgrade=True))
    come(gateway, OTHER, qos="")
    join(gateway, OTHER, jid=OTHER)
    publish(gateway, *ids(2))
    assert told(gateway, OTHER) == ids(2)
    assert waiting(gateway) == []


# Level 1: reallocated


def test_at_level_1_a_lost_connection_gives_it_to_another(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    assert given(gateway, VALVE) == ["i1"]
    gateway.leave(VALVE)
    (one,) = handed(gateway, CAM)
    assert one.message is not None
    times = one.message.find(clark(REDELIVERED, "redelivered"))
    assert times is not None
    assert times.get("times") == "1"
    answer(gateway, CAM, one)
    assert waiting(gateway) == []
    assert states(gateway) == []


def test_at_level_1_who_acknowledged_has_it_alone(gateway: Gateway) -> None:
    join(gateway, VALVE)
    join(gateway, CAM)
    publish(gateway, "i1")
    full = next(full for full in (VALVE, CAM) if work(gateway, full))
    gateway.leave(full)
    assert given(gateway, CAM if full == VALVE else VALVE) == []


def test_at_level_1_all_of_a_lost_session_comes_back_in_order(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_requests="20")
    publish(gateway, *ids(12))  # more than are on their way at once
    gateway.leave(VALVE)
    join(gateway, CAM, queue_requests="20")
    assert work(gateway, CAM) == ids(12)
    assert waiting(gateway) == []


def test_at_level_1_an_answer_after_the_session_is_over_is_passed_over(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    (one,) = handed(gateway, VALVE)
    gateway.leave(VALVE)
    come(gateway, VALVE)
    (again,) = handed(gateway, VALVE)
    assert again.msg_id == one.msg_id or again.id != one.id
    gateway.send(VALVE, done(one))
    assert [state for _item, state in waiting(gateway)] == ["locked"]
    gateway.send(VALVE, done(again))
    assert waiting(gateway) == []


def test_at_level_1_unavailable_presence_gives_it_to_another(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    gateway.send(VALVE, "<presence type='unavailable'/>")
    assert given(gateway, CAM) == ["i1"]


def test_at_level_1_a_restart_gives_it_to_another(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    gateway.crash()
    gateway.ring()
    assert states(gateway) == []
    assert waiting(gateway) == [("i1", "ready")]
    come(gateway, CAM)
    join(gateway, CAM)
    assert work(gateway, CAM) == ["i1"]


def test_at_level_1_who_is_back_before_that_is_seen_keeps_it(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    gateway.crash()
    come(gateway, VALVE)
    gateway.ring()
    assert work(gateway, VALVE) == ["i1"]
    assert waiting(gateway) == []


def test_at_level_1_a_refusal_gives_it_to_another(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    (one,) = handed(gateway, VALVE)
    gateway.send(VALVE, refusal(one, "cancel", "not-allowed"))
    assert given(gateway, CAM) == ["i1"]
    assert gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10)) == []


def test_at_level_1_what_everybody_refuses_is_dead_in_its_queue(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    for _ in range(MAX_DELIVERIES):
        (one,) = handed(gateway, VALVE)
        gateway.send(VALVE, refusal(one, "cancel", "not-allowed"))
    assert waiting(gateway) == [("i1", "dead")]
    assert [event.name for event in gateway.events(name="queue_dead")] == ["queue_dead"]


def test_at_level_1_who_never_answers_loses_it_to_another(build: Build) -> None:
    gateway = ready(build(retry_attempts=2))
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    for tries in (1, 2):
        assert given(gateway, VALVE) == ["i1"], tries
        assert given(gateway, CAM) == []
        gateway.clock.service += 3600
        gateway.ring()
    assert work(gateway, CAM) == ["i1"]
    assert waiting(gateway) == []
    assert given(gateway, VALVE) == []


def test_at_level_1_who_asks_to_wait_keeps_it(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    (one,) = handed(gateway, VALVE)
    gateway.send(VALVE, refusal(one, "wait", "resource-constraint"))
    assert given(gateway, CAM) == []
    gateway.leave(VALVE)
    assert given(gateway, CAM) == ["i1"]


def test_at_level_1_who_unsubscribes_leaves_it_to_another(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    leave(gateway, VALVE)
    assert given(gateway, CAM) == ["i1"]


# Levels 0 and 2: never reallocated


def test_at_level_0_a_lost_connection_loses_it_and_that_is_told(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0")
    publish(gateway, *ids(2))
    join(gateway, CAM, qos="0")
    gateway.leave(VALVE)
    assert told(gateway, CAM) == []
    assert waiting(gateway) == []
    (event,) = gateway.events(name="share_lost")
    assert event.value == 2.0
    come(gateway, VALVE)
    assert told(gateway, VALVE) == []


def test_at_level_0_what_arrived_is_not_told_as_lost(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0")
    publish(gateway, "i1")
    assert told(gateway, VALVE) == ["i1"]
    gateway.leave(VALVE)
    assert gateway.events(name="share_lost") == []


def test_at_level_0_no_more_is_on_its_way_than_was_asked_for(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="0", queue_requests="2")
    publish(gateway, *ids(5))
    assert [state for _item, state in waiting(gateway)] == ["ready"] * 3
    assert told(gateway, VALVE) == ids(2)
    assert told(gateway, VALVE) == ["i2", "i3"]
    assert told(gateway, VALVE) == ["i4"]


def test_at_level_2_it_waits_for_its_member(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    (offer,) = handed(gateway, VALVE)
    join(gateway, CAM, qos="2")
    gateway.leave(VALVE)
    assert given(gateway, CAM) == []
    come(gateway, VALVE)
    (again,) = handed(gateway, VALVE)
    assert (again.id, again.msg_id) == (offer.id, offer.msg_id)
    answer(gateway, VALVE, again)
    assert work(gateway, VALVE) == []
    assert waiting(gateway) == []


def test_at_level_2_another_session_of_the_member_takes_an_offer_over(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    (offer,) = handed(gateway, VALVE)
    gateway.leave(VALVE)
    come(gateway, OTHER)
    (again,) = handed(gateway, OTHER)
    assert again.msg_id == offer.msg_id


def test_at_level_2_a_member_by_full_jid_is_waited_for_itself(gateway: Gateway) -> None:
    join(gateway, VALVE, jid=VALVE, qos="2")
    publish(gateway, "i1")
    gateway.leave(VALVE)
    come(gateway, OTHER)
    assert given(gateway, OTHER) == []
    come(gateway, VALVE)
    assert work(gateway, VALVE) == ["i1"]


def test_at_level_2_what_was_received_waits_for_that_session(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    gateway.send(VALVE, received(handed(gateway, VALVE)[0]))
    gateway.leave(VALVE)
    come(gateway, OTHER)
    assert handed(gateway, OTHER) == []
    come(gateway, VALVE)
    (release,) = handed(gateway, VALVE)
    assert release.step == "deliver"
    gateway.send(VALVE, done(release))
    assert waiting(gateway) == []


@pytest.mark.parametrize("steps", [0, 1])
def test_at_level_2_a_restart_changes_nothing(gateway: Gateway, steps: int) -> None:
    join(gateway, VALVE, qos="2")
    join(gateway, CAM, jid=CAM, qos="2")
    publish(gateway, "i1")
    full = next(full for full in (VALVE, CAM) if (found := handed(gateway, full)))
    if steps:
        gateway.send(full, received(found[0]))
    gateway.crash()
    gateway.ring()
    other = CAM if full == VALVE else VALVE
    come(gateway, other)
    assert handed(gateway, other) == []
    come(gateway, full)
    assert [one.step for one in handed(gateway, full)] == [["assured", "deliver"][steps]]


def test_at_level_2_what_was_never_sent_is_another_s(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2", queue_requests="20")
    publish(gateway, *ids(12))
    sent = len(handed(gateway, VALVE))
    assert sent < 12
    join(gateway, CAM, qos="2", queue_requests="20")
    gateway.leave(VALVE)
    assert work(gateway, CAM) == ids(12)[sent:]
    come(gateway, VALVE)
    assert work(gateway, VALVE) == ids(12)[:sent]


def test_at_level_2_an_offer_dies_with_the_subscription_in_its_queue(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    join(gateway, CAM, qos="2")
    leave(gateway, VALVE)
    assert given(gateway, CAM) == []
    assert waiting(gateway) == [("i1", "dead")]
    assert states(gateway) == []


def test_at_level_2_what_was_received_is_in_doubt_when_the_subscription_ends(
    gateway: Gateway,
) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    gateway.send(VALVE, received(handed(gateway, VALVE)[0]))
    (release,) = handed(gateway, VALVE)
    join(gateway, CAM, qos="2")
    leave(gateway, VALVE)
    assert given(gateway, CAM) == []
    assert waiting(gateway) == []
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert (letter.state, letter.session) == ("in doubt", VALVE)
    gateway.tx(lambda tx: dead_letters.requeue(tx, letter.row, may_repeat=False))
    gateway.tx(gateway.router.run_external_change)
    (again,) = handed(gateway, VALVE)
    assert (again.id, again.step) == (release.id, "deliver")
    gateway.send(VALVE, done(again))
    assert states(gateway) == []


def test_at_level_2_a_plain_message_on_its_way_is_in_doubt_when_the_subscription_ends(
    gateway: Gateway,
) -> None:
    gateway.tx(lambda tx: accounts.set_downgrade(tx, "valve", downgrade=True))
    able(gateway, VALVE, qos="")
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    join(gateway, CAM, qos="2")
    leave(gateway, VALVE)
    assert given(gateway, CAM) == []
    assert waiting(gateway) == []
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    assert (letter.state, letter.session) == ("in doubt", None)


def test_at_level_2_one_in_doubt_that_is_sent_anew_goes_to_the_same_account(
    gateway: Gateway,
) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    gateway.send(VALVE, received(handed(gateway, VALVE)[0]))
    gateway.send(VALVE, refusal(handed(gateway, VALVE)[0], "cancel", "not-allowed"))
    assert waiting(gateway) == []
    (letter,) = gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10))
    gateway.tx(lambda tx: dead_letters.requeue(tx, letter.row, may_repeat=True))
    gateway.tx(gateway.router.run_external_change)
    assert work(gateway, VALVE) == ["i1"]


def test_at_level_2_what_a_member_refuses_is_dead_in_its_queue(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    join(gateway, CAM, qos="2")
    (one,) = handed(gateway, VALVE)
    gateway.send(VALVE, refusal(one, "cancel", "not-allowed"))
    assert given(gateway, CAM) == []
    assert waiting(gateway) == [("i1", "dead")]


def test_what_is_dead_in_its_queue_is_requeued_for_anybody(gateway: Gateway) -> None:
    join(gateway, VALVE, qos="2")
    publish(gateway, "i1")
    gateway.send(VALVE, refusal(handed(gateway, VALVE)[0], "cancel", "not-allowed"))
    leave_to_cam(gateway)

    def requeue(tx: Transaction) -> None:
        (queue,) = overview.page(tx, 0, 10)
        admin.requeue(tx, queue, ["i1"])

    gateway.tx(requeue)
    gateway.tx(gateway.router.run_external_change)
    assert work(gateway, CAM) == ["i1"]


def leave_to_cam(gateway: Gateway) -> None:
    join(gateway, CAM, qos="2")
    leave(gateway, VALVE)


@pytest.mark.parametrize(
    ("before", "now", "left"), [("1", "0", []), ("1", "2", ["locked"]), ("2", "1", ["locked"])]
)
def test_another_level_counts_from_the_next_item_on(
    gateway: Gateway, before: str, now: str, left: list[str]
) -> None:
    join(gateway, VALVE, qos=before)
    publish(gateway, "i1")
    join(gateway, VALVE, qos=now)
    join(gateway, CAM, qos=now)
    gateway.leave(VALVE)
    take = told if now == "0" else given
    assert take(gateway, CAM) == (["i1"] if before == "1" else [])
    assert [state for _item, state in waiting(gateway)] == left


# The end of a share


def test_a_non_durable_member_ends_with_its_session(gateway: Gateway) -> None:
    join(gateway, VALVE, expire="presence")
    join(gateway, CAM)
    publish(gateway, *ids(2))
    gateway.leave(VALVE)
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1
    assert sorted(name or "" for name in work(gateway, CAM)) == ids(2)


def test_with_its_last_member_a_share_ends_and_what_waits_is_deleted_and_told(
    gateway: Gateway,
) -> None:
    join(gateway, VALVE, queue_requests="1")
    publish(gateway, *ids(3))
    leave(gateway, VALVE)
    assert waiting(gateway) == []
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM queues") == 0
    (event,) = gateway.events(name="share_ended")
    assert (event.value, event.unit, event.level) == (3.0, "items", "Warning")
    publish(gateway, "later")
    join(gateway, CAM)
    assert given(gateway, CAM) == []


def test_a_removed_account_leaves_what_it_had_to_others(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    join(gateway, CAM)
    handed(gateway, VALVE)
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'valve'"))
    gateway.tx(gateway.router.run_external_change)
    assert given(gateway, CAM) == ["i1"]
    assert gateway.tx(lambda tx: dead_letters.list_page(tx, 0, 10)) == []


def test_with_the_account_of_its_last_member_a_share_ends(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, "i1")
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'valve'"))
    gateway.tx(gateway.router.run_external_change)
    assert states(gateway) == []
    assert gateway.count("SELECT count(*) FROM queues") == 0
    assert len(gateway.events(name="share_ended")) == 1


# Who is chosen


def test_the_least_loaded_is_next(gateway: Gateway) -> None:
    join(gateway, VALVE)
    publish(gateway, *ids(3))
    join(gateway, CAM)
    publish(gateway, *ids(3, "j"))
    assert (given(gateway, VALVE), given(gateway, CAM)) == (ids(3), ids(3, "j"))


def test_by_hash_a_publisher_has_one_member_in_order(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_policy="hash")
    join(gateway, CAM, queue_policy="hash")
    publish(gateway, *ids(5))
    full = VALVE if gateway.count(
        "SELECT count(*) FROM outbox WHERE recipient = 'valve'"
    ) else CAM  # fmt: skip
    (first,) = handed(gateway, full)
    assert handed(gateway, CAM if full == VALVE else VALVE) == []
    answer(gateway, full, first)
    assert work(gateway, full) == ids(5)[1:]


def test_by_hash_the_order_outlasts_the_loss_of_the_member(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_policy="hash")
    publish(gateway, *ids(5))
    first = handed(gateway, VALVE)
    answer(gateway, VALVE, first[0])
    join(gateway, CAM, queue_policy="hash")
    gateway.leave(VALVE)
    assert work(gateway, CAM) == ids(5)[1:]


def test_by_hash_a_publisher_does_not_wait_for_another(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_policy="hash")
    publish(gateway, *ids(2))
    publish(gateway, *ids(2, "j"), full=CAM)
    assert given(gateway, VALVE) == ["i0", "j0"]


def test_sticky_one_member_has_all_while_it_is_there(gateway: Gateway) -> None:
    join(gateway, VALVE, queue_policy="sticky")
    publish(gateway, "i0")
    assert work(gateway, VALVE) == ["i0"]
    join(gateway, CAM, queue_policy="sticky")
    publish(gateway, *ids(3))
    assert work(gateway, CAM) == []
    assert work(gateway, VALVE) == ids(3)
    gateway.leave(VALVE)
    publish(gateway, "i9")
    assert work(gateway, CAM) == ["i9"]


# Limits


def test_a_member_whose_outbox_is_full_is_given_nothing_and_nothing_is_lost(build: Build) -> None:
    gateway = ready(build(outbox_messages_per_account=8))
    gateway.leave(VALVE)
    for number in range(7):
        hand_over(gateway, PUMP, f"m{number}", "x", VALVE_BARE)
    come(gateway, VALVE)
    join(gateway, VALVE)
    publish(gateway, *ids(2))
    assert [state for _item, state in waiting(gateway)] == ["ready"] * 2
    others = handed(gateway, VALVE)
    while others:
        for one in others:
            answer(gateway, VALVE, one)
        others = handed(gateway, VALVE)
    gateway.clock.service += 60
    gateway.ring()
    assert work(gateway, VALVE) == ids(2)


def test_a_full_outbox_leaves_items_to_others(build: Build) -> None:
    gateway = ready(build(outbox_messages_per_account=8))
    gateway.leave(VALVE)
    for number in range(7):
        hand_over(gateway, PUMP, f"m{number}", "x", VALVE_BARE)
    come(gateway, VALVE)
    join(gateway, VALVE)
    join(gateway, CAM)
    publish(gateway, *ids(2))
    assert work(gateway, CAM) == ids(2)


def test_a_share_that_is_full_holds_back_who_publishes(build: Build) -> None:
    gateway = ready(build(items_per_queue=2))
    join(gateway, VALVE)
    gateway.leave(VALVE)
    publish(gateway, *ids(2))
    item = element("item", "<v xmlns='urn:v'/>", id="i2")
    reply = ask(gateway, PUMP, element("publish", item, node=NODE))
    assert reply.error == ("wait", "resource-constraint")
    assert [item for item, _state in waiting(gateway)] == ids(2)


def test_who_may_not_subscribe_to_a_node_is_given_nothing_of_it(gateway: Gateway) -> None:
    create(gateway, PUMP, "plant/secret", access_model="whitelist")
    join(gateway, VALVE)
    publish(gateway, "i1", node="plant/secret")
    assert waiting(gateway) == []
    assert given(gateway, VALVE) == []
