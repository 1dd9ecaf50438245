"""Rights by topic: the rules `[[access]]`, and their effect on requests and notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.config.options import AccessRule, Pubsub
from edge.engine.rules import access
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules import topic_rights as rules
from edge.features.pubsub.rules.publication import PublicationShape
from edge.features.pubsub.rules.topic_rights import Right, TopicRights, TopicRule
from edge.features.pubsub.service import publishing
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.publishing import NewItem, Publication
from tests.helpers.people import PUMP, VALVE, make_available, provision
from tests.helpers.pubsub import (
    affiliate,
    change_access,
    create,
    element,
    error_of,
    item,
    notifications,
    publish,
    reading,
    retract,
    retrieve,
    send_message,
    send_request,
    subscribe,
)
from tests.helpers.store import Gateway, MakeGateway, Reply

FORBIDDEN: Final = ("auth", "forbidden")
OWN: Final = AccessRule(device="*", publish=["%u/#"], subscribe=["#"])
"""The rule that `fieldpost init` writes."""

TWO: Final = (TopicRule("pump?", ["%u/#"], ["cmd/%u", "$SYS/#"]), TopicRule("*", [], ["+/state"]))


# The rules


@pytest.mark.parametrize(
    ("device", "right", "topic", "filter"),
    [
        ("pump1", Right.PUBLISH, "pump1/temp", "pump1/#"),
        ("pump1", Right.PUBLISH, "pump2/temp", None),
        ("pump1", Right.SUBSCRIBE, "cmd/pump1", "cmd/pump1"),
        ("pump1", Right.SUBSCRIBE, "cmd/+", None),
        ("pump1", Right.SUBSCRIBE, "$SYS/broker/#", "$SYS/#"),
        ("pump1", Right.SUBSCRIBE, "pump1/state", None),
        ("valve", Right.SUBSCRIBE, "+/state", "+/state"),
        ("valve", Right.PUBLISH, "valve/state", None),
        ("pump10", Right.SUBSCRIBE, "pump10/state", "+/state"),
    ],
)
def test_the_first_matching_rule_decides(
    device: str, right: Right, topic: str, filter: str | None
) -> None:
    assert rules.rights(TWO, device, "").grant(right, topic) == filter


def test_a_device_without_a_rule_has_no_rights() -> None:
    assert rules.rights(TWO[:1], "valve", "") == TopicRights()
    assert rules.rights([TopicRule("a[b]", ["x"], [])], "a[b]", "").rule == 1, "the exact name"


@pytest.mark.parametrize("value", ["", "a/b", "+", "#", "a+", "a\n#", "$SYS"])
def test_a_value_that_would_widen_a_filter_is_ignored(value: str) -> None:
    rule = TopicRule("*", ["%u/in", "%c/#", "x/%u-%c"], ["x"])
    assert rules.rights([rule], "pump1", value) == TopicRights(1, ("pump1/in",), ("x",))
    assert rules.rights([rule], value, "fw") == TopicRights(1, ("fw/#",), ("x",))


def test_values_are_not_replaced_again() -> None:
    found = rules.rights([TopicRule("*", ["%u/%c/%u"], [])], "%c", "%u")
    assert found.publish == ("%c/%u/%c",)


# Requests


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway on which each device publishes below its own name and subscribes to everything."""
    return build(make_gateway, OWN)


def build(make_gateway: MakeGateway, *access: AccessRule, pubsub: Pubsub | None = None) -> Gateway:
    gateway = make_gateway(Limits(), access=access, pubsub=pubsub)
    provision(gateway)
    make_available(gateway, VALVE)
    return gateway


