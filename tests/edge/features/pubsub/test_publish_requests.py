"""Publishing by iq, and its notifications (XEP-0060, sections 6.1.7, 7.1 and 12.17)."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

import pytest
from msgspec.structs import replace

from edge.config.options import Pubsub
from edge.features.pubsub.rules.node_config import DEFAULT
from edge.features.pubsub.service import nodes
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, make_available
from tests.helpers.pubsub import (
    NODE,
    OWNER,
    PUBSUB,
    affiliate,
    create,
    element,
    error_of,
    form,
    item,
    item_ids,
    message_to_node,
    notifications,
    publish,
    published_id,
    reading,
    refusal,
    request_xml,
    retrieve,
    send_request,
    stored_ids,
    subid,
    subscribe,
)
from tests.helpers.pubsub_image import caches_equal_rows
from tests.helpers.qos_devices import make_eligible, take_requests
from tests.helpers.store import Gateway, MakeGateway

PUMP_BARE: Final = "pump1@gw.example"
LARGE: Final = f"<x xmlns='urn:x'>{'y' * 40_000}</x>"
RATE: Final = "<rate xmlns=''/>"
FULL: Final = ("wait", "resource-constraint")


@pytest.fixture
def gateway(build: MakeGateway) -> Gateway:
    return build()


def publish_request(*items: str, node: str | None = NODE, **options: str) -> str:
    following = ""
    if options:
        following = element("publish-options", form("publish-options", options))
    return element("publish", "".join(items), node=node) + following


def test_an_item_for_subscribers_is_published_without_statements(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert subscribe(gateway, VALVE, NODE).type == "result"
    publish(gateway, PUMP, NODE, item("first"))
    notifications(gateway, VALVE)
    with monkeypatch.context() as patch:
        patch.setattr(gateway, "commit", gateway.commit_in_memory)
        ids = ["first", *(str(number) for number in range(DEFAULT.max_items)), "3"]
        for id in ids:
            publish(gateway, PUMP, NODE, item(id, reading(5)))
    assert len(notifications(gateway, VALVE)) == len(ids)
    remaining = [id for id in ids[1:-1] if id != "3"]
    assert stored_ids(gateway, PUMP) == [*remaining, "3"]
    gateway.commit(lambda tx: caches_equal_rows(gateway.router.context, tx))


# Requests


def test_a_published_item_is_stored_sent_and_acknowledged(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    assert published_id(publish(gateway, PUMP, NODE, item("r1", reading(5)))) == "r1"
    found = [(one.element, one.node, one.items) for one in notifications(gateway, VALVE)]
    assert found == [("items", NODE, [("r1", "5")])]
    reply = retrieve(gateway, VALVE, NODE)
    assert item_ids(reply) == ["r1"]
    assert reply.content[0][0][0].get("watts") == "5"


def test_an_item_without_an_id_gets_a_unique_one(gateway: Gateway) -> None:
    found = {published_id(publish(gateway, PUMP, NODE, item(None, reading(1)))) for _ in range(3)}
    assert len(found) == 3
    assert set(stored_ids(gateway, PUMP)) == found


@pytest.mark.parametrize(
    ("payload", "tag"),
    [("<e:state>on</e:state>", "{urn:example:e}state"), (RATE, "rate")],
)
def test_a_payload_keeps_its_namespace(gateway: Gateway, payload: str, tag: str) -> None:
    xml = request_xml(publish_request(item("x", payload)))
    reply = gateway.ask(PUMP, xml.replace("<iq ", "<iq xmlns:e='urn:example:e' "))
    assert reply.type == "result"
    assert retrieve(gateway, PUMP, NODE).content[0][0][0].tag == tag


@pytest.mark.parametrize(
    ("content", "condition", "specific"),
    [
        ("<publish/>", "bad-request", "nodeid-required"),
        (publish_request(item("x"), node="none"), "item-not-found", ""),
        (publish_request(), "bad-request", "item-required"),
        (publish_request(item("x"), item("y")), "not-acceptable", "max-items-exceeded"),
        (publish_request("<other/>"), "bad-request", ""),
        (publish_request(item("x", reading(1) * 2)), "bad-request", "invalid-payload"),
        (publish_request(item("x" * 257)), "not-acceptable", ""),
        (publish_request(item("x")) + "<publish-options/>", "bad-request", "invalid-options"),
        (publish_request(item("x"), queue_ttl="x"), "bad-request", "invalid-options"),
        (publish_request(item("x"), node="transient"), "bad-request", "payload-required"),
        (publish_request(item("x"), node="signal"), "bad-request", "item-forbidden"),
        (publish_request(item("x", reading(1)), node="typed"), "bad-request", "invalid-payload"),
        (publish_request(item("x", RATE), node="typed"), "bad-request", "invalid-payload"),
        (publish_request(item("x", "21.5")), "bad-request", "invalid-payload"),
        (publish_request(item("x", "<![CDATA[21.5]]>")), "bad-request", "invalid-payload"),
        (publish_request(item("x", "21.5" + reading(1))), "bad-request", "invalid-payload"),
        (publish_request(item("x", reading(1) + "21.5")), "bad-request", "invalid-payload"),
        (publish_request("21.5", item("x")), "bad-request", "invalid-payload"),
        (publish_request(item("x"), "21.5"), "bad-request", "invalid-payload"),
        ("21.5" + publish_request(item("x")), "bad-request", ""),
        (publish_request(item("x")) + "21.5", "bad-request", ""),
        (publish_request(item("x")) * 2, "bad-request", ""),
        (publish_request(item("x"), queue_ttl="1") + "<configure/>", "bad-request", ""),
    ],
)
def test_invalid_publication(gateway: Gateway, content: str, condition: str, specific: str) -> None:
    create(gateway, PUMP, "transient", persist_items="0")
    create(gateway, PUMP, "signal", persist_items="0", deliver_payloads="0")
    create(gateway, PUMP, "typed", type="ate")
    assert refusal(gateway, PUMP, content)[1:] == (condition, specific)
    assert stored_ids(gateway, PUMP) == []


def test_a_refusal_repeats_the_request(gateway: Gateway) -> None:
    reply = publish(gateway, PUMP, "none", item("x", reading(1)))
    assert error_of(reply) == ("cancel", "item-not-found")
    assert reply.content.find(f"{{{PUBSUB}}}publish") is not None


def test_nodes_that_store_nothing_still_notify(gateway: Gateway) -> None:
    create(gateway, PUMP, "transient", persist_items="0")
    create(gateway, PUMP, "signal", persist_items="0", deliver_payloads="0")
    for node in ("transient", "signal"):
        subscribe(gateway, VALVE, node)
    assert published_id(publish(gateway, PUMP, "transient", item("x", reading(7)))) == "x"
    assert publish(gateway, PUMP, "signal").type == "result"
    assert [(one.node, one.items) for one in notifications(gateway, VALVE)] == [
        ("transient", [("x", "7")]),
        ("signal", []),
    ]
    assert gateway.count("SELECT count(*) FROM items") == 0


def test_subscribers_may_publish_if_the_node_allows_it(gateway: Gateway) -> None:
    create(gateway, PUMP, "ours", publish_model="subscribers")
    assert error_of(publish(gateway, VALVE, "ours", item("x"))) == ("auth", "forbidden")
    subscribe(gateway, VALVE, "ours")
    assert publish(gateway, VALVE, "ours", item("x")).type == "result"
    assert error_of(publish(gateway, UNTRUSTED, NODE, item("x"))) == ("auth", "forbidden")


# Notifications


def test_each_of_several_subscriptions_is_notified_once_with_its_subid(gateway: Gateway) -> None:
    by_name = subid(subscribe(gateway, VALVE, NODE))
    by_filter = subid(subscribe(gateway, VALVE, "plant/+"))
    assert subscribe(gateway, VALVE, "plant/#", jid=VALVE).type == "result"
    publish(gateway, PUMP, NODE, item("x", reading(1)))
    found = notifications(gateway, VALVE)
    assert {one.subid for one in found} == {by_name, by_filter, None}
    assert len(found) == 3


def test_notifications_may_omit_payloads(gateway: Gateway) -> None:
    create(gateway, PUMP, "quiet", deliver_payloads="0", notification_type="normal")
    subscribe(gateway, VALVE, "quiet")
    subscribe(gateway, VALVE, "$share:s:quiet", qos="1")
    publish(gateway, PUMP, "quiet", item("x", reading(1)))
    (one,) = notifications(gateway, VALVE)
    assert (one.type, one.items) == (None, [("x", None)])
    assert gateway.count("SELECT body FROM queue_bodies") == b""
    found = retrieve(gateway, PUMP, "quiet").content
    assert len(found[0][0]) == 1


def test_a_node_may_store_items_without_notifications(gateway: Gateway) -> None:
    create(gateway, PUMP, "silent", deliver_notifications="0")
    subscribe(gateway, VALVE, "silent")
    publish(gateway, PUMP, "silent", item("x", reading(1)))
    assert notifications(gateway, VALVE) == []
    assert stored_ids(gateway, PUMP, "silent") == ["x"]


def test_a_new_subscriber_gets_the_last_item_with_its_time(gateway: Gateway) -> None:
    for name in ("a", "b"):
        publish(gateway, PUMP, NODE, item(name, reading(1)))
    create(gateway, PUMP, "never", send_last_published_item="never")
    publish(gateway, PUMP, "never", item("a", reading(1)))
    subscribe(gateway, VALVE, NODE)
    subscribe(gateway, VALVE, "never")
    (one,) = notifications(gateway, VALVE)
    assert (one.items, one.delayed, one.type) == ([("b", "1")], True, "headline")
    subscribe(gateway, VALVE, NODE)
    assert notifications(gateway, VALVE) == [], "the subscription is not new"


def test_a_new_subscription_to_a_filter_gets_the_last_item_of_each_readable_node(
    gateway: Gateway,
) -> None:
    for name in ("site/b", "site/a", "site/empty", "other"):
        create(gateway, PUMP, name)
    create(gateway, PUMP, "site/never", send_last_published_item="never")
    create(gateway, PUMP, "site/closed", access_model="whitelist")
    create(gateway, PUMP, "site/queue", queueing="1")
    create(gateway, PUMP, "site/transient", persist_items="0")
    for name in ("never", "closed", "queue", "transient"):
        publish(gateway, PUMP, f"site/{name}", item("x", reading(1)))
    for name, watts in (("site/a", 1), ("site/b", 2), ("site/a", 3), ("other", 4)):
        publish(gateway, PUMP, name, item(f"i{watts}", reading(watts)))
    subscribe(gateway, VALVE, "site/+", deliver="0")
    assert notifications(gateway, VALVE) == []
    subscribe(gateway, VALVE, "site/#")
    found = [(one.node, one.items, one.delayed) for one in notifications(gateway, VALVE)]
    assert found == [("site/b", [("i2", "2")], True), ("site/a", [("i3", "3")], True)]
    subscribe(gateway, VALVE, "site/#")
    assert notifications(gateway, VALVE) == [], "the subscription is not new"


def test_last_items_name_the_subscription_if_several_match(gateway: Gateway) -> None:
    publish(gateway, PUMP, NODE, item("a", reading(1)))
    subscribe(gateway, VALVE, NODE)
    (first,) = notifications(gateway, VALVE)
    own = subid(subscribe(gateway, VALVE, "plant/#"))
    (second,) = notifications(gateway, VALVE)
    assert (first.subid, second.subid) == (None, own)


@pytest.mark.parametrize(
    ("limits", "watts"), [({"last_items": 2}, "1"), ({"unacknowledged_bytes": 65_536}, "1" * 7000)]
)
def test_a_filter_gets_the_newest_items_up_to_a_limit(
    build: MakeGateway, limits: dict[str, int], watts: str
) -> None:
    gateway = build(**limits)
    for name in ("plant/a", "plant/b", "plant/c"):
        create(gateway, PUMP, name)
        publish(gateway, PUMP, name, item("x", reading(watts)))
    subscribe(gateway, VALVE, "#")
    assert [one.node for one in notifications(gateway, VALVE)] == ["plant/b", "plant/c"]
    assert [event.name for event in gateway.events("system")] == ["last_items"]


# Publishers


def publishers(*stanzas: Element) -> list[str | None]:
    """Return the publishers that items name."""
    found = (one for stanza in stanzas for one in stanza.iter() if one.tag.endswith("}item"))
    return [one.get("publisher") for one in found]


@pytest.mark.parametrize(
    ("config", "publisher"),
    [
        ({}, VALVE_BARE),
        ({"itemreply": "publisher"}, VALVE_BARE),
        ({"itemreply": "owner"}, PUMP_BARE),
        ({"itemreply": "none"}, None),
    ],
)
def test_itemreply_decides_which_publisher_an_item_names(
    gateway: Gateway, config: dict[str, str], publisher: str | None
) -> None:
    make_available(gateway, PUMP)
    create(gateway, PUMP, "site", publish_model="open", **config)
    create(gateway, PUMP, "jobs", publish_model="open", queueing="1", **config)
    subscribe(gateway, PUMP, "site")
    publish(gateway, VALVE, "site", element("item", id="a", publisher="spoof@gw.example"))
    assert publishers(*gateway.elements(PUMP)) == [publisher]
    assert publishers(retrieve(gateway, PUMP, "site").content) == [publisher]
    subscribe(gateway, PUMP, "site", PUMP)
    assert publishers(*gateway.elements(PUMP)) == [publisher], "the last item"
    publish(gateway, VALVE, "jobs", item("waiting"))
    subscribe(gateway, PUMP, "jobs", queue_requests="5")
    publish(gateway, VALVE, "jobs", item("new"))
    assert publishers(*gateway.elements(PUMP)) == [publisher] * 2
    subscribe(gateway, PUMP, "$share:pool:site/#", qos="0")
    publish(gateway, VALVE, "site", item("b"))
    assert publishers(*gateway.elements(PUMP)) == [publisher] * 3, "two subscriptions and a share"


@pytest.mark.parametrize("target", ["plant/+", "$share:pool:plant/#"])
@pytest.mark.parametrize("qos", ["1", "2"])
def test_an_item_in_an_outbox_names_its_publisher(gateway: Gateway, target: str, qos: str) -> None:
    make_eligible(gateway, PUMP)
    subscribe(gateway, PUMP, target, qos=qos)
    publish(gateway, VALVE, NODE, item("a"))
    (request,) = take_requests(gateway, PUMP)
    assert request.message is not None
    assert publishers(request.message) == [VALVE_BARE]


def test_a_former_owner_is_not_named_as_publisher(gateway: Gateway) -> None:
    create(gateway, PUMP, "site", itemreply="owner")
    publish(gateway, PUMP, "site", item("a"))
    affiliate(gateway, PUMP, "site", cam="owner", valve="owner")
    assert publishers(retrieve(gateway, VALVE, "site").content) == [PUMP_BARE]
    affiliate(gateway, VALVE, "site", pump1="publisher")
    assert publishers(retrieve(gateway, VALVE, "site").content) == ["cam@gw.example"]
    changed = element("configure", form("node_config", {"itemreply": "none"}), node="site")
    assert send_request(gateway, VALVE, changed, ns=OWNER).type == "result"
    assert publishers(retrieve(gateway, VALVE, "site").content) == [None]


def test_a_waiting_item_of_a_deleted_node_names_no_publisher(gateway: Gateway) -> None:
    gateway.send(VALVE, "<presence type='unavailable'/>")
    subscribe(gateway, VALVE, "$share:pool:plant/#", qos="0")
    publish(gateway, PUMP, NODE, item("a"))
    send_request(gateway, PUMP, element("delete", node=NODE), ns=OWNER)
    gateway.sends(VALVE)
    gateway.send(VALVE, "<presence/>")
    assert publishers(*gateway.elements(VALVE)) == [None]


# Publish options and auto-creation


@pytest.mark.parametrize(
    ("name", "value"),
    [("access_model", "whitelist"), ("max_items", "21"), ("unheard_of", "1"), ("queue_ttl", "9")],
)
def test_an_unmet_precondition_refuses_the_item(gateway: Gateway, name: str, value: str) -> None:
    content = publish_request(item("x", reading(1)), **{name: value})
    assert refusal(gateway, PUMP, content)[1:] == ("conflict", "precondition-not-met")
    assert stored_ids(gateway, PUMP) == []
    reply = publish(gateway, PUMP, NODE, item("x"), publish_model="open", max_items="20")
    assert reply.type == "result", "these preconditions are met"


def test_publishing_creates_a_node_that_auto_create_matches(gateway: Gateway) -> None:
    reply = publish(gateway, VALVE, "auto/v", item("x"), access_model="nonsense")
    assert error_of(reply) == ("cancel", "conflict"), "no node is created"
    reply = publish(gateway, VALVE, "auto/v", item("x", reading(1)), max_items="1")
    assert reply.type == "result"
    publish(gateway, VALVE, "auto/v", item("y", reading(1)))
    assert item_ids(retrieve(gateway, VALVE, "auto/v")) == ["y"]
    assert gateway.count("SELECT owner FROM nodes WHERE name = 'auto/v'") == VALVE_BARE
    for name in ("auto", "autos/v"):
        expected = None if name == "auto" else ("cancel", "item-not-found")
        assert publish(gateway, VALVE, name, item("x")).error == expected


@pytest.mark.parametrize("name", ["$SYS/broker/load", "$fieldpost/status"])
def test_only_the_gateway_has_nodes_with_reserved_names(
    build_empty: MakeGateway, name: str
) -> None:
    gateway = build_empty(pubsub=Pubsub(auto_create=["$SYS/#", "$fieldpost/#"]))
    refused = ("auth", "forbidden")
    assert publish(gateway, VALVE, name, item("x", reading(1))).error == refused
    assert refusal(gateway, VALVE, element("create", node=name))[:2] == refused
    config = replace(DEFAULT, publish_model="open")
    gateway.commit(lambda tx: nodes.create(gateway.router.context, tx, name, "gw.example", config))
    assert publish(gateway, VALVE, name, item("x", reading(1))).error == refused
    assert subscribe(gateway, VALVE, name).type == "result"


def test_publishing_creates_a_queue_with_the_item(gateway: Gateway) -> None:
    reply = publish(gateway, VALVE, "auto/q", item("j"), queueing="1", queue_priority="2")
    assert published_id(reply) == "j"
    found = gateway.connection.execute("SELECT item, priority FROM queue_items").fetchall()
    assert found == [("j", 2)]


# Limits


@pytest.mark.parametrize("items", [50, 2], ids=["all nodes have capacity", "all nodes are full"])
def test_a_node_keeps_its_newest_items(build: MakeGateway, items: int) -> None:
    gateway = build(items=items)
    create(gateway, PUMP, "small", max_items="2")
    for name in "abc":
        assert publish(gateway, PUMP, "small", item(name)).type == "result"
    assert stored_ids(gateway, PUMP, "small") == ["b", "c"]


def test_items_expire(gateway: Gateway) -> None:
    create(gateway, PUMP, "brief", item_expire="60")
    publish(gateway, PUMP, "brief", item("x"))
    assert gateway.due is not None
    gateway.clock.service += 59
    gateway.run_timers()
    assert stored_ids(gateway, PUMP, "brief") == ["x"]
    gateway.clock.service += 1
    gateway.run_timers()
    assert stored_ids(gateway, PUMP, "brief") == []


@pytest.mark.parametrize(("limit", "figure", "fits"), [("items", 2, 2), ("items_bytes", 65536, 1)])
def test_the_limits_of_all_nodes_refuse_new_items_but_not_replacements(
    build: MakeGateway, limit: str, figure: int, fits: int
) -> None:
    gateway = build(**{limit: figure})
    for number in range(fits):
        assert publish(gateway, PUMP, NODE, item(f"{number}", LARGE)).type == "result"
    reply = publish(gateway, PUMP, NODE, item("more", LARGE))
    assert (reply.error, reply.text) == (FULL, f"the limit {limit} = {figure} is reached")
    assert [event.name for event in gateway.events("system", limit)] == [limit]
    assert publish(gateway, PUMP, NODE, item("0", LARGE)).type == "result"


def test_the_copies_in_all_shares_count_together(build: MakeGateway) -> None:
    gateway = build(queue_items=4)
    gateway.end(VALVE)
    gateway.bind(VALVE)
    for share in ("one", "two", "three"):
        subscribe(gateway, VALVE, f"$share:{share}:{NODE}")
    reply = publish(gateway, PUMP, NODE, item("a"))
    assert (reply.error, reply.text) == (FULL, "the limit queue_items = 2 is reached")
    assert gateway.count("SELECT count(*) FROM queue_items") == 0


def test_a_locked_item_is_not_replaced(gateway: Gateway) -> None:
    create(gateway, PUMP, "work", queueing="1")
    publish(gateway, PUMP, "work", item("a", reading(1)))
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'locked'"))
    assert error_of(publish(gateway, PUMP, "work", item("a", reading(2)))) == ("cancel", "conflict")
    assert gateway.count("SELECT body FROM queue_bodies") == reading(1).encode()


def test_the_notifications_of_an_item_are_limited_together(build: MakeGateway) -> None:
    gateway = build(unacknowledged_total_bytes=65_536)
    subscribe(gateway, VALVE, NODE)
    assert publish(gateway, PUMP, NODE, item("a", LARGE)).type == "result"
    subscribe(gateway, VALVE, "plant/#")
    reply = publish(gateway, PUMP, NODE, item("b", LARGE))
    assert reply.text == "the limit unacknowledged_total_bytes = 65536 is reached"
    assert publish(gateway, PUMP, NODE, item("b", reading(1))).type == "result"
    assert stored_ids(gateway, PUMP) == ["a", "b"]


def test_the_notifications_of_another_new_node_do_not_count(build: MakeGateway) -> None:
    gateway = build(unacknowledged_total_bytes=65_536)
    for topic in ("auto/#", "auto/a/#"):
        subscribe(gateway, VALVE, topic)
    assert publish(gateway, PUMP, "auto/a", item("a", LARGE)).error == FULL
    assert publish(gateway, PUMP, "auto/b", item("b", LARGE)).type == "result"


def test_new_items_may_not_use_the_reserve_of_the_database(gateway: Gateway) -> None:
    reserve = gateway.limits.database_bytes
    context = gateway.router.context
    limits = replace(context.limits, database_reserve=reserve)
    gateway.router.context = context._replace(limits=limits)
    reply = publish(gateway, PUMP, NODE, item("a", reading(1)))
    assert reply.error == FULL
    assert reply.text.startswith("the limit database_")
    plain = gateway.ask(PUMP, message_to_node(NODE, reading(1)))
    assert plain.error == FULL
    assert stored_ids(gateway, PUMP) == []


def test_an_item_of_a_queue_node_is_only_in_its_queue(gateway: Gateway) -> None:
    create(gateway, PUMP, "work", queueing="1")
    subscribe(gateway, VALVE, "#")
    reply = publish(gateway, PUMP, "work", item("j", reading(1)), queue_priority="3", queue_ttl="9")
    assert published_id(reply) == "j"
    assert notifications(gateway, VALVE) == []
    found = gateway.connection.execute("SELECT item, priority, node FROM queue_items").fetchall()
    assert found == [("j", 3, "work")]
    assert gateway.count("SELECT count(*) FROM items") == 0
