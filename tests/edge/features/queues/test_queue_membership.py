"""Subscribing to queue nodes and to shared subscriptions: options, limits, and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.features.accounts.store import accounts
from tests.helpers.pubsub import (
    affiliate,
    create,
    element,
    form,
    list_subscriptions,
    options,
    send_request,
    subscribe,
    subscription_events,
    values,
)
from tests.helpers.shared_subscriptions import item_states, plain_items, publish
from tests.helpers.store import DOMAIN, Gateway, MakeGateway

BEE: Final = f"bee@{DOMAIN}/foo"
BARE: Final = f"bee@{DOMAIN}"
ANT: Final = f"ant@{DOMAIN}/foo"
BOSS: Final = f"boss@{DOMAIN}/fw"
WORK: Final = "work"
TEMP: Final = "plant/boiler/temp"
SHARE: Final = "$share:tellers:plant/+/temp"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway(Limits(queue_requests=20), accounts_of=("bee", "ant", "boss"))
    create(gateway, BOSS, WORK, queueing="1")
    create(gateway, BOSS, TEMP)
    for full in (BEE, ANT):
        gateway.bind(full)
    gateway.sent.clear()
    return gateway


# Queue nodes: XEP-0254, section 4.1


def test_options_without_queue_requests_are_refused(gateway: Gateway) -> None:
    reply = subscribe(gateway, BEE, WORK, qos="0")
    assert reply.error == ("modify", "not-acceptable")
    assert values(reply.payload) == {"queue_requests": ""}


def test_the_prefix_of_queue_requests_may_be_omitted(gateway: Gateway) -> None:
    following = options(queue_requests="5").replace("pubsub#queue", "queue")
    reply = send_request(gateway, BEE, element("subscribe", jid=BARE, node=WORK) + following)
    assert values(reply.content) == {"queue_requests": "5"}


@pytest.mark.parametrize("number", ["0", "21", "-1", "x", "", "1.5", "٣", "9" * 20])
def test_queue_requests_are_limited(gateway: Gateway, number: str) -> None:
    for node in (WORK, SHARE):
        reply = subscribe(gateway, BEE, node, queue_requests=number)
        assert reply.error == ("modify", "bad-request")
        assert "1 to 20" in reply.text


def test_a_worker_gets_more_items_when_it_raises_its_requests(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    publish(gateway, *"abcd", node=WORK, full=BOSS)
    assert plain_items(gateway, BEE) == ["a", "b"]
    submitted = form("subscribe_options", {"queue_requests": "3"})
    reply = send_request(gateway, BEE, element("options", submitted, node=WORK, jid=BEE))
    assert reply.type == "result"
    assert plain_items(gateway, BEE) == ["c"]
    subscribe(gateway, BEE, WORK, BEE, queue_requests="4")
    assert plain_items(gateway, BEE) == ["d"]
    reply = send_request(gateway, BEE, element("options", node=WORK, jid=BEE), "get")
    assert values(reply.payload) == {"queue_requests": "4"}


def test_workers_keep_items_and_subscriptions_when_the_gateway_stops(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    subscribe(gateway, BEE, "plant/#", BEE, expire="presence")
    publish(gateway, "a", node=WORK, full=BOSS)
    gateway.lifecycle.stop()
    gateway.end(BEE)
    assert item_states(gateway) == [("a", "locked")]
    gateway.crash()
    assert len(list_subscriptions(gateway, f"{BARE}/other")) == 2
    gateway.bind(BEE)
    publish(gateway, "b", node=WORK, full=BOSS)
    assert item_states(gateway) == [("a", "locked"), ("b", "locked")]


def test_a_worker_without_access_is_notified_and_its_items_go_to_others(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    publish(gateway, "a", node=WORK, full=BOSS)
    assert plain_items(gateway, BEE) == ["a"]
    affiliate(gateway, BOSS, WORK, bee="outcast")
    assert (WORK, "none") in subscription_events(gateway, BEE)
    subscribe(gateway, ANT, WORK, ANT, queue_requests="1")
    assert plain_items(gateway, ANT) == ["a"]


# Shared subscriptions (MQTT-234)


def test_the_defaults_of_a_share_are_qos_1_and_ten_requests(gateway: Gateway) -> None:
    reply = send_request(gateway, BEE, element("subscribe", node=SHARE, jid=BEE))
    assert not [child for child in reply.content if child.tag.endswith("options")]
    reply = send_request(gateway, BEE, element("options", node=SHARE, jid=BEE), "get")
    assert values(reply.payload) == {
        "queue_requests": "10", "qos": "1", "expire": "", "queue_policy": "least-loaded",
    }  # fmt: skip


def test_the_first_member_sets_the_policy(gateway: Gateway) -> None:
    reply = subscribe(gateway, BEE, SHARE, queue_policy="hash")
    assert values(reply.payload)["queue_policy"] == "hash"
    assert subscribe(gateway, ANT, SHARE, queue_policy="sticky").error == ("cancel", "conflict")
    assert list_subscriptions(gateway, ANT) == []
    assert values(subscribe(gateway, ANT, SHARE, qos="2").payload)["queue_policy"] == "hash"
    assert subscribe(gateway, ANT, SHARE, queue_policy="hash").type == "result"
    attrs = {"node": SHARE, "jid": f"ant@{DOMAIN}"}
    for policy, error in (("sticky", ("cancel", "conflict")), ("hash", None)):
        submitted = form("subscribe_options", {"queue_policy": policy})
        assert send_request(gateway, ANT, element("options", submitted, **attrs)).error == error


@pytest.mark.parametrize(
    "leave",
    [lambda gateway, full: gateway.send(full, "<presence type='unavailable'/>"), Gateway.end],
    ids=["unavailable", "end"],
)
def test_only_a_durable_member_stays_subscribed_when_it_leaves(
    gateway: Gateway, leave: Callable[[Gateway, str], None]
) -> None:
    subscribe(gateway, BEE, SHARE, BEE)
    subscribe(gateway, ANT, SHARE, ANT, expire="presence")
    leave(gateway, BEE)
    leave(gateway, ANT)
    assert len(list_subscriptions(gateway, BEE)) == 1
    assert list_subscriptions(gateway, ANT) == []


def test_a_revoked_account_gets_nothing_and_stays_subscribed(gateway: Gateway) -> None:
    subscribe(gateway, BEE, TEMP, qos="1")
    subscribe(gateway, BEE, "plant/#", qos="1")
    gateway.tx(lambda tx: accounts.revoke(tx, "bee"))
    publish(gateway, "a", node=TEMP, full=BOSS)
    assert gateway.count("SELECT count(*) FROM outbox") == 0
    assert gateway.count("SELECT count(*) FROM subscriptions") == 2
    gateway.tx(lambda tx: accounts.restore(tx, "bee"))
    publish(gateway, "b", node=TEMP, full=BOSS)
    assert gateway.count("SELECT count(*) FROM outbox") == 2


def test_options_may_repeat_the_share(gateway: Gateway) -> None:
    following = options(queue_requests="5").replace("<options>", f"<options node='{SHARE}'>")
    content = element("subscribe", node=SHARE, jid=BEE) + following
    assert values(send_request(gateway, BEE, content).payload)["queue_requests"] == "5"


def test_a_new_session_does_not_reload_all_members(gateway: Gateway) -> None:
    for full in (BEE, ANT):
        bare = full.partition("/")[0]
        gateway.send(full, "<presence/>")
        assert subscribe(gateway, full, WORK, bare, queue_requests="1").type == "result"
    publish(gateway, "one", "two", "three", node=WORK, full=BOSS)  # the last one waits
    statements: list[str] = []
    gateway.connection.set_trace_callback(statements.append)
    gateway.send(f"{BARE}/bar", "<presence/>")
    assert any("temp.queue_members WHERE subscription = " in text for text in statements)
    assert not any("FROM temp.queue_members WHERE queue = " in text for text in statements)