def test_a_rule_lets_a_publication_create_an_open_node(gateway: Gateway) -> None:
    assert publish(gateway, PUMP, "pump1/temp", item("a", reading(1))).type == "result"
    assert gateway.count("SELECT owner FROM nodes") == "pump1@gw.example"
    change_access(gateway, AccessRule(device="*", publish=["pump1/#"]))
    assert publish(gateway, VALVE, "pump1/temp", item("b", reading(1))).type == "result"
    reply = publish(gateway, VALVE, "pump1/+", item("c", reading(1)))
    assert error_of(reply) == ("modify", "not-acceptable"), "this is no name of a node"
    change_access(gateway, OWN)
    assert error_of(publish(gateway, VALVE, "pump1/temp", item("d", reading(1)))) == FORBIDDEN


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_refused_message_is_answered_and_logged_once(gateway: Gateway, level: int) -> None:
    refused = send_message(gateway, PUMP, level, item("a", reading(1)), "valve/temp")
    assert error_of(refused) == FORBIDDEN
    assert logged(gateway) == [("pump1@gw.example", 1.0)]
    reply = send_message(gateway, PUMP, level, item("a", reading(1)), "pump1/temp")
    assert reply is None or reply.error is None


def logged(gateway: Gateway) -> list[tuple[str | None, float | None]]:
    return [(event.source, event.value) for event in gateway.events("system", "access")]


def test_each_refused_request_names_the_rule_and_the_topic_and_is_logged(
    gateway: Gateway,
) -> None:
    publish(gateway, VALVE, "valve/temp", item("a", reading(1)))
    change_access(gateway, OWN, AccessRule(device="no"))
    for number, reply in enumerate(
        (
            publish(gateway, PUMP, "valve/temp", item("b", reading(1))),
            publish(gateway, PUMP, "valve/none", item("b", reading(1))),
            send_request(gateway, PUMP, element("create", node="valve/mine")),
            retract(gateway, PUMP, "valve/temp", "a"),
        )
    ):
        assert error_of(reply) == FORBIDDEN, number
        assert reply.text.startswith("the rule access[1] does not allow pump1 to publish to valve/")
    gateway.run_timers()
    assert logged(gateway) == [("pump1@gw.example", 1.0)], "the others are counted"
    assert gateway.count("SELECT count FROM refusals WHERE rule = 'access'") == 3


@pytest.mark.parametrize(
    ("target", "is_allowed"),
    [
        ("plant/#", True), ("plant/+/temp", True), ("$share:pool:plant/boiler/+", True),
        ("plant/boiler", True), ("other", False), ("#", False), ("+/boiler", False),
        ("$share/pool/other/#", False), ("$SYS/#", False),
    ],
)  # fmt: skip
def test_a_subscription_needs_a_rule_that_covers_it(
    make_gateway: MakeGateway, target: str, is_allowed: bool
) -> None:
    gateway = build(make_gateway)
    for name in ("plant/boiler", "other"):
        create(gateway, PUMP, name)
    change_access(gateway, AccessRule(device="valve", subscribe=["plant/#"]))
    reply = subscribe(gateway, VALVE, target)
    assert reply.error == (None if is_allowed else FORBIDDEN)
    reply = subscribe(gateway, PUMP, target)
    assert error_of(reply) == FORBIDDEN
    assert reply.text.startswith("no rule in [[access]] is for pump1: it may not subscribe to ")


def test_the_client_identifier_is_the_resource_of_the_subscriber(
    make_gateway: MakeGateway,
) -> None:
    gateway = build(make_gateway, AccessRule(device="*", publish=["#"], subscribe=["to/%c/#"]))
    assert subscribe(gateway, VALVE, "to/fw/#", VALVE).type == "result"
    assert error_of(subscribe(gateway, VALVE, "to/fw/#")) == FORBIDDEN, "a bare JID has none"
    publish(gateway, PUMP, "to/fw/x", item("a", reading(1)))
    assert [one.node for one in notifications(gateway, VALVE)] == ["to/fw/x"]
    assert retrieve(gateway, VALVE, "to/fw/x").type == "result"
    assert error_of(retrieve(gateway, PUMP, "to/x")) == FORBIDDEN


