"""Nodes are made, configured, emptied and deleted (XEP-0060, sections 8.1 to 8.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.config.options import Pubsub
from edge.features.pubsub.rules.node_config import OPTIONS
from edge.features.pubsub.store import nodes
from edge.features.pubsub.store.nodes import Node
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER
from tests.helpers.nodes import (
    EVENT,
    OWNER,
    SERVICE,
    affiliate,
    create,
    form,
    refused,
    request,
    specific,
    values,
)
from tests.helpers.people import APART, PUMP, VALVE, appear, know, provision
from tests.helpers.store import Gateway, new_database, read_element

PUB = f"{{{PUBSUB}}}"
OWN = f"{{{PUBSUB_OWNER}}}"
DATA = "{jabber:x:data}"


def stored(gateway: Gateway, name: str) -> Node:
    node = gateway.tx(lambda tx: nodes.get(tx, name))
    assert node is not None
    return node


def subscribe(gateway: Gateway, node: str, jid: str) -> None:
    appear(gateway, jid)
    reply = request(gateway, f"<subscribe node='{node}' jid='{jid}'/>", sender=jid)
    assert reply.type == "result"


def publish(gateway: Gateway, node: str, id: str) -> None:
    item = f"<item id='{id}'><value xmlns='urn:x'>{id}</value></item>"
    reply = request(gateway, f"<publish node='{node}'>{item}</publish>")
    assert reply.type == "result"


def told(gateway: Gateway, jid: str) -> list[str]:
    """What a session was told of nodes: the local names of what happened."""
    found = [message.find(f"{EVENT}event") for message in gateway.elements(jid)]
    return [event[0].tag.removeprefix(EVENT) for event in found if event is not None]


# Created: section 8.1


def test_a_node_is_created_under_its_name(gateway: Gateway) -> None:
    reply = request(gateway, "<create node='plant/boiler1/temp'/>")
    assert (reply.type, reply.payload) == ("result", None)
    node = stored(gateway, "plant/boiler1/temp")
    assert (node.owner, node.config.queueing) == ("pump1@gw.example", False)


def test_a_node_without_a_name_gets_one(gateway: Gateway) -> None:
    reply = request(gateway, "<create/>")
    assert reply.payload is not None
    name = reply.payload[0].get("node")
    assert (reply.payload.tag, reply.payload[0].tag) == (f"{PUB}pubsub", f"{PUB}create")
    assert name
    assert stored(gateway, name).owner == "pump1@gw.example"
    other = request(gateway, "<create/>").payload
    assert other is not None
    assert other[0].get("node") != name


def test_a_node_is_created_and_configured_at_once(gateway: Gateway) -> None:
    configure = f"<configure>{form(title='Boiler', max_items='3', queueing='1')}</configure>"
    assert request(gateway, f"<create node='b'/>{configure}").type == "result"
    config = stored(gateway, "b").config
    assert (config.title, config.max_items, config.queueing) == ("Boiler", 3, True)
    assert gateway.count("SELECT policy FROM queues") == "least-loaded"


@pytest.mark.parametrize(
    "configure", ["<configure/>", "<configure><x xmlns='jabber:x:data' type='cancel'/></configure>"]
)
def test_who_configures_nothing_gets_the_defaults(gateway: Gateway, configure: str) -> None:
    assert request(gateway, f"<create node='b'/>{configure}").type == "result"
    assert stored(gateway, "b").config.max_items == 20


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("<create node='taken'/>", ("cancel/conflict", "")),
        ("<create node=''/>", ("modify/not-acceptable", "")),
        ("<create node='a/#'/>", ("modify/not-acceptable", "")),
        ("<create node='&#x2160;'/>", ("modify/not-acceptable", "")),
        ("<create node='&#xE000;'/>", ("modify/not-acceptable", "")),
        ("<create node='b'/><configure node='b'/>", ("modify/bad-request", "")),
        ("<create node='b'/><other/>", ("modify/bad-request", "")),
        ("<create node='b'/><configure/><configure/>", ("modify/bad-request", "")),
        ("<create node='b'/><configure><a/><b/></configure>", ("modify/bad-request", "")),
        (
            f"<create node='b'/><configure>{form(access_model='authorize')}</configure>",
            ("modify/not-acceptable", "unsupported-access-model"),
        ),
        (
            f"<create node='b'/><configure>{form(colour='red')}</configure>",
            ("modify/not-acceptable", ""),
        ),
        (
            f"<create node='b'/><configure>{form('publish-options')}</configure>",
            ("modify/bad-request", ""),
        ),
    ],
)
def test_what_cannot_be_created(gateway: Gateway, content: str, error: tuple[str, str]) -> None:
    create(gateway, "taken")
    assert specific(gateway, content) == error
    assert gateway.count("SELECT count(*) FROM nodes") == 1


def test_a_refused_name_is_told_why(gateway: Gateway) -> None:
    reply = request(gateway, "<create node='&#x2160;'/>")
    assert "'I'" in reply.text


def test_who_may_not_use_services_creates_nothing(gateway: Gateway) -> None:
    assert refused(request(gateway, "<create node='a'/>", sender=APART)) == "auth/forbidden"


def test_nodes_are_bounded_and_that_is_logged(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), Limits(nodes=3, nodes_per_account=2))
    provision(gateway)
    gateway.bind(VALVE)
    for name in ("a", "b"):
        create(gateway, name)
    error = ("wait/resource-constraint", "max-nodes-exceeded")
    assert specific(gateway, "<create node='c'/>") == error
    create(gateway, "c", sender=VALVE)
    assert specific(gateway, "<create node='d'/>", sender=VALVE) == error
    limits = [
        (row.name, row.source, row.tags)
        for row in gateway.events("system", None)
        if row.kind == "limit"
    ]
    assert limits == [
        ("nodes_per_account", "pump1@gw.example", {"limit": "2"}),
        ("nodes", "valve@gw.example", {"limit": "3"}),
    ]
    gateway.close()


# Made on publication


def test_a_node_is_made_when_somebody_publishes_where_the_options_want_that(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), pubsub=Pubsub(auto_create=["meters/+/energy"]))
    provision(gateway)
    publish(gateway, "meters/7/energy", "1")
    assert stored(gateway, "meters/7/energy").owner == "pump1@gw.example"
    item = "<item><value xmlns='urn:x'/></item>"
    for name in ("meters/7", "site"):
        reply = request(gateway, f"<publish node='{name}'>{item}</publish>")
        assert refused(reply) == "cancel/item-not-found"
    gateway.close()


# Configured: sections 8.2 and 8.3


def test_an_owner_sees_how_a_node_is_configured(gateway: Gateway) -> None:
    create(gateway, "a", title="Boiler")
    reply = request(gateway, "<configure node='a'/>", ns=OWNER, type="get")
    assert reply.payload is not None
    configure = reply.payload[0]
    assert (reply.payload.tag, configure.tag, configure.get("node")) == (
        f"{OWN}pubsub",
        f"{OWN}configure",
        "a",
    )
    assert configure[0].get("type") == "form"
    found = values(configure[0])
    assert found.pop("FORM_TYPE") == [f"{PUBSUB}#node_config"]
    assert set(found) == {field.name for field in OPTIONS}
    assert found["pubsub#title"] == ["Boiler"]
    choices = configure[0].findall(f"{DATA}field[@var='pubsub#access_model']/{DATA}option")
    assert len(choices) == 4


def test_everybody_sees_the_defaults(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    reply = request(gateway, "<default/>", ns=OWNER, type="get", sender=VALVE)
    assert reply.payload is not None
    assert reply.payload[0].tag == f"{OWN}default"
    assert values(reply.payload[0][0])["pubsub#max_items"] == ["20"]


def configure(gateway: Gateway, node: str, *, sender: str = PUMP, **options: str) -> str:
    content = f"<configure node='{node}'>{form(**options)}</configure>"
    reply = request(gateway, content, ns=OWNER, sender=sender)
    return reply.type if reply.error is None else refused(reply)


def test_an_owner_configures_a_node(gateway: Gateway) -> None:
    create(gateway, "a", title="Boiler")
    assert configure(gateway, "a", description="hot") == "result"
    config = stored(gateway, "a").config
    assert (config.title, config.description) == ("Boiler", "hot")
    assert configure(gateway, "a", title="") == "result"
    assert stored(gateway, "a").config.title == ""


def test_a_configuration_that_is_cancelled_changes_nothing(gateway: Gateway) -> None:
    create(gateway, "a", title="Boiler")
    cancel = "<configure node='a'><x xmlns='jabber:x:data' type='cancel'/></configure>"
    assert request(gateway, cancel, ns=OWNER).type == "result"
    assert stored(gateway, "a").config.title == "Boiler"


@pytest.mark.parametrize(
    ("type", "verb"),
    [("get", "configure"), ("set", "configure"), ("set", "delete"), ("set", "purge")],
)
def test_what_owners_do_needs_a_node_and_its_owner(gateway: Gateway, type: str, verb: str) -> None:
    gateway.bind(VALVE)
    create(gateway, "a")
    content = form() if (type, verb) == ("set", "configure") else ""

    def ask(attrs: str, sender: str = PUMP) -> tuple[str, str]:
        xml = f"<{verb}{attrs}>{content}</{verb}>"
        return specific(gateway, xml, ns=OWNER, type=type, sender=sender)

    assert ask("") == ("modify/bad-request", "nodeid-required")
    assert ask(" node='b'") == ("cancel/item-not-found", "")
    assert ask(" node='a'", VALVE) == ("auth/forbidden", "")
    assert affiliate(gateway, "a", valve="publisher").type == "result"
    assert ask(" node='a'", VALVE) == ("auth/forbidden", "")
    assert affiliate(gateway, "a", valve="owner").type == "result"
    reply = request(
        gateway, f"<{verb} node='a'>{content}</{verb}>", ns=OWNER, type=type, sender=VALVE
    )
    assert reply.type == "result"


@pytest.mark.parametrize(
    "option", [{"max_items": "0"}, {"max_items": "10001"}, {"node_type": "collection"}]
)
def test_what_cannot_be_configured_changes_nothing(
    gateway: Gateway, option: dict[str, str]
) -> None:
    create(gateway, "a")
    assert configure(gateway, "a", title="new", **option) == "modify/not-acceptable"
    assert stored(gateway, "a").config.title == ""


def test_fewer_items_leave_the_newest_and_none_are_kept_where_they_are_not_persisted(
    gateway: Gateway,
) -> None:
    create(gateway, "a")
    for id in ("1", "2", "3"):
        publish(gateway, "a", id)
    assert configure(gateway, "a", max_items="2") == "result"
    rows = gateway.connection.execute("SELECT item FROM items ORDER BY id").fetchall()
    assert rows == [("2",), ("3",)]
    assert configure(gateway, "a", persist_items="0") == "result"
    assert stored(gateway, "a").items == 0
    trimmed = [(row.kind, row.topic, row.value) for row in gateway.events("system", "trimmed")]
    assert trimmed == [("node", "a", 1.0), ("node", "a", 2.0)]


def test_a_node_becomes_a_queue_only_while_it_is_empty(gateway: Gateway) -> None:
    create(gateway, "a")
    assert configure(gateway, "a", queueing="1", queue_policy="hash") == "result"
    assert gateway.count("SELECT policy FROM queues") == "hash"
    assert configure(gateway, "a", queue_lock_timeout="90", queue_max_deliveries="2") == "result"
    row = gateway.connection.execute("SELECT lock_timeout, max_deliveries FROM queues").fetchone()
    assert row == (90.0, 2)
    publish(gateway, "a", "1")
    assert configure(gateway, "a", queueing="0") == "modify/not-acceptable"
    assert request(gateway, "<purge node='a'/>", ns=OWNER).type == "result"
    assert configure(gateway, "a", queueing="0") == "result"
    assert gateway.count("SELECT count(*) FROM queues") == 0
    publish(gateway, "a", "1")
    assert configure(gateway, "a", queueing="1") == "modify/not-acceptable"
    assert request(gateway, "<purge node='a'/>", ns=OWNER).type == "result"
    subscribe(gateway, "a", VALVE)
    assert configure(gateway, "a", queueing="1") == "modify/not-acceptable"
    assert not stored(gateway, "a").config.queueing


def test_subscribers_are_told_of_a_configuration_where_the_node_says_so(gateway: Gateway) -> None:
    create(gateway, "a")
    subscribe(gateway, "a", VALVE)
    gateway.elements(VALVE)
    assert configure(gateway, "a", title="quiet") == "result"
    assert told(gateway, VALVE) == []
    assert configure(gateway, "a", title="loud", notify_config="1") == "result"
    (message,) = gateway.elements(VALVE)
    event = message.find(f"{EVENT}event/{EVENT}configuration")
    assert event is not None
    assert event.get("node") == "a"
    assert values(event[0])["pubsub#title"] == ["loud"]
    assert configure(gateway, "a", deliver_payloads="0") == "result"
    (message,) = gateway.elements(VALVE)
    event = message.find(f"{EVENT}event/{EVENT}configuration")
    assert event is not None
    assert len(event) == 0
    assert configure(gateway, "a", deliver_payloads="0") == "result"
    assert told(gateway, VALVE) == [], "nothing is new"


def test_who_is_shut_out_by_a_configuration_loses_the_subscription(gateway: Gateway) -> None:
    create(gateway, "a")
    subscribe(gateway, "a", VALVE)
    gateway.elements(VALVE)
    assert configure(gateway, "a", access_model="whitelist") == "result"
    assert told(gateway, VALVE) == ["subscription"]
    assert gateway.count("SELECT count(*) FROM subscriptions") == 0


# Deleted: section 8.4


def test_an_owner_deletes_a_node_and_subscribers_are_told(gateway: Gateway) -> None:
    create(gateway, "a")
    publish(gateway, "a", "1")
    subscribe(gateway, "a", VALVE)
    gateway.elements(VALVE)
    redirect = "<redirect uri='xmpp:pubsub.gw.example?;node=b'/>"
    reply = request(gateway, f"<delete node='a'>{redirect}</delete>", ns=OWNER)
    assert (reply.type, reply.payload) == ("result", None)
    (message,) = gateway.elements(VALVE)
    assert message.get("from") == SERVICE
    event = message.find(f"{EVENT}event/{EVENT}delete")
    assert event is not None
    assert event.get("node") == "a"
    assert event[0].get("uri") == "xmpp:pubsub.gw.example?;node=b"
    for table in ("nodes", "items", "subscriptions", "affiliations"):
        assert gateway.count(f"SELECT count(*) FROM {table}") == 0  # noqa: S608
    assert gateway.connection.execute("SELECT * FROM items_total").fetchone() == (1, 0, 0)
    (event_row,) = gateway.events("system", "deleted")
    assert (event_row.kind, event_row.topic, event_row.value) == ("node", "a", 1.0)


def test_a_node_may_go_without_a_word(gateway: Gateway) -> None:
    create(gateway, "a", notify_delete="0")
    subscribe(gateway, "a", VALVE)
    gateway.elements(VALVE)
    assert request(gateway, "<delete node='a'/>", ns=OWNER).type == "result"
    assert told(gateway, VALVE) == []


@pytest.mark.parametrize(
    "redirect", ["<redirect/>", "<redirect uri='x:'/><redirect uri='y:'/>", "<other uri='x:'/>"]
)
def test_a_redirect_is_to_one_address(gateway: Gateway, redirect: str) -> None:
    create(gateway, "a")
    reply = request(gateway, f"<delete node='a'>{redirect}</delete>", ns=OWNER)
    assert refused(reply) == "modify/bad-request"
    assert stored(gateway, "a")


def test_a_queue_that_is_deleted_takes_all_along_and_its_worker_is_told(gateway: Gateway) -> None:
    create(gateway, "q", queueing="1")
    appear(gateway, VALVE)
    options = f"<options>{form('subscribe_options', queue_requests='1')}</options>"
    reply = request(gateway, f"<subscribe node='q' jid='{VALVE}'/>{options}", sender=VALVE)
    assert reply.type == "result"
    for id in ("1", "2"):
        publish(gateway, "q", id)
    assert told(gateway, VALVE) == ["items"]
    assert request(gateway, "<delete node='q'/>", ns=OWNER).type == "result"
    assert "delete" in told(gateway, VALVE)
    for table in ("nodes", "queues", "queue_items", "queue_bodies", "subscriptions"):
        assert gateway.count(f"SELECT count(*) FROM {table}") == 0  # noqa: S608
    assert gateway.connection.execute("SELECT * FROM queues_total").fetchone() == (1, 0, 0)
    (event_row,) = gateway.events("system", "deleted")
    assert event_row.value == 2.0


# Purged: section 8.5


def test_an_owner_purges_a_node_and_subscribers_are_told_once(gateway: Gateway) -> None:
    create(gateway, "a")
    subscribe(gateway, "a", VALVE)
    for id in ("1", "2"):
        publish(gateway, "a", id)
    gateway.elements(VALVE)
    assert request(gateway, "<purge node='a'/>", ns=OWNER).type == "result"
    assert told(gateway, VALVE) == ["purge"]
    assert stored(gateway, "a").items == 0
    (event_row,) = gateway.events("system", "purged")
    assert (event_row.kind, event_row.topic, event_row.value) == ("node", "a", 2.0)


def test_what_keeps_no_items_is_not_purged(gateway: Gateway) -> None:
    create(gateway, "a", persist_items="0")
    error = specific(gateway, "<purge node='a'/>", ns=OWNER)
    assert error == ("cancel/feature-not-implemented", "unsupported")


def test_a_queue_that_is_purged_works_on(gateway: Gateway) -> None:
    create(gateway, "q", queueing="1")
    appear(gateway, VALVE)
    options = f"<options>{form('subscribe_options', queue_requests='1')}</options>"
    request(gateway, f"<subscribe node='q' jid='{VALVE}'/>{options}", sender=VALVE)
    for id in ("1", "2"):
        publish(gateway, "q", id)
    assert told(gateway, VALVE) == ["items"]
    assert request(gateway, "<purge node='q'/>", ns=OWNER).type == "result"
    assert gateway.count("SELECT count(*) FROM queue_items") == 0
    gateway.elements(VALVE)
    publish(gateway, "q", "3")
    assert told(gateway, VALVE) == ["items"], "the member has room again"


# Rights that rosters give


def test_rosters_of_owners_open_nodes(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    create(gateway, "seen", access_model="presence")
    create(gateway, "crew", access_model="roster", roster_groups_allowed=["crew"])
    create(gateway, "closed", access_model="whitelist")

    def ask(node: str) -> tuple[str, str]:
        content = f"<subscribe node='{node}' jid='{VALVE}'/>"
        return specific(gateway, content, sender=VALVE)

    assert ask("seen") == ("auth/not-authorized", "presence-subscription-required")
    assert ask("crew") == ("auth/not-authorized", "not-in-roster-group")
    assert ask("closed") == ("cancel/not-allowed", "closed-node")
    for node in ("seen", "crew"):
        affiliate(gateway, node, lamp="owner")  # of whom there is no account, nor a roster
    know(gateway, "pump1", "valve@gw.example", "from")
    subscribe_again = f"<subscribe node='seen' jid='{VALVE}'/>"
    assert request(gateway, subscribe_again, sender=VALVE).type == "result"
    assert ask("crew") == ("auth/not-authorized", "not-in-roster-group")
    gateway.tx(lambda tx: tx.run("UPDATE roster SET groups = '[\"crew\"]'"))
    content = f"<subscribe node='crew' jid='{VALVE}'/>"
    assert request(gateway, content, sender=VALVE).type == "result"


def test_a_request_that_is_not_there_is_told_so(gateway: Gateway) -> None:
    assert specific(gateway, "<fly/>") == ("cancel/feature-not-implemented", "unsupported")
    reply = request(gateway, "")
    assert refused(reply) == "modify/bad-request"


def test_requests_for_a_nodes_address_find_nothing(gateway: Gateway) -> None:
    create(gateway, "a")
    xml = f"<iq type='set' id='q' to='{SERVICE}/a'><pubsub xmlns='{PUBSUB}'><create/></pubsub></iq>"
    answer = read_element(gateway.tx(gateway.work(PUMP, xml)))
    assert answer.get("type") == "error"
