"""Queues after faults and attacks: counters stay right, and nobody is blocked."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.engine.database import NeedsDatabase, Transaction
from edge.features.accounts.store import accounts
from edge.features.queues.rules.transitions import MAX_DELIVERIES
from edge.features.queues.store import queue_items, queue_members, queues
from tests.helpers import queue_nodes, shared_subscriptions
from tests.helpers.people import PUMP, make_available
from tests.helpers.pubsub import create, element, send_request, subscribe
from tests.helpers.shared_subscriptions import NODE, SHARE, join, plain_items, publish
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

FIRST: Final = f"alpha@{DOMAIN}/1"
SECOND: Final = f"alpha@{DOMAIN}/2"
MEMBERS: Final = [f"m{number}@{DOMAIN}/w" for number in range(7)]

_ABLE: Final = "UPDATE temp.sessions SET qos = 'urn:xmpp:qos'"
_SENT_TO: Final = """
SELECT s.full FROM temp.under_way AS u JOIN temp.sessions AS s USING (generation)
WHERE u.kind = 'share'
"""


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway()
    for full in (PUMP, FIRST, *MEMBERS):
        gateway.add(full.partition("@")[0])
    gateway.bind(PUMP)
    create(gateway, PUMP, NODE)
    return gateway


def _able(gateway: Gateway, *sessions: str) -> None:
    for full in sessions:
        make_available(gateway, full)
    gateway.tx(lambda tx: tx.run(_ABLE))


# Memory


def test_what_is_in_memory_about_queues_is_limited(gateway: Gateway) -> None:
    def use(tx: Transaction) -> list[int]:
        for queue in range(queues.CACHED_QUEUES + 2):
            queue_members.with_room(tx, queue, 1)
            queue_items.next_ready(tx, queue, 1)
        return [len(tx.cache[name]) for name in (queue_members._IMAGE, queue_items._DRAINED)]

    assert max(gateway.tx(use)) <= queues.CACHED_QUEUES


def test_a_unit_that_needs_the_database_loses_no_counts_of_others(gateway: Gateway) -> None:
    make_available(gateway, FIRST)
    join(gateway, FIRST, qos="0")
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


# Counters of items in flight


def test_items_at_qos_0_received_by_one_session_do_not_count_for_another(gateway: Gateway) -> None:
    make_available(gateway, FIRST)
    make_available(gateway, SECOND)
    join(gateway, FIRST, qos="0", queue_requests="1")
    for name in "abcd":
        publish(gateway, name)
        assert plain_items(gateway, FIRST) + plain_items(gateway, SECOND) == [name]
    gateway.end(FIRST)
    publish(gateway, "e")
    assert plain_items(gateway, SECOND) == ["e"]


@pytest.mark.parametrize("jid", [None, FIRST])
def test_items_at_qos_0_lost_with_a_session_do_not_count_for_another(
    gateway: Gateway, jid: str | None
) -> None:
    """A membership by full JID ends with its session."""
    make_available(gateway, FIRST)
    make_available(gateway, SECOND)
    join(gateway, FIRST, qos="0", queue_requests="1")
    if jid is not None:
        join(gateway, FIRST, "$share:pool:other", jid, qos="0", expire="presence")
    publish(gateway, "a")
    has_it = gateway.count(_SENT_TO)
    gateway.end(has_it)
    publish(gateway, "b")
    assert plain_items(gateway, SECOND if has_it == FIRST else FIRST) == ["b"]


def test_items_sent_at_qos_0_do_not_count_after_a_change_to_qos_1(gateway: Gateway) -> None:
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="0", queue_requests="2")
    publish(gateway, "a", "b")
    subscribe(gateway, FIRST, SHARE, None, qos="1", queue_requests="2")
    assert plain_items(gateway, FIRST) == ["a", "b"]
    publish(gateway, "c")
    assert shared_subscriptions.answer_all(gateway, FIRST) == ["c"]


def test_items_locked_at_qos_1_stop_counting_after_a_change_to_qos_0(gateway: Gateway) -> None:
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="1", queue_requests="1")
    publish(gateway, "a")
    subscribe(gateway, FIRST, SHARE, None, qos="0", queue_requests="1")
    assert shared_subscriptions.answer_all(gateway, FIRST) == ["a"]
    for name in "bcd":
        publish(gateway, name)
        assert plain_items(gateway, FIRST) == [name]


# Sessions end


def test_an_item_is_not_passed_between_members_while_the_gateway_stops(gateway: Gateway) -> None:
    _able(gateway, *MEMBERS)
    for full in MEMBERS:
        join(gateway, full, qos="1")
    publish(gateway, "a")
    gateway.lifecycle.stop()
    for full in MEMBERS:
        gateway.end(full)
    assert shared_subscriptions.item_states(gateway) == [("a", "ready")]
    assert gateway.count("SELECT deliveries FROM queue_items") == 1


def test_all_items_of_a_removed_account_are_reassigned_at_once(gateway: Gateway) -> None:
    queue_nodes.set_up(gateway)
    queue_nodes.subscribe_worker(gateway, queue_nodes.ONE, requests=100)
    queue_nodes.publish(gateway, *(f"i{number}" for number in range(100)))
    queue_nodes.subscribe_worker(gateway, queue_nodes.TWO, requests=100)
    gateway.tx(lambda tx: accounts.remove(tx, "one"))
    gateway.tx(gateway.router.run_external_change)
    assert len(queue_nodes.deliveries(gateway, queue_nodes.TWO)) == 100


def test_items_that_were_never_sent_do_not_count_deliveries(gateway: Gateway) -> None:
    """Only `outbox_window` messages are in flight to an account at a time."""
    sent = gateway.limits.outbox_window
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="1", queue_requests="50")
    publish(gateway, *(f"i{number}" for number in range(40)))
    for _each in range(MAX_DELIVERIES):
        gateway.end(FIRST)
        _able(gateway, FIRST)
        gateway.run_timers()
    states = Counter(state for _item, state in shared_subscriptions.item_states(gateway))
    assert states == {"dead": sent, "locked": 40 - sent}
    assert shared_subscriptions.answer_all(gateway, FIRST) == [
        f"i{number}" for number in range(sent, 40)
    ]


# After a restart


def _restart(gateway: Gateway, *there: str) -> None:
    gateway.crash()
    gateway.sent.clear()
    for full in there:
        gateway.bind(full)
    gateway.tx(gateway.router.run_external_change)
    gateway.run_timers()


def test_a_worker_that_does_not_return_after_a_restart_is_unsubscribed(gateway: Gateway) -> None:
    """Otherwise a worker with a new resource each time would exhaust its subscriptions."""
    queue_nodes.set_up(gateway, queue_lock_timeout="86400")
    queue_nodes.subscribe_worker(gateway, queue_nodes.ONE)
    queue_nodes.subscribe_worker(gateway, queue_nodes.TWO, requests=1)
    queue_nodes.publish(gateway, "a", "b")
    _restart(gateway, queue_nodes.PUBLISHER, queue_nodes.TWO)
    queue_nodes.advance(gateway, gateway.limits.resume_time - 1)
    assert gateway.count("SELECT count(*) FROM subscriptions") == 2
    queue_nodes.advance(gateway, 2)
    assert gateway.count("SELECT group_concat(jid) FROM subscriptions") == queue_nodes.TWO
    queue_nodes.retract(gateway, queue_nodes.TWO, "b")
    assert queue_nodes.deliveries(gateway, queue_nodes.TWO) == ["a"]
    gateway.bind(queue_nodes.ONE)
    gateway.run_timers()
    assert [(one.kind, one.id) for one in queue_nodes.messages(gateway, queue_nodes.ONE)] == [
        ("unlock", "a")
    ]


def test_a_worker_is_notified_if_another_session_ended_its_subscription(gateway: Gateway) -> None:
    queue_nodes.set_up(gateway)
    make_available(gateway, FIRST)
    queue_nodes.subscribe_worker(gateway, FIRST, 1, FIRST.partition("/")[0])
    queue_nodes.publish(gateway, "a")
    assert queue_nodes.deliveries(gateway, FIRST) == ["a"]
    gateway.crash()
    gateway.run_timers()
    gateway.bind(SECOND)
    gateway.end(SECOND)
    gateway.bind(FIRST)
    gateway.run_timers()
    notices = [(one.kind, one.id) for one in queue_nodes.messages(gateway, FIRST)]
    assert notices[:1] == [("unlock", "a")]


# Time


def test_an_expired_item_that_is_published_again_is_assigned(gateway: Gateway) -> None:
    queue_nodes.set_up(gateway)
    queue_nodes.publish(gateway, "a", queue_ttl="5")
    gateway.clock.service += 6
    queue_nodes.subscribe_worker(gateway, queue_nodes.ONE)
    queue_nodes.publish(gateway, "a", queue_ttl="50")
    assert queue_nodes.deliveries(gateway, queue_nodes.ONE) == ["a"]


# Limits


def test_unserved_shares_leave_room_for_queue_nodes(make_gateway: MakeGateway) -> None:
    limits = Limits(queue_items=4, items_per_queue=4)
    gateway = make_gateway(limits)
    queue_nodes.set_up(gateway)
    create(gateway, queue_nodes.OWNER, NODE)
    gateway.add("idle")
    make_available(gateway, f"idle@{DOMAIN}/1", priority=-1)
    join(gateway, f"idle@{DOMAIN}/1", jid=f"idle@{DOMAIN}")
    publish(gateway, "a", "b", full=queue_nodes.OWNER)
    item = element("item", "<v xmlns='urn:v'/>", id="c")
    refused = send_request(gateway, queue_nodes.OWNER, element("publish", item, node=NODE))
    assert refused.error == ("wait", "resource-constraint")
    queue_nodes.publish(gateway, "d", "e")
    assert queue_nodes.try_publish(gateway, "f").error == ("wait", "resource-constraint")
