"""Queues and shares under attack: what must not stick, drift, or cost the earth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.features.accounts.store import accounts
from edge.features.queues.rules.transitions import MAX_DELIVERIES
from tests.helpers import queues, shares
from tests.helpers.people import PUMP, appear
from tests.helpers.shares import NODE, POOL, join, publish, told
from tests.helpers.store import DOMAIN, Gateway, new_database
from tests.helpers.subscribing import ask, create, element, subscribe

FIRST: Final = f"alpha@{DOMAIN}/1"
SECOND: Final = f"alpha@{DOMAIN}/2"
MEMBERS: Final = [f"m{number}@{DOMAIN}/w" for number in range(7)]

_ABLE: Final = "UPDATE temp.sessions SET qos = 'urn:xmpp:qos'"
_SENT_TO: Final = """
SELECT s.full FROM temp.under_way AS u JOIN temp.sessions AS s USING (generation)
WHERE u.kind = 'share'
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path))
    for full in (PUMP, FIRST, *MEMBERS):
        gateway.add(full.partition("@")[0])
    gateway.bind(PUMP)
    create(gateway, PUMP, NODE)
    yield gateway
    gateway.close()


def _able(gateway: Gateway, *sessions: str) -> None:
    for full in sessions:
        appear(gateway, full)
    gateway.tx(lambda tx: tx.run(_ABLE))


# What members have is counted rightly


def test_what_one_session_has_had_at_level_0_does_not_count_for_another(gateway: Gateway) -> None:
    appear(gateway, FIRST)
    appear(gateway, SECOND)
    join(gateway, FIRST, qos="0", queue_requests="1")
    for name in "abcd":
        publish(gateway, name)
        assert told(gateway, FIRST) + told(gateway, SECOND) == [name]
    gateway.leave(FIRST)
    publish(gateway, "e")
    assert told(gateway, SECOND) == ["e"]


@pytest.mark.parametrize("jid", [None, FIRST])
def test_what_a_session_ended_without_at_level_0_does_not_count_for_another(
    gateway: Gateway, jid: str | None
) -> None:
    """By a full JID, one is unsubscribed with its session."""
    appear(gateway, FIRST)
    appear(gateway, SECOND)
    join(gateway, FIRST, qos="0", queue_requests="1")
    if jid is not None:
        join(gateway, FIRST, "$share:pool:other", jid, qos="0", expire="presence")
    publish(gateway, "a")
    has_it = gateway.count(_SENT_TO)
    gateway.leave(has_it)
    publish(gateway, "b")
    assert told(gateway, SECOND if has_it == FIRST else FIRST) == ["b"]


def test_what_is_on_its_way_at_level_0_does_not_count_at_level_1(gateway: Gateway) -> None:
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="0", queue_requests="2")
    publish(gateway, "a", "b")
    subscribe(gateway, FIRST, POOL, None, qos="1", queue_requests="2")
    assert told(gateway, FIRST) == ["a", "b"]
    publish(gateway, "c")
    assert shares.work(gateway, FIRST) == ["c"]


def test_what_is_locked_at_level_1_does_not_count_for_ever_at_level_0(gateway: Gateway) -> None:
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="1", queue_requests="1")
    publish(gateway, "a")
    subscribe(gateway, FIRST, POOL, None, qos="0", queue_requests="1")
    assert shares.work(gateway, FIRST) == ["a"]
    for name in "bcd":
        publish(gateway, name)
        assert told(gateway, FIRST) == [name]


# Sessions end


def test_a_stop_does_not_hand_an_item_from_one_member_to_the_next(gateway: Gateway) -> None:
    """Else it came back from each, and were dead."""
    _able(gateway, *MEMBERS)
    for full in MEMBERS:
        join(gateway, full, qos="1")
    publish(gateway, "a")
    gateway.lifecycle.stop()
    for full in MEMBERS:
        gateway.leave(full)
    assert shares.waiting(gateway) == [("a", "ready")]
    assert gateway.count("SELECT deliveries FROM queue_items") == 1


def test_all_that_a_removed_account_had_is_given_to_others_at_once(gateway: Gateway) -> None:
    queues.prepare(gateway)
    queues.work(gateway, queues.ONE, requests=100)
    queues.publish(gateway, *(f"i{number}" for number in range(100)))
    queues.work(gateway, queues.TWO, requests=100)
    gateway.tx(lambda tx: accounts.remove(tx, "one"))
    gateway.tx(gateway.router.run_external_change)
    assert len(queues.given(gateway, queues.TWO)) == 100


