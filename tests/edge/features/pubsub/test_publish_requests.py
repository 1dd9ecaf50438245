"""Publishing by iq, and who is told: XEP-0060, sections 7.1, 6.1.7 and 12.17."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from edge.config.limits import Limits
from edge.config.options import Pubsub
from tests.helpers.people import APART, PUMP, VALVE, VALVE_BARE, appear, provision
from tests.helpers.publishing import (
    ids,
    item,
    publish,
    published_id,
    reading,
    refused,
    retrieve,
    specific,
    to_node,
    told,
)
from tests.helpers.store import Gateway, new_database
from tests.helpers.subscribing import (
    PUBSUB,
    create,
    element,
    form,
    request,
    subid,
    subscribe,
)

NODE = "plant/energy"
QUERY = element("publish", item("x", reading(1)), node=NODE)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Make gateways with these limits, on which nodes below `auto/` make themselves."""
    made: list[Gateway] = []

    def build(**limits: float) -> Gateway:
        options = Pubsub(auto_create=["auto/#"])
        gateway = Gateway(
            new_database(tmp_path),
            Limits(**limits),  # type: ignore[arg-type]
            pubsub=options,
        )
        made.append(gateway)
        provision(gateway)
        appear(gateway, VALVE)
        return gateway

    yield build
    for gateway in made:
        gateway.close()


@pytest.fixture
def gateway(build: Callable[..., Gateway]) -> Gateway:
    """One with its defaults, and a node of the pump's that is open to all."""
    gateway = build()
    create(gateway, PUMP, NODE, publish_model="open")
    return gateway


def kept(gateway: Gateway, node: str = NODE) -> list[str]:
    return ids(retrieve(gateway, PUMP, node))


# What a publication is answered


def test_a_publication_is_kept_and_told_and_answered_with_its_id(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, NODE)
    assert published_id(publish(gateway, PUMP, NODE, item("r1", reading(5)))) == "r1"
    assert [(one.of, one.node, one.items) for one in told(gateway, VALVE)] == [
        ("items", NODE, [("r1", "5")])
    ]
    reply = retrieve(gateway, VALVE, NODE)
    assert ids(reply) == ["r1"]
    assert reply.payload is not None
    assert reply.payload[0][0][0].get("watts") == "5"


def test_an_item_without_an_id_gets_one_of_its_own(gateway: Gateway) -> None:
    found = {published_id(publish(gateway, PUMP, NODE, item(None, reading(1)))) for _ in range(3)}
    assert len(found) == 3
    assert set(kept(gateway)) == found


def test_the_same_id_again_replaces_the_item(gateway: Gateway) -> None:
    for name, watts in (("a", 1), ("b", 2), ("a", 3)):
        publish(gateway, PUMP, NODE, item(name, reading(watts)))
    assert kept(gateway) == ["b", "a"]


def test_what_surrounds_the_payload_declares_what_it_needs(gateway: Gateway) -> None:
    xml = request(f"<publish node='{NODE}'><item id='x'><e:state>on</e:state></item></publish>")
    reply = gateway.send(PUMP, xml.replace("<iq ", "<iq xmlns:e='urn:example:e' "))
    assert reply is not None
    assert reply.type == "result"
    found = retrieve(gateway, PUMP, NODE).payload
    assert found is not None
    assert found[0][0][0].tag == "{urn:example:e}state"


@pytest.mark.parametrize(
    ("content", "conditions"),
    [
        ("<publish/>", ["bad-request", "nodeid-required"]),
        (element("publish", item("x"), node="none"), ["item-not-found"]),
        (element("publish", node=NODE), ["bad-request", "item-required"]),
        (
            element("publish", item("x") + item("y"), node=NODE),
            ["not-acceptable", "max-items-exceeded"],
        ),
        (element("publish", "<other/>", node=NODE), ["bad-request"]),
        (
            element("publish", item("x", reading(1) + reading(2)), node=NODE),
            ["bad-request", "invalid-payload"],
        ),
        (element("publish", item("x" * 257), node=NODE), ["not-acceptable"]),
        (QUERY + "<publish-options/>", ["bad-request", "invalid-options"]),
        (
            QUERY
            + f"<publish-options>{form('publish-options', {'queue_ttl': 'x'})}</publish-options>",
            ["bad-request", "invalid-options"],
        ),
    ],
)
def test_what_cannot_be_published_is_refused(
    gateway: Gateway, content: str, conditions: list[str]
) -> None:
    assert specific(gateway, PUMP, request(content)) == conditions
    assert kept(gateway) == []


def test_a_refusal_repeats_the_request(gateway: Gateway) -> None:
    reply = publish(gateway, PUMP, "none", item("x", reading(1)))
    assert refused(reply) == ("cancel", "item-not-found")
    assert reply.payload is not None
    assert reply.payload.find(f"{{{PUBSUB}}}publish") is not None


