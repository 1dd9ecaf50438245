"""Service discovery of the gateway, of the own account and of other accounts."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from hashlib import sha1
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.router import Router
from edge.xmpp import disco
from edge.xmpp.namespaces import CAPS, DISCO_INFO, DISCO_ITEMS, EVENTLOG, PING, QOS_ALL, SENSOR_DATA
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, VALVE_BARE, add_contact, provision
from tests.helpers.store import DOMAIN, Gateway, Reply, new_database, read_element

PUMP_BARE = "pump1@gw.example"


def query(
    gateway: Gateway, namespace: str, to: str | None, *, node: str | None = None, sender: str = PUMP
) -> Reply:
    address = "" if to is None else f" to='{to}'"
    asked = "" if node is None else f" node='{node}'"
    xml = f"<iq type='get' id='i'{address}><query xmlns='{namespace}'{asked}/></iq>"
    reply = gateway.ask(sender, xml)
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs.get("from")) == ("i", sender, to)
    return reply


def parse_info(reply: Reply, node: str | None = None) -> tuple[dict[str, str], list[str | None]]:
    assert reply.payload is not None
    assert reply.payload.tag == f"{{{DISCO_INFO}}}query"
    assert reply.payload.get("node") == node
    identity, *features = reply.payload
    return identity.attrib, [feature.get("var") for feature in features]


def refused(reply: Reply) -> str:
    assert reply.error is not None
    return "/".join(reply.error)


def test_gateway_lists_exactly_its_features(gateway: Gateway) -> None:
    identity, names = parse_info(query(gateway, DISCO_INFO, DOMAIN))
    assert identity == {"category": "server", "type": "im", "name": "Fieldpost"}
    assert names == sorted(gateway.router.context.hooks.advertised)
    assert {DISCO_INFO, DISCO_ITEMS, CAPS, PING, EVENTLOG, SENSOR_DATA, *QOS_ALL} < set(names)


def test_capabilities_are_the_hash_of_the_answer(gateway: Gateway) -> None:
    _identity, names = parse_info(query(gateway, DISCO_INFO, DOMAIN))
    text = "server/im//Fieldpost<" + "".join(f"{name}<" for name in names)
    expected = b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()
    caps = read_element(disco.capabilities(gateway.router.context.hooks.advertised))
    assert caps.tag == f"{{{CAPS}}}c"
    assert caps.attrib == {"hash": "sha-1", "node": disco.NODE, "ver": expected}
    node = f"{disco.NODE}#{expected}"
    assert parse_info(query(gateway, DISCO_INFO, DOMAIN, node=node), node)[1] == names
    assert (
        disco.capabilities(gateway.router.context.hooks.advertised)
        in gateway.router.stream_features
    )


def test_component_and_server_have_different_capabilities() -> None:
    component = Router(DOMAIN, Limits(), accounts=False)
    embedded = Router(DOMAIN, Limits())
    assert component.stream_features != embedded.stream_features


@pytest.mark.parametrize("to", [PUMP_BARE, None])
def test_account_has_no_items(gateway: Gateway, to: str | None) -> None:
    reply = query(gateway, DISCO_ITEMS, to)
    assert reply.payload is not None
    assert (reply.payload.tag, len(reply.payload)) == (f"{{{DISCO_ITEMS}}}query", 0)


@pytest.mark.parametrize("to", [DOMAIN, PUMP_BARE, None])
@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
def test_unknown_nodes_are_refused(gateway: Gateway, to: str | None, namespace: str) -> None:
    assert refused(query(gateway, namespace, to, node="x")) == "cancel/item-not-found"


@pytest.mark.parametrize("to", [PUMP_BARE, None])
def test_account_describes_itself(gateway: Gateway, to: str | None) -> None:
    identity, names = parse_info(query(gateway, DISCO_INFO, to))
    assert identity == {"category": "account", "type": "registered"}
    assert set(names) == {DISCO_INFO, DISCO_ITEMS, PING, *QOS_ALL}
    ping = f"<iq type='get' id='i' to='{PUMP_BARE}'><ping xmlns='{PING}'/></iq>"
    reply = gateway.ask(PUMP, ping)
    assert (reply.type, reply.attrs["from"]) == ("result", PUMP_BARE)


def roster_gateway(folder: Path) -> Gateway:
    """Return a gateway whose devices receive only from their rosters."""
    gateway = Gateway(new_database(folder), xmpp=Xmpp(trust="roster"))
    provision(gateway)
    return gateway


@pytest.mark.parametrize("subscription", ["none", "to", "from", "both"])
def test_account_describes_itself_to_those_who_may_send_to_it(
    tmp_path: Path, subscription: str
) -> None:
    with closing(roster_gateway(tmp_path)) as gateway:
        add_contact(gateway, "valve", PUMP_BARE, subscription)
        _check_description(gateway)


def test_account_describes_itself_to_all_devices_of_a_site(gateway: Gateway) -> None:
    _check_description(gateway)


def _check_description(gateway: Gateway) -> None:
    identity, names = parse_info(query(gateway, DISCO_INFO, VALVE_BARE))
    assert identity == {"category": "account", "type": "registered"}
    assert set(names) == {DISCO_INFO, DISCO_ITEMS, *QOS_ALL}
    assert query(gateway, DISCO_ITEMS, VALVE_BARE).type == "result"
    assert refused(query(gateway, DISCO_INFO, VALVE_BARE, node="x")) == "cancel/item-not-found"


@pytest.mark.parametrize("namespace", [DISCO_INFO, DISCO_ITEMS])
@pytest.mark.parametrize("node", [None, "x"])
def test_account_seems_not_to_exist_to_others(
    tmp_path: Path, gateway: Gateway, namespace: str, node: str | None
) -> None:
    (tmp_path / "roster").mkdir()
    with closing(roster_gateway(tmp_path / "roster")) as by_roster:
        for one, sender in ((gateway, UNTRUSTED), (by_roster, PUMP)):
            known = query(one, namespace, VALVE_BARE, node=node, sender=sender)
            nobody = query(one, namespace, "no@gw.example", node=node, sender=sender)
            assert refused(known) == refused(nobody) == "cancel/service-unavailable"
            assert known.text == nobody.text


def test_session_answers_for_itself(gateway: Gateway) -> None:
    gateway.bind(VALVE)
    xml = f"<iq type='get' id='i' to='{VALVE}'><query xmlns='{DISCO_INFO}'/></iq>"
    assert gateway.send(PUMP, xml) is None
    assert len(gateway.elements(VALVE)) == 1


def test_untrusted_device_may_query_the_gateway(gateway: Gateway) -> None:
    assert query(gateway, DISCO_INFO, DOMAIN, sender=UNTRUSTED).type == "result"