def test_what_a_member_was_never_sent_does_not_die_of_its_sessions(gateway: Gateway) -> None:
    """So much is on its way to an account at a time; the rest of what it has waits for its turn."""
    sent = gateway.limits.outbox_window
    _able(gateway, FIRST)
    join(gateway, FIRST, qos="1", queue_requests="50")
    publish(gateway, *(f"i{number}" for number in range(40)))
    for _each in range(MAX_DELIVERIES):
        gateway.leave(FIRST)
        _able(gateway, FIRST)
        gateway.ring()
    states = Counter(state for _item, state in shares.waiting(gateway))
    assert states == {"dead": sent, "locked": 40 - sent}
    assert shares.work(gateway, FIRST) == [f"i{number}" for number in range(sent, 40)]


# After a restart


def _restart(gateway: Gateway, *there: str) -> None:
    gateway.crash()
    gateway.sent.clear()
    for full in there:
        gateway.bind(full)
    gateway.tx(gateway.router.run_external_change)
    gateway.ring()


def test_a_worker_that_never_comes_back_after_a_restart_is_unsubscribed(gateway: Gateway) -> None:
    """Else one that names itself anew each time would have no subscription left to make."""
    queues.prepare(gateway, queue_lock_timeout="86400")
    queues.work(gateway, queues.ONE)
    queues.work(gateway, queues.TWO, requests=1)
    queues.publish(gateway, "a", "b")
    _restart(gateway, queues.PUBLISHER, queues.TWO)
    queues.wait(gateway, gateway.limits.resume_time - 1)
    assert gateway.count("SELECT count(*) FROM subscriptions") == 2
    queues.wait(gateway, 2)
    assert gateway.count("SELECT group_concat(jid) FROM subscriptions") == queues.TWO
    queues.retract(gateway, queues.TWO, "b")
    assert queues.given(gateway, queues.TWO) == ["a"]
    gateway.bind(queues.ONE)
    gateway.ring()
    assert [(word.what, word.id) for word in queues.told(gateway, queues.ONE)] == [("unlock", "a")]


def test_a_worker_is_told_when_a_session_that_came_and_went_ended_the_subscription(
    gateway: Gateway,
) -> None:
    queues.prepare(gateway)
    appear(gateway, FIRST)
    queues.work(gateway, FIRST, 1, FIRST.partition("/")[0])
    queues.publish(gateway, "a")
    assert queues.given(gateway, FIRST) == ["a"]
    gateway.crash()
    gateway.ring()
    gateway.bind(SECOND)
    gateway.leave(SECOND)
    gateway.bind(FIRST)
    gateway.ring()
    words = [(word.what, word.id) for word in queues.told(gateway, FIRST)]
    assert words[:1] == [("unlock", "a")], "it would believe to have it still"


# Time


def test_an_item_that_is_published_anew_when_it_was_too_late_is_given(gateway: Gateway) -> None:
    queues.prepare(gateway)
    queues.publish(gateway, "a", queue_ttl="5")
    gateway.clock.service += 6
    queues.work(gateway, queues.ONE)
    queues.publish(gateway, "a", queue_ttl="50")
    assert queues.given(gateway, queues.ONE) == ["a"]


# Nobody is shut out


def test_shares_that_nobody_serves_leave_room_to_queue_nodes(tmp_path: Path) -> None:
    limits = Limits(queue_items=4, items_per_queue=4)
    gateway = Gateway(new_database(tmp_path), limits)
    queues.prepare(gateway)
    create(gateway, queues.OWNER, NODE)
    gateway.add("idle")
    appear(gateway, f"idle@{DOMAIN}/1", priority=-1)
    join(gateway, f"idle@{DOMAIN}/1", jid=f"idle@{DOMAIN}")
    publish(gateway, "a", "b", full=queues.OWNER)
    item = element("item", "<v xmlns='urn:v'/>", id="c")
    refused = ask(gateway, queues.OWNER, element("publish", item, node=NODE))
    assert refused.error == ("wait", "resource-constraint")
    queues.publish(gateway, "d", "e")
    assert queues.offer(gateway, "f").error == ("wait", "resource-constraint")
    gateway.close()