def test_nodes_that_keep_nothing_take_what_they_tell(gateway: Gateway) -> None:
    create(gateway, PUMP, "told", persist_items="0")
    create(gateway, PUMP, "bell", persist_items="0", deliver_payloads="0")
    for node in ("told", "bell"):
        subscribe(gateway, VALVE, node)
    ask = {node: element("publish", item("x"), node=node) for node in ("told", "bell")}
    assert specific(gateway, PUMP, request(ask["told"])) == ["bad-request", "payload-required"]
    assert specific(gateway, PUMP, request(ask["bell"])) == ["bad-request", "item-forbidden"]
    assert published_id(publish(gateway, PUMP, "told", item("x", reading(7)))) == "x"
    reply = publish(gateway, PUMP, "bell")
    assert reply.type == "result"
    assert [(one.node, one.items) for one in told(gateway, VALVE)] == [
        ("told", [("x", "7")]),
        ("bell", []),
    ]
    assert gateway.count("SELECT count(*) FROM items") == 0


def test_a_payload_of_another_type_than_the_nodes_is_refused(gateway: Gateway) -> None:
    create(gateway, PUMP, "typed", type="urn:example:other")
    xml = request(element("publish", item("x", reading(1)), node="typed"))
    assert specific(gateway, PUMP, xml) == ["bad-request", "invalid-payload"]


def test_a_payload_in_no_namespace_is_none_of_the_nodes_type(gateway: Gateway) -> None:
    create(gateway, PUMP, "typed", type="ate")
    xml = request(element("publish", item("x", "<rate xmlns=''/>"), node="typed"))
    assert specific(gateway, PUMP, xml) == ["bad-request", "invalid-payload"]
    publish(gateway, PUMP, NODE, item("x", "<rate xmlns=''/>"))
    found = retrieve(gateway, PUMP, NODE).payload
    assert found is not None
    assert found[0][0][0].tag == "rate"


# Who may publish


def test_who_may_not_publish_is_refused(gateway: Gateway) -> None:
    create(gateway, PUMP, "mine")
    create(gateway, PUMP, "ours", publish_model="subscribers")
    assert refused(publish(gateway, VALVE, "mine", item("x"))) == ("auth", "forbidden")
    assert refused(publish(gateway, VALVE, "ours", item("x"))) == ("auth", "forbidden")
    subscribe(gateway, VALVE, "ours")
    assert publish(gateway, VALVE, "ours", item("x")).type == "result"
    assert refused(publish(gateway, APART, NODE, item("x"))) == ("auth", "forbidden")


# Who is told


def test_each_subscription_is_told_once_and_which_it_is_where_there_are_several(
    gateway: Gateway,
) -> None:
    by_name = subid(subscribe(gateway, VALVE, NODE))
    by_filter = subid(subscribe(gateway, VALVE, "plant/+"))
    alone = subscribe(gateway, VALVE, "plant/#", jid=VALVE)
    assert alone.type == "result"
    publish(gateway, PUMP, NODE, item("x", reading(1)))
    found = told(gateway, VALVE)
    assert {one.subid for one in found} == {by_name, by_filter, None}
    assert len(found) == 3


def test_payloads_stay_at_home_where_the_node_says_so(gateway: Gateway) -> None:
    create(gateway, PUMP, "quiet", deliver_payloads="0", notification_type="normal")
    subscribe(gateway, VALVE, "quiet")
    subscribe(gateway, VALVE, "$share:s:quiet", qos="1")
    publish(gateway, PUMP, "quiet", item("x", reading(1)))
    (one,) = told(gateway, VALVE)
    assert (one.type, one.items) == (None, [("x", None)])
    assert gateway.count("SELECT body FROM queue_bodies") == b""
    found = retrieve(gateway, PUMP, "quiet").payload
    assert found is not None
    assert len(found[0][0]) == 1


def test_a_node_that_does_not_notify_only_keeps(gateway: Gateway) -> None:
    create(gateway, PUMP, "silent", deliver_notifications="0")
    subscribe(gateway, VALVE, "silent")
    publish(gateway, PUMP, "silent", item("x", reading(1)))
    assert told(gateway, VALVE) == []
    assert kept(gateway, "silent") == ["x"]


def test_a_new_subscriber_gets_the_last_item_with_its_time(gateway: Gateway) -> None:
    for name in ("a", "b"):
        publish(gateway, PUMP, NODE, item(name, reading(1)))
    create(gateway, PUMP, "never", send_last_published_item="never")
    publish(gateway, PUMP, "never", item("a", reading(1)))
    subscribe(gateway, VALVE, NODE)
    subscribe(gateway, VALVE, "never")
    (one,) = told(gateway, VALVE)
    assert (one.items, one.delayed, one.type) == ([("b", "1")], True, "headline")


