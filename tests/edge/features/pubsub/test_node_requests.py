"""Requests to create, configure, delete and purge nodes (XEP-0060, sections 8.1 to 8.5)."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

import pytest

from edge.features.pubsub.rules.node_config import OPTIONS
from edge.features.pubsub.store import nodes
from edge.features.pubsub.store.nodes import Node
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact
from tests.helpers.pubsub import (
    EVENT,
    FORM,
    OWNER,
    PUBSUB,
    SERVICE,
    affiliate,
    create,
    element,
    form,
    item,
    notifications,
    publish,
    refusal,
    send_message,
    send_request,
    subscribe,
    values,
)
from tests.helpers.store import Gateway, MakeGateway, Reply, read_element

CANCEL: Final = f"<x xmlns='{FORM}' type='cancel'/>"
INVALID_CONFIG: Final = ("modify", "not-acceptable", "")
UNSUPPORTED_MODEL: Final = ("modify", "not-acceptable", "unsupported-access-model")
BAD_REQUEST: Final = ("modify", "bad-request", "")


def stored(gateway: Gateway, name: str) -> Node:
    node = gateway.tx(lambda tx: nodes.get(tx, name))
    assert node is not None
    return node


def node_config(**values: str | list[str]) -> str:
    return form("node_config", values)


def owner_request(gateway: Gateway, name: str, node: str, content: str = "") -> Reply:
    return send_request(gateway, PUMP, element(name, content, node=node), ns=OWNER)


def configure(gateway: Gateway, node: str, **values: str) -> Reply:
    return owner_request(gateway, "configure", node, node_config(**values))


def publish_all(gateway: Gateway, node: str, *ids: str) -> None:
    for id in ids:
        assert publish(gateway, PUMP, node, item(id, "<value xmlns='urn:x'/>")).type == "result"


def event_elements(gateway: Gateway) -> list[str]:
    return [one.element for one in notifications(gateway, VALVE)]


def event(gateway: Gateway, name: str) -> Element:
    (message,) = gateway.elements(VALVE)
    found = message.find(f"{{{EVENT}}}event/{{{EVENT}}}{name}")
    assert found is not None
    return found


def test_create_a_node(gateway: Gateway) -> None:
    reply = send_request(gateway, PUMP, element("create", node="plant/boiler1/temp"))
    assert (reply.type, reply.payload) == ("result", None)
    node = stored(gateway, "plant/boiler1/temp")
    assert (node.creator, node.config.queueing) == ("pump1@gw.example", False)


@pytest.mark.parametrize(
    ("name", "prepared"),
    [
        ("a\u0300", "\u00e0"),
        ("a\u00a0b", "a b"),
        ("\ue000", None),
        ("\u0378", None),
        ("l/\u200b", None),
    ],
)
def test_a_name_that_no_address_carries_is_reached_by_name_only(
    gateway: Gateway, name: str, prepared: str | None
) -> None:
    create(gateway, PUMP, name)
    create(gateway, PUMP, prepared or "other")
    subscribe(gateway, VALVE, name, VALVE, qos="0")
    publish_all(gateway, name, "1")
    assert [one.node for one in notifications(gateway, VALVE)] == [name]
    reply = send_message(gateway, PUMP, 1, "<value xmlns='urn:x'/>", name)
    assert reply is not None
    assert reply.type == ("error" if prepared is None else "result")
    assert stored(gateway, name).items == 1
    assert prepared is None or stored(gateway, prepared).items == 1


def test_create_instant_nodes(gateway: Gateway) -> None:
    found = [send_request(gateway, PUMP, "<create/>").content[0] for _ in range(2)]
    assert {one.tag for one in found} == {f"{{{PUBSUB}}}create"}
    assert len({stored(gateway, one.attrib["node"]).id for one in found}) == 2


def test_create_and_configure_a_queue(gateway: Gateway) -> None:
    create(gateway, PUMP, "b", title="Boiler", max_items="3", queueing="1")
    config = stored(gateway, "b").config
    assert (config.title, config.max_items, config.queueing) == ("Boiler", 3, True)
    assert gateway.count("SELECT policy FROM queues") == "least-loaded"


@pytest.mark.parametrize("content", ["", CANCEL])
def test_an_empty_configuration_has_the_defaults(gateway: Gateway, content: str) -> None:
    xml = element("create", node="b") + element("configure", content)
    assert send_request(gateway, PUMP, xml).type == "result"
    assert stored(gateway, "b").config.max_items == 20


@pytest.mark.parametrize(
    ("name", "following", "error"),
    [
        ("taken", "", ("cancel", "conflict", "")),
        ("", "", INVALID_CONFIG),
        ("a/#", "", INVALID_CONFIG),
        ("a\u0085", "", INVALID_CONFIG),
        ("b", "<configure node='b'/>", BAD_REQUEST),
        ("b", "<other/>", BAD_REQUEST),
        ("b", "text", BAD_REQUEST),
        ("b", "<configure/><configure/>", BAD_REQUEST),
        ("b", "<configure><a/><b/></configure>", BAD_REQUEST),
        ("b", element("configure", form("publish-options", {})), BAD_REQUEST),
        ("b", element("configure", node_config(colour="red")), INVALID_CONFIG),
        ("b", element("configure", node_config(access_model="authorize")), UNSUPPORTED_MODEL),
    ],
)
def test_invalid_requests_create_nothing(
    gateway: Gateway, name: str, following: str, error: tuple[str, str, str]
) -> None:
    create(gateway, PUMP, "taken")
    assert refusal(gateway, PUMP, element("create", node=name) + following) == error
    assert gateway.count("SELECT count(*) FROM nodes") == 1


def test_an_untrusted_account_creates_nothing(gateway: Gateway) -> None:
    assert refusal(gateway, UNTRUSTED, element("create", node="a")) == ("auth", "forbidden", "")


def test_nodes_are_limited_and_a_refusal_is_logged(build_empty: MakeGateway) -> None:
    gateway = build_empty(nodes=3, nodes_per_account=2)
    error = ("wait", "resource-constraint", "max-nodes-exceeded")
    for name in ("a", "b"):
        create(gateway, PUMP, name)
    assert refusal(gateway, PUMP, element("create", node="c")) == error
    create(gateway, VALVE, "c")
    assert refusal(gateway, VALVE, element("create", node="d")) == error
    limits = [row for row in gateway.events("system", None) if row.kind == "limit"]
    assert [(row.name, row.source, row.tags) for row in limits] == [
        ("nodes_per_account", "pump1@gw.example", {"limit": "2"}),
        ("nodes", "valve@gw.example", {"limit": "3"}),
    ]


# Configure


def test_an_owner_gets_the_configuration_form(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", title="Boiler", max_items="7")
    reply = send_request(gateway, PUMP, element("configure", node="a"), "get", OWNER)
    (configuration,) = reply.content
    assert configuration.tag == f"{{{OWNER}}}configure"
    assert (configuration.get("node"), configuration[0].get("type")) == ("a", "form")
    assert set(values(configuration)) == {option.field for option in OPTIONS}
    assert values(configuration)["title"] == "Boiler"
    fields = {field.get("var"): field for field in configuration[0]}
    assert fields["pubsub#queueing"].get("type") == "boolean"
    assert fields["pubsub#access_model"].get("type") == "list-single"
    assert fields["pubsub#max_items"].get("type") == "text-single"
    assert fields["pubsub#roster_groups_allowed"].get("type") == "text-multi"
    assert len(fields["pubsub#access_model"].findall(f"{{{FORM}}}option")) == 4


def test_anybody_gets_the_default_configuration(gateway: Gateway) -> None:
    reply = send_request(gateway, VALVE, "<default/>", "get", OWNER)
    assert reply.content[0].tag == f"{{{OWNER}}}default"
    assert values(reply.content)["max_items"] == "20"


def test_options_that_are_not_in_the_form_are_unchanged(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", title="Boiler")
    assert configure(gateway, "a", description="hot").type == "result"
    assert owner_request(gateway, "configure", "a", CANCEL).type == "result"
    config = stored(gateway, "a").config
    assert (config.title, config.description) == ("Boiler", "hot")
    assert configure(gateway, "a", title="").type == "result"
    assert stored(gateway, "a").config.title == ""


@pytest.mark.parametrize(
    ("type_", "name", "content"),
    [
        ("get", "configure", ""),
        ("set", "configure", node_config()),
        ("set", "delete", ""),
        ("set", "purge", ""),
        ("get", "affiliations", ""),
        ("set", "affiliations", element("affiliation", jid=VALVE_BARE, affiliation="owner")),
        ("get", "subscriptions", ""),
        (
            "set",
            "subscriptions",
            element("subscription", jid=VALVE_BARE, subscription="subscribed"),
        ),
    ],
)
def test_requests_of_owners_need_a_node_and_its_owner(
    gateway: Gateway, type_: str, name: str, content: str
) -> None:
    create(gateway, PUMP, "a")

    def refuse(node: str | None, full: str = PUMP) -> tuple[str, str, str]:
        return refusal(gateway, full, element(name, content, node=node), type_, OWNER)

    assert refuse(None) == ("modify", "bad-request", "nodeid-required")
    assert refuse("b") == ("cancel", "item-not-found", "")
    assert refuse("a", VALVE) == ("auth", "forbidden", "")
    affiliate(gateway, PUMP, "a", valve="publisher")
    assert refuse("a", VALVE) == ("auth", "forbidden", "")
    affiliate(gateway, PUMP, "a", valve="owner")
    xml = element(name, content, node="a")
    assert send_request(gateway, VALVE, xml, type_, OWNER).type == "result"


def test_an_invalid_configuration_changes_nothing(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    reply = configure(gateway, "a", title="new", max_items="10001")
    assert reply.error == ("modify", "not-acceptable")
    assert stored(gateway, "a").config.title == ""


def test_a_smaller_configuration_removes_items(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    publish_all(gateway, "a", "1", "2", "3")
    assert configure(gateway, "a", max_items="2").type == "result"
    rows = gateway.connection.execute("SELECT item FROM items ORDER BY id").fetchall()
    assert rows == [("2",), ("3",)]
    assert configure(gateway, "a", persist_items="0").type == "result"
    assert stored(gateway, "a").items == 0
    trimmed = [(row.kind, row.topic, row.value) for row in gateway.events("system", "trimmed")]
    assert trimmed == [("node", "a", 1.0), ("node", "a", 2.0)]


def test_only_an_empty_node_becomes_a_queue_or_stops_being_one(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    assert configure(gateway, "a", queueing="1", queue_policy="hash").type == "result"
    assert gateway.count("SELECT policy FROM queues") == "hash"
    changed = configure(gateway, "a", queue_lock_timeout="90", queue_max_deliveries="2")
    assert changed.type == "result"
    row = gateway.connection.execute("SELECT lock_timeout, max_deliveries FROM queues").fetchone()
    assert row == (90.0, 2)
    refused = ("modify", "not-acceptable")
    publish_all(gateway, "a", "1")
    assert configure(gateway, "a", queueing="0").error == refused
    owner_request(gateway, "purge", "a")
    name_in_xep_0254 = "{urn:xmpp:pubsub:queueing:0}queueing"
    submitted = form("node_config", {"queueing": "0"}).replace("pubsub#queueing", name_in_xep_0254)
    assert owner_request(gateway, "configure", "a", submitted).type == "result"
    assert gateway.count("SELECT count(*) FROM queues") == 0
    publish_all(gateway, "a", "1")
    assert configure(gateway, "a", queueing="1").error == refused
    owner_request(gateway, "purge", "a")
    subscribe(gateway, VALVE, "a", VALVE)
    assert configure(gateway, "a", queueing="1").error == refused
    assert not stored(gateway, "a").config.queueing


def test_subscribers_are_notified_of_a_changed_configuration_on_request(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    subscribe(gateway, VALVE, "a", VALVE)
    gateway.elements(VALVE)
    configure(gateway, "a", title="quiet")
    assert gateway.elements(VALVE) == []
    configure(gateway, "a", title="loud", notify_config="1")
    found = event(gateway, "configuration")
    assert found.get("node") == "a"
    assert values(found)["title"] == "loud"
    configure(gateway, "a", deliver_payloads="0")
    assert len(event(gateway, "configuration")) == 0
    configure(gateway, "a", deliver_payloads="0")
    assert gateway.elements(VALVE) == [], "nothing changed"


def test_a_node_is_deleted_with_its_items_and_subscriptions(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    publish_all(gateway, "a", "1")
    subscribe(gateway, VALVE, "a", VALVE)
    gateway.elements(VALVE)
    uri = "xmpp:pubsub.gw.example?;node=b"
    reply = owner_request(gateway, "delete", "a", element("redirect", uri=uri))
    assert (reply.type, reply.payload) == ("result", None)
    found = event(gateway, "delete")
    assert (found.get("node"), found[0].get("uri")) == ("a", uri)
    for table in ("nodes", "items", "subscriptions", "affiliations"):
        assert gateway.count(f"SELECT count(*) FROM {table}") == 0  # noqa: S608
    assert gateway.connection.execute("SELECT * FROM items_total").fetchone() == (1, 0, 0)
    (row,) = gateway.events("system", "deleted")
    assert (row.kind, row.topic, row.value) == ("node", "a", 1.0)


def test_a_node_may_be_deleted_or_purged_without_a_notification(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", notify_delete="0", notify_retract="0")
    subscribe(gateway, VALVE, "a", VALVE)
    for name in ("purge", "delete"):
        assert owner_request(gateway, name, "a").type == "result"
    assert gateway.elements(VALVE) == []


@pytest.mark.parametrize(
    "redirect", ["<redirect/>", "<redirect uri='x:'/><redirect uri='y:'/>", "<other uri='x:'/>"]
)
def test_an_invalid_redirect_is_refused(gateway: Gateway, redirect: str) -> None:
    create(gateway, PUMP, "a")
    reply = owner_request(gateway, "delete", "a", redirect)
    assert reply.error == ("modify", "bad-request")
    assert stored(gateway, "a")


def test_delete_a_queue_with_its_items_and_members(gateway: Gateway) -> None:
    create(gateway, PUMP, "q", queueing="1")
    subscribe(gateway, VALVE, "q", VALVE, queue_requests="1")
    publish_all(gateway, "q", "1", "2")
    assert event_elements(gateway) == ["items"]
    assert owner_request(gateway, "delete", "q").type == "result"
    assert "delete" in event_elements(gateway)
    for table in ("nodes", "queues", "queue_items", "queue_bodies", "subscriptions"):
        assert gateway.count(f"SELECT count(*) FROM {table}") == 0  # noqa: S608
    assert gateway.connection.execute("SELECT * FROM queues_total").fetchone() == (1, 0, 0)
    assert gateway.events("system", "deleted")[0].value == 2.0


def test_purge_a_node_with_one_notification(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    subscribe(gateway, VALVE, "a", VALVE)
    publish_all(gateway, "a", "1", "2")
    gateway.elements(VALVE)
    assert owner_request(gateway, "purge", "a").type == "result"
    assert event_elements(gateway) == ["purge"]
    assert stored(gateway, "a").items == 0
    (row,) = gateway.events("system", "purged")
    assert (row.kind, row.topic, row.value) == ("node", "a", 2.0)


def test_a_node_that_stores_no_items_cannot_be_purged(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", persist_items="0")
    error = refusal(gateway, PUMP, element("purge", node="a"), ns=OWNER)
    assert error == ("cancel", "feature-not-implemented", "unsupported")


def test_members_of_a_purged_queue_get_new_items(gateway: Gateway) -> None:
    create(gateway, PUMP, "q", queueing="1")
    subscribe(gateway, VALVE, "q", VALVE, queue_requests="1")
    publish_all(gateway, "q", "1", "2")
    assert event_elements(gateway) == ["items"]
    assert owner_request(gateway, "purge", "q").type == "result"
    assert gateway.count("SELECT count(*) FROM queue_items") == 0
    gateway.elements(VALVE)
    publish_all(gateway, "q", "3")
    assert event_elements(gateway) == ["items"]


# Access by roster, and other requests


def test_rosters_of_owners_give_access(gateway: Gateway) -> None:
    create(gateway, PUMP, "seen", access_model="presence")
    create(gateway, PUMP, "crew", access_model="roster", roster_groups_allowed=["crew"])
    create(gateway, PUMP, "closed", access_model="whitelist")

    def refuse(node: str) -> tuple[str, str, str]:
        return refusal(gateway, VALVE, element("subscribe", node=node, jid=VALVE))

    not_in_group = ("auth", "not-authorized", "not-in-roster-group")
    assert refuse("seen") == ("auth", "not-authorized", "presence-subscription-required")
    assert refuse("crew") == not_in_group
    assert refuse("closed") == ("cancel", "not-allowed", "closed-node")
    for node in ("seen", "crew"):
        affiliate(gateway, PUMP, node, lamp="owner")  # lamp has neither an account nor a roster
    add_contact(gateway, "pump1", VALVE_BARE, "from")
    assert subscribe(gateway, VALVE, "seen", VALVE).type == "result"
    assert refuse("crew") == not_in_group
    gateway.tx(lambda tx: tx.run("UPDATE roster SET groups = '[\"crew\"]'"))
    assert subscribe(gateway, VALVE, "crew", VALVE).type == "result"


def test_unknown_and_empty_requests_are_refused(gateway: Gateway) -> None:
    unsupported = ("cancel", "feature-not-implemented", "unsupported")
    assert refusal(gateway, PUMP, "<fly/>") == unsupported
    assert refusal(gateway, PUMP, "") == BAD_REQUEST
    xml = f"<iq type='set' id='q' to='{SERVICE}/a'><pubsub xmlns='{PUBSUB}'><create/></pubsub></iq>"
    answer = read_element(gateway.tx(gateway.work(PUMP, xml)))
    assert answer.get("type") == "error", "it is sent to a node, not to the service"


@pytest.mark.parametrize(
    ("type_", "ns", "name"),
    [
        ("set", PUBSUB, "create"),
        ("set", PUBSUB, "subscribe"),
        ("set", PUBSUB, "unsubscribe"),
        ("get", PUBSUB, "subscriptions"),
        ("get", PUBSUB, "affiliations"),
        ("get", PUBSUB, "options"),
        ("get", PUBSUB, "default"),
        ("get", OWNER, "configure"),
        ("get", OWNER, "default"),
        ("get", OWNER, "subscriptions"),
        ("get", OWNER, "affiliations"),
        ("set", OWNER, "purge"),
    ],
)
@pytest.mark.parametrize("content", ["<configure/>", "text"])
def test_content_that_a_request_cannot_have_is_refused(
    gateway: Gateway, type_: str, ns: str, name: str, content: str
) -> None:
    create(gateway, PUMP, "a")
    request = element(name, content, node="b" if name == "create" else "a", jid=PUMP)
    assert refusal(gateway, PUMP, request, type_, ns) == BAD_REQUEST


def test_an_option_with_two_names_is_refused(gateway: Gateway) -> None:
    both = form("node_config", {"queueing": "0", "pubsub#clark": "1"})
    both = both.replace("pubsub#clark", "{urn:xmpp:pubsub:queueing:0}queueing")
    request = element("create", node="a") + element("configure", both)
    assert refusal(gateway, PUMP, request) == BAD_REQUEST
