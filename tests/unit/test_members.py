"""Members of queues: how queue nodes and shares are joined and left, and what that does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.features.accounts.store import accounts
from tests.helpers.pubsub import (
    EVENT,
    FORM,
    OWNER,
    PUBSUB,
    create,
    element,
    form,
    list_subscriptions,
    options,
    request_xml,
    send_request,
    subid,
    subscribe,
    subscription,
    subscription_events,
    values,
)
from tests.helpers.store import DOMAIN, Gateway, new_database, read_element

BEE: Final = f"bee@{DOMAIN}/foo"
BARE: Final = f"bee@{DOMAIN}"
ANT: Final = f"ant@{DOMAIN}/foo"
BOSS: Final = f"boss@{DOMAIN}/fw"
WORK: Final = "work"
TEMP: Final = "plant/boiler/temp"
SHARE: Final = "$share:tellers:plant/+/temp"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path), Limits(queue_requests=20))
    for name in ("bee", "ant", "boss"):
        gateway.add(name)
    create(gateway, BOSS, WORK, queueing="1")
    create(gateway, BOSS, TEMP)
    for full in (BEE, ANT):
        gateway.bind(full)
    gateway.sent.clear()
    yield gateway
    gateway.close()


def publish(gateway: Gateway, node: str, *ids: str) -> None:
    """Publish items to a node, each of its own ItemID."""
    for id in ids:
        item = element("item", "<v xmlns='urn:v'/>", id=id)
        reply = send_request(gateway, BOSS, element("publish", item, node=node))
        assert reply.type == "result", (reply.error, reply.text)


def got(gateway: Gateway, full: str) -> list[str]:
    """Return the items, by ItemID, that a session was sent."""
    name = f"{{{EVENT}}}item"
    return [item.attrib["id"] for m in gateway.elements(full) for item in m.iter(name)]


def locked(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM queue_items WHERE state = 'locked'"))


def affiliate(gateway: Gateway, node: str, affiliation: str, jid: str = BARE) -> None:
    """Have the owner change what somebody is to a node."""
    change = element("affiliation", jid=jid, affiliation=affiliation)
    reply = send_request(gateway, BOSS, element("affiliations", change, node=node), "set", OWNER)
    assert reply.type == "result", (reply.error, reply.text)


# Queue nodes: XEP-0254, section 4.1


def test_without_options_a_queue_node_answers_with_the_form(gateway: Gateway) -> None:
    asked = element("subscribe", jid=BARE, node=WORK)
    root = read_element(gateway.tx(gateway.work(BEE, request_xml(asked))))
    payload, error = root
    assert root.attrib["type"] == "error"
    assert [child.tag for child in payload] == [
        f"{{{PUBSUB}}}{n}" for n in ("subscribe", "options")
    ]
    assert all(child.attrib == {"jid": BARE, "node": WORK} for child in payload)
    (x,) = payload[1]
    assert x.attrib["type"] == "form"
    hidden, field = x
    assert hidden.findtext(f"{{{FORM}}}value") == f"{PUBSUB}#subscribe_options"
    assert (field.attrib["var"], field.attrib["type"]) == ("pubsub#queue_requests", "text-single")
    assert [child.tag for child in field] == [f"{{{FORM}}}required"]
    assert error.attrib["type"] == "modify"
    conditions = [child.tag.partition("}")[2] for child in error]
    assert conditions == ["not-acceptable", "text", "configuration-required"]
    assert list_subscriptions(gateway, BEE) == []


def test_options_without_queue_requests_are_not_enough(gateway: Gateway) -> None:
    reply = subscribe(gateway, BEE, WORK, qos="0")
    assert reply.error == ("modify", "not-acceptable")
    assert values(reply.payload) == {"queue_requests": ""}


@pytest.mark.parametrize("var", ["pubsub#queue_requests", "queue_requests"])
def test_with_options_it_tells_those_that_are_established(gateway: Gateway, var: str) -> None:
    submitted = form("subscribe_options", {}).replace(
        "</x>", f"<field var='{var}'><value>5</value></field></x>"
    )
    behind = element("options", submitted, jid=BARE, node=WORK)  # as the specification shows it
    reply = send_request(gateway, BEE, element("subscribe", jid=BARE, node=WORK) + behind)
    found = subscription(reply)
    assert found.attrib == {
        "jid": BARE, "node": WORK, "subid": subid(reply), "subscription": "subscribed",
    }  # fmt: skip
    assert reply.payload is not None
    assert [child.tag for child in reply.payload] == [
        f"{{{PUBSUB}}}subscription",
        f"{{{PUBSUB}}}options",
    ]
    (x,) = reply.payload[1]
    assert reply.payload[1].attrib == {}
    assert x.attrib["type"] == "result"
    assert values(x) == {"queue_requests": "5"}


@pytest.mark.parametrize("number", ["0", "21", "-1", "x", "", "1.5", "٣", "9" * 20])
def test_so_many_requests_there_are_not(gateway: Gateway, number: str) -> None:
    for node in (WORK, SHARE):
        reply = subscribe(gateway, BEE, node, queue_requests=number)
        assert reply.error == ("modify", "bad-request")
        assert "1 to 20" in reply.text


def test_a_worker_gets_so_many_items_as_it_takes_and_more_when_it_takes_more(
    gateway: Gateway,
) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    publish(gateway, WORK, *"abcd")
    assert got(gateway, BEE) == ["a", "b"]
    submitted = form("subscribe_options", {"queue_requests": "3"})
    assert (
        send_request(gateway, BEE, element("options", submitted, node=WORK, jid=BEE)).type
        == "result"
    )
    assert got(gateway, BEE) == ["c"]
    subscribe(gateway, BEE, WORK, BEE, queue_requests="4")
    assert got(gateway, BEE) == ["d"]
    reply = send_request(gateway, BEE, element("options", node=WORK, jid=BEE), "get")
    assert values(reply.payload) == {"queue_requests": "4"}


def test_what_a_worker_says_of_what_is_so_anyhow_is_taken(gateway: Gateway) -> None:
    anyhow = {"queue_requests": "2", "qos": "0", "deliver": "1", "expire": "presence"}
    assert subscribe(gateway, BEE, WORK, **anyhow).type == "result"
    for other in ({"qos": "1"}, {"deliver": "0"}, {"queue_policy": "hash"}):
        reply = subscribe(gateway, BEE, WORK, queue_requests="2", **other)
        assert reply.error == ("modify", "bad-request")


def test_who_unsubscribes_gives_back_what_it_has(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    publish(gateway, WORK, "a", "b")
    assert got(gateway, BEE) == ["a", "b"]
    subscribe(gateway, ANT, WORK, ANT, queue_requests="1")
    assert send_request(gateway, BEE, element("unsubscribe", node=WORK, jid=BEE)).type == "result"
    assert got(gateway, ANT) == ["a"]
    assert locked(gateway) == 1


def _unavailable(gateway: Gateway, full: str) -> None:
    gateway.send(full, "<presence type='unavailable'/>")


def _leave(gateway: Gateway, full: str) -> None:
    gateway.leave(full)


@pytest.mark.parametrize("go", [_unavailable, _leave])
@pytest.mark.parametrize("jid", [BEE, BARE])
def test_a_worker_that_goes_is_unsubscribed_and_its_items_are_others(
    gateway: Gateway, go: Callable[[Gateway, str], None], jid: str
) -> None:
    gateway.send(BEE, "<presence/>")
    subscribe(gateway, BEE, WORK, jid, queue_requests="2")
    publish(gateway, WORK, "a")
    assert got(gateway, BEE) == ["a"]
    go(gateway, BEE)
    subscribe(gateway, ANT, WORK, ANT, queue_requests="1")
    assert got(gateway, ANT) == ["a"]
    assert list_subscriptions(gateway, f"{BARE}/other") == []


@pytest.mark.parametrize("go", [_unavailable, _leave])
def test_a_bare_jids_worker_stays_while_a_session_of_it_is_there(
    gateway: Gateway, go: Callable[[Gateway, str], None]
) -> None:
    twin = f"{BARE}/twin"
    gateway.send(BEE, "<presence/>")
    subscribe(gateway, BEE, WORK, BARE, queue_requests="2")
    publish(gateway, WORK, "a")
    assert got(gateway, BEE) == ["a"]
    gateway.bind(twin)
    gateway.send(twin, "<presence/>")
    go(gateway, BEE)
    assert got(gateway, twin) == ["a"]
    assert len(list_subscriptions(gateway, twin)) == 1


def test_a_gateway_that_stops_leaves_workers_what_they_have(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    subscribe(gateway, BEE, "plant/#", BEE, expire="presence")
    publish(gateway, WORK, "a")
    gateway.lifecycle.stop()
    gateway.leave(BEE)
    assert locked(gateway) == 1
    gateway.crash()
    assert len(list_subscriptions(gateway, f"{BARE}/other")) == 2
    gateway.bind(BEE)
    publish(gateway, WORK, "b")
    assert locked(gateway) == 2


def test_a_worker_without_access_any_more_is_told_and_its_items_are_others(
    gateway: Gateway,
) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    publish(gateway, WORK, "a")
    assert got(gateway, BEE) == ["a"]
    affiliate(gateway, WORK, "outcast")
    assert (WORK, "none") in subscription_events(gateway, BEE)
    subscribe(gateway, ANT, WORK, ANT, queue_requests="1")
    assert got(gateway, ANT) == ["a"]


def test_an_owner_sees_workers_and_ends_them(gateway: Gateway) -> None:
    subscribe(gateway, BEE, WORK, BEE, queue_requests="2")
    listed = send_request(gateway, BOSS, element("subscriptions", node=WORK), "get", OWNER).payload
    assert listed is not None
    assert [one.attrib["jid"] for one in listed[0]] == [BEE]
    change = element("subscription", jid=BEE, subscription="none")
    content = element("subscriptions", change, node=WORK)
    assert send_request(gateway, BOSS, content, "set", OWNER).type == "result"
    assert subscription_events(gateway, BEE) == [(WORK, "none")]
    publish(gateway, WORK, "a")
    assert got(gateway, BEE) == []


# Shared subscriptions, of MQTT-234


def queue_of(gateway: Gateway) -> int:
    return int(gateway.count("SELECT count(*) FROM queues WHERE share IS NOT NULL"))


def test_members_of_a_share_get_each_message_once_among_them(gateway: Gateway) -> None:
    subscribe(gateway, BEE, SHARE, BEE, qos="0")
    subscribe(gateway, ANT, "$share/tellers/plant/+/temp", ANT, qos="0")
    assert queue_of(gateway) == 1
    publish(gateway, TEMP, *"abcd")
    assert sorted(got(gateway, BEE) + got(gateway, ANT)) == list("abcd")


def test_another_name_or_another_filter_is_another_share(gateway: Gateway) -> None:
    for node in (SHARE, "$share:others:plant/+/temp", "$share:tellers:plant/#"):
        subscribe(gateway, BEE, node, BEE, qos="0")
    assert queue_of(gateway) == 3
    publish(gateway, TEMP, "a")
    assert got(gateway, BEE) == ["a"] * 3


def test_a_plain_subscription_and_a_share_are_both_told(gateway: Gateway) -> None:
    subscribe(gateway, BEE, SHARE, BEE, qos="0")
    subscribe(gateway, BEE, "plant/+/temp", BEE)
    publish(gateway, TEMP, "a")
    assert got(gateway, BEE) == ["a", "a"]


def test_a_share_has_level_1_and_ten_requests_if_nothing_is_said(gateway: Gateway) -> None:
    content = element("subscribe", node=SHARE, jid=BEE)
    assert "options" not in "".join(
        e.tag for e in send_request(gateway, BEE, content).payload or ()
    )
    reply = send_request(gateway, BEE, element("options", node=SHARE, jid=BEE), "get")
    assert values(reply.payload) == {
        "queue_requests": "10", "qos": "1", "expire": "", "queue_policy": "least-loaded",
    }  # fmt: skip


def test_the_first_member_says_the_policy(gateway: Gateway) -> None:
    reply = subscribe(gateway, BEE, SHARE, queue_policy="hash")
    assert values(reply.payload)["queue_policy"] == "hash"
    assert subscribe(gateway, ANT, SHARE, queue_policy="sticky").error == ("cancel", "conflict")
    assert list_subscriptions(gateway, ANT) == []
    assert values(subscribe(gateway, ANT, SHARE, qos="2").payload)["queue_policy"] == "hash"
    assert subscribe(gateway, ANT, SHARE, queue_policy="hash").type == "result"
    about = {"node": SHARE, "jid": f"ant@{DOMAIN}"}
    for policy, error in (("sticky", ("cancel", "conflict")), ("hash", None)):
        submitted = form("subscribe_options", {"queue_policy": policy})
        assert send_request(gateway, ANT, element("options", submitted, **about)).error == error


def test_the_last_member_takes_the_share_along_and_that_is_logged(gateway: Gateway) -> None:
    subscribe(gateway, BEE, SHARE, BEE)
    subscribe(gateway, ANT, SHARE, ANT)
    publish(gateway, TEMP, "a")
    assert send_request(gateway, BEE, element("unsubscribe", node=SHARE, jid=BEE)).type == "result"
    assert queue_of(gateway) == 1
    assert gateway.events(name="share_ended") == []
    assert send_request(gateway, ANT, element("unsubscribe", node=SHARE, jid=ANT)).type == "result"
    assert queue_of(gateway) == 0
    (event,) = gateway.events(name="share_ended")
    assert event.value == 1
    publish(gateway, TEMP, "b")
    assert gateway.count("SELECT count(*) FROM queue_items") == 0


@pytest.mark.parametrize("go", [_unavailable, _leave])
def test_a_durable_member_stays_when_it_goes_and_another_does_not(
    gateway: Gateway, go: Callable[[Gateway, str], None]
) -> None:
    subscribe(gateway, BEE, SHARE, BEE)
    subscribe(gateway, ANT, SHARE, ANT, expire="presence")
    go(gateway, BEE)
    go(gateway, ANT)
    assert len(list_subscriptions(gateway, BEE)) == 1
    assert list_subscriptions(gateway, ANT) == []
    publish(gateway, TEMP, "a")
    assert gateway.count("SELECT count(*) FROM queue_items WHERE state = 'ready'") in (0, 1)
    assert queue_of(gateway) == 1


def test_a_share_gets_nothing_that_none_of_its_members_may_have(gateway: Gateway) -> None:
    subscribe(gateway, BEE, SHARE, BEE, qos="0")
    affiliate(gateway, TEMP, "outcast")
    publish(gateway, TEMP, "a")
    assert got(gateway, BEE) == []
    assert gateway.count("SELECT count(*) FROM queue_items") == 0


def test_a_share_without_accounts_ends(gateway: Gateway) -> None:
    subscribe(gateway, BEE, SHARE, BEE)
    subscribe(gateway, ANT, "$share:tellers:plant/#", ANT)
    publish(gateway, TEMP, "a")
    gateway.tx(lambda tx: accounts.remove(tx, "bee"))
    publish(gateway, TEMP, "b")
    gateway.tx(gateway.router.run_external_change)
    (event,) = gateway.events(name="share_ended")
    assert (event.topic, event.value) == ("plant/+/temp", 1)
    assert queue_of(gateway) == 1


def test_a_revoked_account_is_told_nothing_and_is_subscribed_still(gateway: Gateway) -> None:
    subscribe(gateway, BEE, TEMP, qos="1")
    subscribe(gateway, BEE, "plant/#", qos="1")
    gateway.tx(lambda tx: accounts.revoke(tx, "bee"))
    publish(gateway, TEMP, "a")
    assert gateway.count("SELECT count(*) FROM outbox") == 0
    assert gateway.count("SELECT count(*) FROM subscriptions") == 2
    gateway.tx(lambda tx: accounts.restore(tx, "bee"))
    publish(gateway, TEMP, "b")
    assert gateway.count("SELECT count(*) FROM outbox") == 2


def test_options_behind_a_share_are_of_the_same_share(gateway: Gateway) -> None:
    behind = options(queue_requests="5").replace("<options>", f"<options node='{SHARE}'>")
    content = element("subscribe", node=SHARE, jid=BEE) + behind
    assert values(send_request(gateway, BEE, content).payload)["queue_requests"] == "5"
