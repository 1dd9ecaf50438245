"""Service discovery of the gateway, of the own account and of other accounts."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from typing import Literal

import pytest

from edge.config.options import Xmpp
from edge.routing.xmpp import XmppHooks
from edge.xmpp import disco
from edge.xmpp.namespaces import CAPS, DISCO_INFO, DISCO_ITEMS, EVENTLOG, PING, QOS_ALL, SENSOR_DATA
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact, provision
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply, read_element, refused

PUMP_BARE = "pump1@gw.example"


def query(
    gateway: Gateway, namespace: str, to: str | None, *, node: str | None = None, sender: str = PUMP
) -> Reply:
    address = "" if to is None else f" to='{to}'"
    attr = "" if node is None else f" node='{node}'"
    xml = f"<iq type='get' id='i'{address}><query xmlns='{namespace}'{attr}/></iq>"
    reply = gateway.ask(sender, xml)
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs.get("from")) == ("i", sender, to)
    return reply


def parse_info(reply: Reply, node: str | None = None) -> tuple[dict[str, str], list[str | None]]:
    assert reply.content.tag == f"{{{DISCO_INFO}}}query"
    assert reply.content.get("node") == node
    identity, *features = reply.content
    return identity.attrib, [feature.get("var") for feature in features]


def test_gateway_lists_exactly_its_features(gateway: Gateway) -> None:
    identity, names = parse_info(query(gateway, DISCO_INFO, DOMAIN))
    assert identity == {"category": "server", "type": "im", "name": "Fieldpost"}
    assert names == sorted(gateway.router.context.hooks.of(XmppHooks).advertised)
    assert {DISCO_INFO, DISCO_ITEMS, CAPS, PING, EVENTLOG, SENSOR_DATA, *QOS_ALL} < set(names)


def test_capabilities_are_the_hash_of_the_answer(gateway: Gateway) -> None:
    _identity, names = parse_info(query(gateway, DISCO_INFO, DOMAIN))
    text = "server/im//Fieldpost<" + "".join(f"{name}<" for name in names)
    expected = b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()
    written = disco.capabilities(gateway.router.context.hooks.of(XmppHooks).advertised)
    assert written in gateway.router.stream_features
    caps = read_element(written)
    assert caps.tag == f"{{{CAPS}}}c"
    assert caps.attrib == {"hash": "sha-1", "node": disco.NODE, "ver": expected}
    node = f"{disco.NODE}#{expected}"
    assert parse_info(query(gateway, DISCO_INFO, DOMAIN, node=node), node)[1] == names


@pytest.mark.parametrize("to", [DOMAIN, PUMP_BARE, None])
@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
def test_unknown_nodes_are_refused(gateway: Gateway, to: str | None, namespace: str) -> None:
    assert refused(query(gateway, namespace, to, node="x")) == "cancel/item-not-found"


@pytest.mark.parametrize("to", [PUMP_BARE, None])
def test_account_describes_itself(gateway: Gateway, to: str | None) -> None:
    identity, names = parse_info(query(gateway, DISCO_INFO, to))
    assert identity == {"category": "account", "type": "registered"}
    assert set(names) == {DISCO_INFO, DISCO_ITEMS, PING, *QOS_ALL}
    items = query(gateway, DISCO_ITEMS, to).content
    assert (items.tag, len(items)) == (f"{{{DISCO_ITEMS}}}query", 0)


@pytest.mark.parametrize("subscription", ["none", "to", "from", "both", None])
def test_account_describes_itself_to_accounts_that_may_send_to_it(
    make_gateway: MakeGateway, subscription: str | None
) -> None:
    """Contacts may send if `trust` is "roster"; otherwise, all devices may."""
    gateway = make_gateway(xmpp=Xmpp(trust="site" if subscription is None else "roster"))
    provision(gateway)
    if subscription is not None:
        add_contact(gateway, "valve", PUMP_BARE, subscription)
    identity, names = parse_info(query(gateway, DISCO_INFO, VALVE_BARE))
    assert identity == {"category": "account", "type": "registered"}
    assert set(names) == {DISCO_INFO, DISCO_ITEMS, *QOS_ALL}
    assert query(gateway, DISCO_ITEMS, VALVE_BARE).type == "result"
    assert refused(query(gateway, DISCO_INFO, VALVE_BARE, node="x")) == "cancel/item-not-found"


@pytest.mark.parametrize(("trust", "sender"), [("site", UNTRUSTED), ("roster", PUMP)])
@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
@pytest.mark.parametrize("node", [None, "x"])
def test_account_seems_not_to_exist_to_others(
    make_gateway: MakeGateway,
    trust: Literal["site", "roster"],
    sender: str,
    namespace: str,
    node: str | None,
) -> None:
    gateway = make_gateway(xmpp=Xmpp(trust=trust))
    provision(gateway)
    known = query(gateway, namespace, VALVE_BARE, node=node, sender=sender)
    missing = query(gateway, namespace, "no@gw.example", node=node, sender=sender)
    assert refused(known) == refused(missing) == "cancel/service-unavailable"
    assert known.text == missing.text


def test_session_answers_for_itself(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    xml = f"<iq type='get' id='i' to='{VALVE}'><query xmlns='{DISCO_INFO}'/></iq>"
    assert gateway.send(PUMP, xml) is None
    assert len(gateway.elements(VALVE)) == 1
