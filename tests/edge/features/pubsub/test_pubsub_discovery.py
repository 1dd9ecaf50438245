"""Service discovery of the service, its nodes and their items (XEP-0060, section 5)."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import pytest

from edge.config.options import Pubsub
from edge.engine.database import Transaction
from edge.xmpp.namespaces import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    PING,
    QOS_ALL,
    QUEUEING,
    RSM,
    VERSION,
)
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, add_contact, provision
from tests.helpers.pubsub import (
    FORM,
    OWNER,
    PUBSUB,
    SERVICE,
    affiliate,
    create,
    error_of,
    item,
    publish,
    result_set,
    values,
)
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

INFO = f"{{{DISCO_INFO}}}"
ITEMS = f"{{{DISCO_ITEMS}}}"
FORBIDDEN = ("auth", "forbidden")


def query(
    gateway: Gateway,
    namespace: str,
    node: str | None = None,
    *,
    full: str = PUMP,
    to: str = SERVICE,
    page: str = "",
) -> Reply:
    attr = "" if node is None else f" node='{node}'"
    set_ = f"<set xmlns='{RSM}'>{page}</set>" if page else ""
    xml = f"<iq type='get' id='i' to='{to}'><query xmlns='{namespace}'{attr}>{set_}</query></iq>"
    return gateway.ask(full, xml)


def payload(reply: Reply) -> Element:
    return reply.content


def features(gateway: Gateway) -> set[str | None]:
    found = payload(query(gateway, DISCO_INFO))
    return {feature.get("var") for feature in found.iterfind(f"{INFO}feature")}


def names(reply: Reply, key: str = "node") -> list[str | None]:
    items = payload(reply).findall(f"{ITEMS}item")
    assert all(one.get("jid") == SERVICE for one in items)
    return [one.get(key) for one in items]


# The service


def test_the_gateway_lists_the_service(gateway: Gateway) -> None:
    (found,) = payload(query(gateway, DISCO_ITEMS, to=DOMAIN))
    assert found.get("jid") == SERVICE
    assert len(payload(query(gateway, DISCO_ITEMS, to="pump1@gw.example"))) == 0


@pytest.mark.parametrize("full", [PUMP, UNTRUSTED])
def test_anybody_sees_the_identity_of_the_service(gateway: Gateway, full: str) -> None:
    identity = payload(query(gateway, DISCO_INFO, full=full)).find(f"{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "service")


def test_a_component_has_no_service(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(accounts=False)
    gateway.bind("gw.example/x")
    assert len(payload(query(gateway, DISCO_ITEMS, full="gw.example/x", to=DOMAIN))) == 0


def test_every_advertised_feature_has_a_handler(gateway: Gateway) -> None:
    advertised = {
        name.partition("#")[2]
        for name in features(gateway)
        if name and name.startswith(f"{PUBSUB}#")
    }
    handled = {
        (type_, name.replace(f"{{{OWNER}}}", "owner ").replace(f"{{{PUBSUB}}}", ""))
        for type_, name in gateway.router.context.hooks.pubsub_requests
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
    assert set(needs) <= advertised
    assert set(needs.values()) <= handled
    without_request = {"item-ids", "persistent-items", "subscription-notifications"}
    assert without_request <= advertised
    assert not advertised & {"collections", "get-pending", "multi-collection", "last-published"}
    assert {name for name in advertised if name.startswith("access-")} == {"access-open"}
    others = {DISCO_INFO, DISCO_ITEMS, RSM, PUBSUB, QUEUEING, COMMANDS, PING, VERSION, *QOS_ALL}
    assert others <= features(gateway)


@pytest.mark.parametrize(("filters", "advertised"), [(["a/#"], True), ([], False)])
def test_auto_create_is_advertised_if_configured(
    make_gateway: MakeGateway, filters: list[str], advertised: bool
) -> None:
    gateway = make_gateway(pubsub=Pubsub(auto_create=filters))
    provision(gateway)
    assert (f"{PUBSUB}#auto-create" in features(gateway)) is advertised


# Nodes


def test_nodes_are_listed_with_their_titles(gateway: Gateway) -> None:
    create(gateway, PUMP, "plant/b", title="Boiler")
    create(gateway, PUMP, "plant/a")
    reply = query(gateway, DISCO_ITEMS)
    assert names(reply) == ["plant/a", "plant/b"]
    assert names(reply, "name") == [None, "Boiler"]
    assert result_set(reply) is None


def test_a_node_is_listed_to_accounts_that_may_use_it(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    create(gateway, PUMP, "open")
    create(gateway, PUMP, "closed", access_model="whitelist")
    create(gateway, PUMP, "drop", access_model="whitelist")
    create(gateway, PUMP, "seen", access_model="presence")
    create(gateway, PUMP, "shut")
    affiliate(gateway, PUMP, "drop", valve="publish-only")
    affiliate(gateway, PUMP, "shut", valve="outcast")
    assert names(query(gateway, DISCO_ITEMS, full=VALVE)) == ["drop", "open"]
    add_contact(gateway, "pump1", "valve@gw.example", "both")
    assert names(query(gateway, DISCO_ITEMS, full=VALVE)) == ["drop", "open", "seen"]
    assert len(names(query(gateway, DISCO_ITEMS))) == 5
    assert error_of(query(gateway, DISCO_ITEMS, full=UNTRUSTED)) == FORBIDDEN


def test_nodes_are_listed_in_pages(gateway: Gateway) -> None:
    for name in ("a", "b", "c", "d"):
        create(gateway, PUMP, name)
    reply = query(gateway, DISCO_ITEMS, page="<max>2</max><after>a</after>")
    assert names(reply) == ["b", "c"]
    assert result_set(reply) == ("b", "1", "c", "4")
    invalid = query(gateway, DISCO_ITEMS, page="<max>x</max>")
    assert error_of(invalid) == ("modify", "bad-request")


def test_a_long_list_is_cut_to_a_page(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        for number in range(300):
            row = (f"n/{number:03}", "pump1@gw.example", "{}")
            tx.run("INSERT INTO nodes (name, owner, config) VALUES (?, ?, ?)", row)

    gateway.tx(unit)
    reply = query(gateway, DISCO_ITEMS)
    assert len(names(reply)) == 100
    assert result_set(reply) == ("n/000", "0", "n/099", "300")


def test_a_node_has_an_identity_and_meta_data(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", title="Boiler", access_model="presence", queueing="1")
    found = payload(query(gateway, DISCO_INFO, "a"))
    assert found.get("node") == "a"
    identity = found.find(f"{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")
    form_type = f"{{{FORM}}}x/{{{FORM}}}field[@var='FORM_TYPE']/{{{FORM}}}value"
    assert found.findtext(form_type) == f"{PUBSUB}#meta-data"
    assert values(found) == {
        "title": "Boiler",
        "creator": "pump1@gw.example",
        "access_model": "presence",
        "publish_model": "publishers",
        "max_items": "20",
        "queueing": "1",
        "num_subscribers": "0",
        "owner": "pump1@gw.example",
    }


@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
def test_a_node_without_access_is_refused(gateway: Gateway, namespace: str) -> None:
    gateway.bind(VALVE)
    create(gateway, PUMP, "closed", access_model="whitelist")
    create(gateway, PUMP, "shut")
    affiliate(gateway, PUMP, "shut", valve="outcast")
    for full, node, error in (
        (PUMP, "none", ("cancel", "item-not-found")),
        (VALVE, "closed", ("cancel", "not-allowed")),
        (VALVE, "shut", FORBIDDEN),
        (UNTRUSTED, "shut", FORBIDDEN),
    ):
        assert error_of(query(gateway, namespace, node, full=full)) == error


def test_publish_only_accounts_see_a_node_but_not_its_items(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    create(gateway, PUMP, "drop", access_model="whitelist")
    affiliate(gateway, PUMP, "drop", valve="publish-only")
    assert query(gateway, DISCO_INFO, "drop", full=VALVE).type == "result"
    assert error_of(query(gateway, DISCO_ITEMS, "drop", full=VALVE)) == FORBIDDEN


# Items


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
def test_items_are_listed_in_pages_in_the_order_of_publication(
    gateway: Gateway, page: str, ids: list[str], first: str | None
) -> None:
    create(gateway, PUMP, "a")
    assert names(query(gateway, DISCO_ITEMS, "a")) == []
    for id in "edcba":
        publish(gateway, PUMP, "a", item(id))
    assert result_set(query(gateway, DISCO_ITEMS, "a")) is None
    reply = query(gateway, DISCO_ITEMS, "a", page=page)
    assert names(reply, "name") == ids
    found = result_set(reply)
    assert found is not None
    assert (found[1], found[3]) == (first, "5")


def test_a_page_of_items_needs_an_existing_item(gateway: Gateway) -> None:
    create(gateway, PUMP, "a")
    publish(gateway, PUMP, "a", item("1"))
    reply = query(gateway, DISCO_ITEMS, "a", page="<after>9</after>")
    assert error_of(reply) == ("cancel", "item-not-found")


def test_a_queue_lists_no_items(gateway: Gateway) -> None:
    create(gateway, PUMP, "q", queueing="1")
    publish(gateway, PUMP, "q", item("1"))
    assert names(query(gateway, DISCO_ITEMS, "q")) == []