def test_a_publisher_that_is_subscribed_is_told_too(gateway: Gateway) -> None:
    gateway.leave(PUMP)
    appear(gateway, PUMP)
    subscribe(gateway, PUMP, NODE)
    publish(gateway, PUMP, NODE, item("x", reading(1)))
    assert len(told(gateway, PUMP)) == 1


# Options of a publication


def test_a_precondition_that_is_met_changes_nothing(gateway: Gateway) -> None:
    reply = publish(gateway, PUMP, NODE, item("x"), publish_model="open", max_items="20")
    assert reply.type == "result"


@pytest.mark.parametrize(
    ("name", "value"),
    [("access_model", "whitelist"), ("max_items", "21"), ("unheard_of", "1"), ("queue_ttl", "9")],
)
def test_one_that_is_not_met_refuses_the_item(gateway: Gateway, name: str, value: str) -> None:
    behind = f"<publish-options>{form('publish-options', {name: value})}</publish-options>"
    conditions = specific(gateway, PUMP, request(QUERY + behind))
    assert conditions == ["conflict", "precondition-not-met"]
    assert kept(gateway) == []


def test_a_node_makes_itself_as_the_options_want(gateway: Gateway) -> None:
    reply = publish(gateway, VALVE, "auto/v", item("x", reading(1)), max_items="1")
    assert reply.type == "result"
    publish(gateway, VALVE, "auto/v", item("y", reading(1)))
    assert ids(retrieve(gateway, VALVE, "auto/v")) == ["y"]
    owner = gateway.count("SELECT owner FROM nodes WHERE name = 'auto/v'")
    assert owner == VALVE_BARE


def test_a_queue_makes_itself_and_has_the_item(gateway: Gateway) -> None:
    reply = publish(gateway, VALVE, "auto/q", item("j"), queueing="1", queue_priority="2")
    assert published_id(reply) == "j"
    found = gateway.connection.execute("SELECT item, priority FROM queue_items").fetchall()
    assert found == [("j", 2)]


def test_a_node_that_cannot_be_as_wanted_is_not_made(gateway: Gateway) -> None:
    publish(gateway, VALVE, "auto/v", item("x"), access_model="nonsense")
    assert gateway.count("SELECT count(*) FROM nodes WHERE name = 'auto/v'") == 0


def test_a_filter_hears_of_a_node_from_its_first_item_on(gateway: Gateway) -> None:
    subscribe(gateway, VALVE, "auto/#")
    publish(gateway, PUMP, "auto/new", item("x", reading(1)))
    assert [one.node for one in told(gateway, VALVE)] == ["auto/new"]


# Bounds


def test_the_oldest_go_where_a_node_has_its_most(gateway: Gateway) -> None:
    create(gateway, PUMP, "small", max_items="2")
    for name in "abc":
        publish(gateway, PUMP, "small", item(name))
    assert kept(gateway, "small") == ["b", "c"]


def test_items_expire(gateway: Gateway) -> None:
    create(gateway, PUMP, "brief", item_expire="60")
    publish(gateway, PUMP, "brief", item("x"))
    assert gateway.due is not None
    gateway.clock.service += 59
    gateway.ring()
    assert kept(gateway, "brief") == ["x"]
    gateway.clock.service += 1
    gateway.ring()
    assert kept(gateway, "brief") == []


@pytest.mark.parametrize(("limit", "figure", "fits"), [("items", 2, 2), ("items_bytes", 65536, 1)])
def test_beyond_the_bounds_of_all_nodes_publishers_wait(
    build: Callable[..., Gateway], limit: str, figure: int, fits: int
) -> None:
    gateway = build(**{limit: figure})
    create(gateway, PUMP, NODE)
    large = f"<x xmlns='urn:x'>{'y' * 40_000}</x>"
    for number in range(fits):
        assert publish(gateway, PUMP, NODE, item(f"{number}", large)).type == "result"
    reply = publish(gateway, PUMP, NODE, item("more", large))
    assert refused(reply) == ("wait", "resource-constraint")
    assert reply.text == f"{limit} is {figure}"
    assert [event.name for event in gateway.events("system", limit)] == [limit]
    # one that takes the place of another finds room
    assert publish(gateway, PUMP, NODE, item("0", large)).type == "result"


def test_a_node_at_its_most_goes_on_where_all_nodes_are_full(
    build: Callable[..., Gateway],
) -> None:
    gateway = build(items=2)
    create(gateway, PUMP, NODE, max_items="2")
    for name in "abc":
        assert publish(gateway, PUMP, NODE, item(name)).type == "result"
    assert kept(gateway) == ["b", "c"]


