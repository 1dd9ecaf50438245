"""Service discovery of the service, its nodes and their items (XEP-0060, section 5)."""

from __future__ import annotations

import pytest

from edge.engine.store.database import Transaction
from edge.routing.xmpp import XmppHooks
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
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact
from tests.helpers.pubsub import (
    FORM,
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


def features(gateway: Gateway) -> set[str]:
    found = query(gateway, DISCO_INFO).content
    return {feature.attrib["var"] for feature in found.iterfind(f"{INFO}feature")}


def identity(gateway: Gateway, node: str | None = None, full: str = PUMP) -> dict[str, str]:
    (found,) = query(gateway, DISCO_INFO, node, full=full).content.iterfind(f"{INFO}identity")
    return found.attrib


def names(reply: Reply, key: str = "node") -> list[str | None]:
    items = reply.content.findall(f"{{{DISCO_ITEMS}}}item")
    assert all(one.get("jid") == SERVICE for one in items)
    return [one.get(key) for one in items]


def test_the_gateway_lists_the_service(gateway: Gateway) -> None:
    (found,) = query(gateway, DISCO_ITEMS, to=DOMAIN).content
    assert found.get("jid") == SERVICE


@pytest.mark.parametrize("full", [PUMP, UNTRUSTED])
def test_anybody_sees_the_identity_of_the_service(gateway: Gateway, full: str) -> None:
    found = identity(gateway, full=full)
    assert found == {"category": "pubsub", "type": "service", "name": "Fieldpost"}


def test_a_component_has_no_service(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(accounts=False)
    assert len(query(gateway, DISCO_ITEMS, full="gw.example/x", to=DOMAIN).content) == 0


def test_the_service_lists_exactly_its_features(gateway: Gateway) -> None:
    found = features(gateway)
    assert found == set(gateway.router.context.hooks.of(XmppHooks).pubsub_advertised)
    others = {DISCO_INFO, DISCO_ITEMS, RSM, PUBSUB, QUEUEING, COMMANDS, PING, VERSION, *QOS_ALL}
    assert others < found


def test_auto_create_is_advertised_if_configured(build: MakeGateway) -> None:
    assert f"{PUBSUB}#auto-create" in features(build())


def test_nodes_are_listed_with_their_titles(gateway: Gateway) -> None:
    create(gateway, PUMP, "plant/b", title="Boiler")
    create(gateway, PUMP, "plant/a")
    reply = query(gateway, DISCO_ITEMS)
    assert names(reply) == ["plant/a", "plant/b"]
    assert names(reply, "name") == [None, "Boiler"]
    assert result_set(reply) is None


def test_a_node_is_listed_to_accounts_that_may_use_it(gateway: Gateway) -> None:
    create(gateway, PUMP, "open")
    create(gateway, PUMP, "closed", access_model="whitelist")
    create(gateway, PUMP, "drop", access_model="whitelist")
    create(gateway, PUMP, "seen", access_model="presence")
    create(gateway, PUMP, "shut")
    affiliate(gateway, PUMP, "drop", valve="publish-only")
    affiliate(gateway, PUMP, "shut", valve="outcast")
    assert names(query(gateway, DISCO_ITEMS, full=VALVE)) == ["drop", "open"]
    add_contact(gateway, "pump1", VALVE_BARE, "both")
    assert names(query(gateway, DISCO_ITEMS, full=VALVE)) == ["drop", "open", "seen"]
    assert len(names(query(gateway, DISCO_ITEMS))) == 5
    assert error_of(query(gateway, DISCO_ITEMS, full=UNTRUSTED)) == FORBIDDEN


def test_nodes_are_listed_in_pages(gateway: Gateway) -> None:
    def unit(tx: Transaction) -> None:
        for number in range(300):
            row = (f"n/{number:03}", "pump1@gw.example", "{}")
            tx.run("INSERT INTO nodes (name, owner, config) VALUES (?, ?, ?)", row)

    gateway.tx(unit)
    reply = query(gateway, DISCO_ITEMS)
    assert len(names(reply)) == 100
    assert result_set(reply) == ("n/000", "0", "n/099", "300")
    reply = query(gateway, DISCO_ITEMS, page="<max>2</max><after>n/200</after>")
    assert names(reply) == ["n/201", "n/202"]
    assert result_set(reply) == ("n/201", "201", "n/202", "300")
    invalid = query(gateway, DISCO_ITEMS, page="<max>x</max>")
    assert error_of(invalid) == ("modify", "bad-request")


def test_a_node_has_an_identity_and_meta_data(gateway: Gateway) -> None:
    create(gateway, PUMP, "a", title="Boiler", access_model="presence", queueing="1")
    assert identity(gateway, "a") == {"category": "pubsub", "type": "leaf"}
    found = query(gateway, DISCO_INFO, "a").content
    assert found.get("node") == "a"
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
    create(gateway, PUMP, "drop", access_model="whitelist")
    affiliate(gateway, PUMP, "drop", valve="publish-only")
    assert query(gateway, DISCO_INFO, "drop", full=VALVE).type == "result"
    assert error_of(query(gateway, DISCO_ITEMS, "drop", full=VALVE)) == FORBIDDEN


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
    missing = query(gateway, DISCO_ITEMS, "a", page="<after>9</after>")
    assert error_of(missing) == ("cancel", "item-not-found")


def test_a_queue_lists_no_items(gateway: Gateway) -> None:
    create(gateway, PUMP, "q", queueing="1")
    publish(gateway, PUMP, "q", item("1"))
    assert names(query(gateway, DISCO_ITEMS, "q")) == []
