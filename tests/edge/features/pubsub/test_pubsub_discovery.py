"""What the publish-subscribe service says of itself, its nodes and their items (XEP-0060, 5)."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.config.options import Pubsub
from edge.engine.database import Transaction
from edge.xmpp.namespaces import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    PUBSUB,
    PUBSUB_OWNER,
    QOS_ALL,
    QUEUEING,
    RSM,
)
from tests.helpers.nodes import SERVICE, affiliate, create, refused, request, values
from tests.helpers.people import APART, PUMP, VALVE, know, provision
from tests.helpers.store import DOMAIN, Gateway, Reply, new_database

INFO = f"{{{DISCO_INFO}}}"
ITEMS = f"{{{DISCO_ITEMS}}}"
SET = f"{{{RSM}}}"
DATA = "{jabber:x:data}"


def query(
    gateway: Gateway,
    namespace: str,
    node: str | None = None,
    *,
    sender: str = PUMP,
    to: str = SERVICE,
    page: str = "",
) -> Reply:
    asked = "" if node is None else f" node='{node}'"
    part = f"<set xmlns='{RSM}'>{page}</set>" if page else ""
    xml = f"<iq type='get' id='i' to='{to}'><query xmlns='{namespace}'{asked}>{part}</query></iq>"
    reply = gateway.send(sender, xml)
    assert reply is not None
    return reply


def payload(reply: Reply) -> Element:
    assert reply.payload is not None, reply
    return reply.payload


def features(gateway: Gateway) -> set[str | None]:
    found = payload(query(gateway, DISCO_INFO))
    return {feature.get("var") for feature in found.iterfind(f"{INFO}feature")}


def names(reply: Reply, key: str = "node") -> list[str | None]:
    items = payload(reply).findall(f"{ITEMS}item")
    assert all(item.get("jid") == SERVICE for item in items)
    return [item.get(key) for item in items]


def publish(gateway: Gateway, node: str, *ids: str) -> None:
    for id in ids:
        item = f"<item id='{id}'><value xmlns='urn:x'/></item>"
        assert request(gateway, f"<publish node='{node}'>{item}</publish>").type == "result"


# The service


def test_the_gateway_names_the_service(gateway: Gateway) -> None:
    (item,) = payload(query(gateway, DISCO_ITEMS, to=DOMAIN))
    assert item.get("jid") == SERVICE
    assert len(payload(query(gateway, DISCO_ITEMS, to="pump1@gw.example"))) == 0


@pytest.mark.parametrize("sender", [PUMP, APART])
def test_the_service_says_what_it_is(gateway: Gateway, sender: str) -> None:
    found = payload(query(gateway, DISCO_INFO, sender=sender))
    identity = found.find(f"{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "service")


def test_a_component_has_no_such_service(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), accounts=False)
    gateway.bind("gw.example/x")
    reply = gateway.send(
        "gw.example/x", f"<iq type='get' id='i' to='{DOMAIN}'><query xmlns='{DISCO_ITEMS}'/></iq>"
    )
    assert reply is not None
    assert len(payload(reply)) == 0
    gateway.close()


def test_every_feature_has_a_request_or_an_option_behind_it(gateway: Gateway) -> None:
    told = {
        name.partition("#")[2]
        for name in features(gateway)
        if name and name.startswith(f"{PUBSUB}#")
    }
    verbs = {
        (type, name.replace(f"{{{PUBSUB_OWNER}}}", "owner ").replace(f"{{{PUBSUB}}}", ""))
        for type, name in gateway.router.context.hooks.pubsub_requests
    }
    needs = {
        "config-node": ("set", "owner configure"),
        "create-and-configure": ("set", "create"),
        "create-nodes": ("set", "create"),
        "delete-items": ("set", "retract"),
        "delete-nodes": ("set", "owner delete"),
        "instant-nodes": ("set", "create"),
        "manage-subscriptions": ("set", "owner subscriptions"),
        "modify-affiliations": ("set", "owner affiliations"),
        "publish": ("set", "publish"),
        "publish-options": ("set", "publish"),
        "purge-nodes": ("set", "owner purge"),
        "retract-items": ("set", "retract"),
        "retrieve-affiliations": ("get", "affiliations"),
        "retrieve-default": ("get", "owner default"),
        "retrieve-default-sub": ("get", "default"),
        "retrieve-items": ("get", "items"),
        "retrieve-subscriptions": ("get", "subscriptions"),
        "subscribe": ("set", "subscribe"),
        "subscription-options": ("set", "options"),
    }
    for name in told & set(needs):
        assert needs[name] in verbs, name
    assert {"create-nodes", "config-node", "publish", "subscribe", "retrieve-items"} <= told
    assert {name for name, verb in needs.items() if verb in verbs} <= told
    assert not told & {"collections", "get-pending", "multi-collection", "last-published"}
    models = {name for name in told if name.startswith("access-")}
    assert models == {"access-open"}, "what nodes are by default"
    others = {DISCO_INFO, DISCO_ITEMS, RSM, PUBSUB, QUEUEING, COMMANDS, *QOS_ALL}
    assert others <= features(gateway)


def test_nodes_that_are_made_on_publication_are_told_of_where_they_are(tmp_path: Path) -> None:
    for auto, told in ((["a/#"], True), ([], False)):
        folder = tmp_path / str(told)
        folder.mkdir()
        gateway = Gateway(new_database(folder), pubsub=Pubsub(auto_create=auto))
        provision(gateway)
        assert (f"{PUBSUB}#auto-create" in features(gateway)) is told
        gateway.close()


def test_commands_are_told_by_the_service_as_well(gateway: Gateway) -> None:
    assert payload(query(gateway, DISCO_INFO, COMMANDS)).find(f"{INFO}identity") is not None
    assert all(names(query(gateway, DISCO_ITEMS, COMMANDS)))


# Nodes


def test_nodes_are_listed_with_their_titles(gateway: Gateway) -> None:
    create(gateway, "plant/b", title="Boiler")
    create(gateway, "plant/a")
    reply = query(gateway, DISCO_ITEMS)
    assert names(reply) == ["plant/a", "plant/b"]
    assert names(reply, "name") == [None, "Boiler"]
    assert payload(reply).find(f"{SET}set") is None


def test_a_node_is_listed_to_who_may_use_it(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    create(gateway, "open")
    create(gateway, "closed", access_model="whitelist")
    create(gateway, "drop", access_model="whitelist")
    create(gateway, "seen", access_model="presence")
    create(gateway, "shut")
    affiliate(gateway, "drop", valve="publish-only")
    affiliate(gateway, "shut", valve="outcast")
    assert names(query(gateway, DISCO_ITEMS, sender=VALVE)) == ["drop", "open"]
    know(gateway, "pump1", "valve@gw.example", "both")
    assert names(query(gateway, DISCO_ITEMS, sender=VALVE)) == ["drop", "open", "seen"]
    assert len(names(query(gateway, DISCO_ITEMS))) == 5
    assert refused(query(gateway, DISCO_ITEMS, sender=APART)) == "auth/forbidden"


def test_nodes_are_listed_in_pages(gateway: Gateway) -> None:
    for name in ("a", "b", "c", "d"):
        create(gateway, name)
    reply = query(gateway, DISCO_ITEMS, page="<max>2</max><after>a</after>")
    assert names(reply) == ["b", "c"]
    part = payload(reply).find(f"{SET}set")
    assert part is not None
    assert [(one.tag, one.text) for one in part] == [
        (f"{SET}first", "b"),
        (f"{SET}last", "c"),
        (f"{SET}count", "4"),
    ]
    assert part[0].get("index") == "1"
    assert refused(query(gateway, DISCO_ITEMS, page="<max>x</max>")) == "modify/bad-request"


def test_a_list_that_is_long_is_cut_and_says_so(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        for number in range(300):
            row = (f"n/{number:03}", "pump1@gw.example", "{}")
            tx.run("INSERT INTO nodes (name, owner, config) VALUES (?, ?, ?)", row)

    gateway.tx(unit)
    reply = query(gateway, DISCO_ITEMS)
    assert len(names(reply)) == 100
    assert payload(reply).findtext(f"{SET}set/{SET}count") == "300"
    assert payload(reply).findtext(f"{SET}set/{SET}last") == "n/099"


def test_a_node_says_what_it_is(gateway: Gateway) -> None:
    create(gateway, "a", title="Boiler", access_model="presence", queueing="1")
    found = payload(query(gateway, DISCO_INFO, "a"))
    assert found.get("node") == "a"
    identity = found.find(f"{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")
    told = values(found.find(f"{DATA}x"))
    assert told.pop("FORM_TYPE") == [f"{PUBSUB}#meta-data"]
    assert told == {
        "pubsub#title": ["Boiler"],
        "pubsub#creator": ["pump1@gw.example"],
        "pubsub#access_model": ["presence"],
        "pubsub#publish_model": ["publishers"],
        "pubsub#max_items": ["20"],
        "pubsub#queueing": ["1"],
        "pubsub#num_subscribers": ["0"],
        "pubsub#owner": ["pump1@gw.example"],
    }


@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
def test_a_node_that_is_not_shown_says_why(gateway: Gateway, namespace: str) -> None:
    gateway.bind(VALVE)
    create(gateway, "closed", access_model="whitelist")
    create(gateway, "shut")
    affiliate(gateway, "shut", valve="outcast")
    assert refused(query(gateway, namespace, "none")) == "cancel/item-not-found"
    assert refused(query(gateway, namespace, "closed", sender=VALVE)) == "cancel/not-allowed"
    assert refused(query(gateway, namespace, "shut", sender=VALVE)) == "auth/forbidden"
    assert refused(query(gateway, namespace, "shut", sender=APART)) == "auth/forbidden"


def test_who_publishes_alone_sees_the_node_and_not_its_items(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    create(gateway, "drop", access_model="whitelist")
    affiliate(gateway, "drop", valve="publish-only")
    assert query(gateway, DISCO_INFO, "drop", sender=VALVE).type == "result"
    assert refused(query(gateway, DISCO_ITEMS, "drop", sender=VALVE)) == "auth/forbidden"


# Items


def test_items_of_a_node_are_listed_as_they_were_published(gateway: Gateway) -> None:
    create(gateway, "a")
    assert names(query(gateway, DISCO_ITEMS, "a")) == []
    publish(gateway, "a", "z", "y", "x")
    reply = query(gateway, DISCO_ITEMS, "a")
    assert names(reply, "name") == ["z", "y", "x"]
    assert payload(reply).find(f"{SET}set") is None


@pytest.mark.parametrize(
    ("page", "ids", "first"),
    [
        ("<max>2</max>", ["e", "d"], "0"),
        ("<max>2</max><after>d</after>", ["c", "b"], "2"),
        ("<max>2</max><after>a</after>", [], None),
        ("<max>2</max><before/>", ["b", "a"], "3"),
        ("<max>2</max><before>d</before>", ["e"], "0"),
        ("<max>2</max><before>b</before>", ["d", "c"], "1"),
        ("<max>2</max><index>3</index>", ["b", "a"], "3"),
        ("<max>0</max>", [], None),
    ],
)
def test_items_are_listed_in_pages(
    gateway: Gateway, page: str, ids: list[str], first: str | None
) -> None:
    create(gateway, "a")
    publish(gateway, "a", "e", "d", "c", "b", "a")
    reply = query(gateway, DISCO_ITEMS, "a", page=page)
    assert names(reply, "name") == ids
    part = payload(reply).find(f"{SET}set")
    assert part is not None
    assert part.findtext(f"{SET}count") == "5"
    told = part.find(f"{SET}first")
    assert (None if told is None else told.get("index")) == first


def test_a_page_stands_by_an_item_that_is_there(gateway: Gateway) -> None:
    create(gateway, "a")
    publish(gateway, "a", "1")
    reply = query(gateway, DISCO_ITEMS, "a", page="<after>9</after>")
    assert refused(reply) == "cancel/item-not-found"


def test_a_queue_lists_no_items(gateway: Gateway) -> None:
    create(gateway, "q", queueing="1")
    publish(gateway, "q", "1")
    assert names(query(gateway, DISCO_ITEMS, "q")) == []