def test_reading_needs_the_right_to_subscribe_and_discloses_nothing(
    make_gateway: MakeGateway,
) -> None:
    gateway = build(make_gateway, AccessRule(device="pump1", publish=["#"]))
    publish(gateway, PUMP, "plant/t", item("a", reading(1)))
    for name in ("plant/t", "plant/none"):
        for full in (PUMP, VALVE):
            assert error_of(retrieve(gateway, full, name)) == FORBIDDEN
            assert error_of(subscribe(gateway, full, name)) == FORBIDDEN
        assert discover(gateway, VALVE, name).error == FORBIDDEN
    assert discover(gateway, PUMP, "plant/t").error is None
    assert [nodes_of(gateway, full) for full in (PUMP, VALVE)] == [["plant/t"], []]


def discover(gateway: Gateway, full: str, node: str) -> Reply:
    query = element("query", xmlns="http://jabber.org/protocol/disco#info", node=node)
    return gateway.ask(full, f"<iq type='get' id='d' to='pubsub.gw.example'>{query}</iq>")


def nodes_of(gateway: Gateway, full: str) -> Sequence[str]:
    query = "<query xmlns='http://jabber.org/protocol/disco#items'/>"
    reply = gateway.ask(full, f"<iq type='get' id='d' to='pubsub.gw.example'>{query}</iq>")
    assert reply.payload is not None
    return [one.attrib["node"] for one in reply.payload]


def test_affiliations_still_hold(gateway: Gateway) -> None:
    create(gateway, PUMP, "pump1/own", access_model="whitelist")
    change_access(gateway, AccessRule(device="*", publish=["#"], subscribe=["#"]))
    assert error_of(publish(gateway, VALVE, "pump1/own", item("a"))) == FORBIDDEN
    assert error_of(subscribe(gateway, VALVE, "pump1/own")) == ("cancel", "not-allowed")
    affiliate(gateway, PUMP, "pump1/own", valve="publisher")
    assert publish(gateway, VALVE, "pump1/own", item("a")).type == "result"
    assert subscribe(gateway, VALVE, "pump1/own").type == "result"


def test_the_operator_needs_no_rule(make_gateway: MakeGateway) -> None:
    gateway = build(make_gateway, OWN, pubsub=Pubsub(auto_create=["news/#"]))
    context, operator = gateway.router.context, access.operator("gw.example")

    def publish_to(node: str) -> None:
        def act(tx: Transaction) -> None:
            request = Publication(node, PublicationShape(1, 1), NewItem("i", b"<x xmlns='urn:x'/>"))
            publishing.publish(context, tx, operator, request)

        gateway.commit(act)

    publish_to("news/a")
    with pytest.raises(PubsubError, match="does not exist"):
        publish_to("plant/a")
    assert error_of(publish(gateway, PUMP, "news/a", item("b", reading(1)))) == FORBIDDEN


# Reload


@pytest.mark.parametrize("target", ["plant/#", "plant/t"])
def test_changed_rules_apply_to_existing_subscriptions(
    make_gateway: MakeGateway, target: str
) -> None:
    gateway = build(make_gateway)
    create(gateway, PUMP, "plant/t")
    assert subscribe(gateway, VALVE, target, VALVE).type == "result"
    may_not, may = AccessRule(device="valve"), AccessRule(device="valve", subscribe=["plant/t"])
    pump = AccessRule(device="pump1", publish=["plant/#"])
    for id, access_rules, expected in (
        ("a", (), ["a"]),
        ("b", (may_not, pump), []),
        ("c", (may, pump), ["c"]),
        ("d", (pump,), []),
        ("e", (), ["e"]),
    ):
        change_access(gateway, *access_rules)
        assert publish(gateway, PUMP, "plant/t", item(id, reading(1))).type == "result"
        assert [one.items[0][0] for one in notifications(gateway, VALVE)] == expected