def test_all_shares_of_an_item_count_together(build: Callable[..., Gateway]) -> None:
    gateway = build(queue_items=4)
    create(gateway, PUMP, NODE)
    gateway.leave(VALVE)
    gateway.bind(VALVE)
    for share in ("one", "two", "three"):
        subscribe(gateway, VALVE, f"$share:{share}:{NODE}")
    reply = publish(gateway, PUMP, NODE, item("a"))
    assert (reply.error, reply.text) == (("wait", "resource-constraint"), "queue_items is 2")
    assert gateway.count("SELECT count(*) FROM queue_items") == 0


def test_a_line_is_bounded_and_an_item_in_it_may_be_replaced(build: Callable[..., Gateway]) -> None:
    gateway = build(items_per_queue=1, queue_bytes=65_536, queue_bytes_per_queue=65_536)
    create(gateway, PUMP, NODE, queueing="1")
    large = f"<x xmlns='urn:x'>{'y' * 40_000}</x>"
    assert publish(gateway, PUMP, NODE, item("a", large)).type == "result"
    assert publish(gateway, PUMP, NODE, item("b")).text == "items_per_queue is 1"
    assert publish(gateway, PUMP, NODE, item("a", reading(1))).type == "result"
    assert gateway.count("SELECT body FROM queue_bodies") == reading(1).encode()


def test_what_is_being_worked_on_is_not_replaced(gateway: Gateway) -> None:
    create(gateway, PUMP, "work", queueing="1")
    publish(gateway, PUMP, "work", item("a", reading(1)))
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'locked'"))
    assert refused(publish(gateway, PUMP, "work", item("a", reading(2)))) == ("cancel", "conflict")
    assert gateway.count("SELECT body FROM queue_bodies") == reading(1).encode()


def test_what_is_told_is_bounded_altogether(build: Callable[..., Gateway]) -> None:
    gateway = build(unacknowledged_total_bytes=65_536)
    create(gateway, PUMP, NODE)
    large = f"<x xmlns='urn:x'>{'y' * 40_000}</x>"
    subscribe(gateway, VALVE, NODE)
    assert publish(gateway, PUMP, NODE, item("a", large)).type == "result"
    subscribe(gateway, VALVE, "plant/#")
    reply = publish(gateway, PUMP, NODE, item("b", large))
    assert reply.text == "unacknowledged_total_bytes is 65536"
    assert publish(gateway, PUMP, NODE, item("b", reading(1))).type == "result"
    assert kept(gateway) == ["a", "b"]


def test_in_the_reserve_of_the_database_nothing_new_is_published(
    gateway: Gateway,
) -> None:
    full = gateway.limits.database_bytes
    context = gateway.router.context
    gateway.router.context = context._replace(limits=replace(context.limits, database_reserve=full))
    reply = publish(gateway, PUMP, NODE, item("a", reading(1)))
    assert reply.error == ("wait", "resource-constraint")
    assert reply.text.startswith("database_")
    plain = gateway.send(PUMP, to_node(NODE, reading(1)))
    assert plain is not None
    assert plain.error == ("wait", "resource-constraint")
    assert kept(gateway) == []


def test_a_full_share_holds_back_its_publishers(build: Callable[..., Gateway]) -> None:
    gateway = build(items_per_queue=1)
    create(gateway, PUMP, NODE)
    gateway.leave(VALVE)
    gateway.bind(VALVE)
    assert subscribe(gateway, VALVE, f"$share:s:{NODE}").type == "result"
    assert publish(gateway, PUMP, NODE, item("a")).type == "result"
    reply = publish(gateway, PUMP, NODE, item("b"))
    assert refused(reply) == ("wait", "resource-constraint")
    assert kept(gateway) == ["a"]


# Queue nodes and shares


def test_an_item_of_a_queue_node_stands_in_line_and_nowhere_else(gateway: Gateway) -> None:
    create(gateway, PUMP, "work", queueing="1")
    subscribe(gateway, VALVE, "#")
    reply = publish(gateway, PUMP, "work", item("j", reading(1)), queue_priority="3", queue_ttl="9")
    assert published_id(reply) == "j"
    assert told(gateway, VALVE) == []
    found = gateway.connection.execute("SELECT item, priority, node FROM queue_items").fetchall()
    assert found == [("j", 3, "work")]
    assert gateway.count("SELECT count(*) FROM items") == 0


def test_shares_get_what_plain_subscriptions_get(gateway: Gateway) -> None:
    gateway.leave(VALVE)
    appear(gateway, VALVE)
    subscribe(gateway, VALVE, "$share:one:plant/#", qos="0")
    subscribe(gateway, VALVE, "$share:two:plant/+", qos="0")
    subscribe(gateway, VALVE, NODE)
    publish(gateway, PUMP, NODE, item("x", reading(4)))
    assert [one.items for one in told(gateway, VALVE)] == [[("x", "4")]] * 3
