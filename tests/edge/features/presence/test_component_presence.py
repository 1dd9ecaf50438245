"""Presence of users of the server that the gateway is a component of."""

from __future__ import annotations

import pytest

from edge.config.options import Xmpp
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import guarded
from edge.features.presence.xmpp import component_presence
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, read_elements, stanza

FULL = "pump1@users.example/fw"


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    xmpp = Xmpp(trusted_domains=["trusted.example"])
    return make_gateway(xmpp=xmpp, accounts=False, accounts_of=("pump1@users.example",))


def bind(gateway: Gateway, full: str) -> None:
    bare = full.partition("/")[0]
    gateway.tx(lambda tx: gateway.lifecycle.bind(tx, 1, bare, bare, full))


def send_presence(
    gateway: Gateway, full: str, type_: str, content: str = ""
) -> list[tuple[str, str]]:
    """Send a presence; return (type, to) of the presence sent back, in order."""
    kind = f" type='{type_}'" if type_ else ""
    parsed = stanza(f"<presence from='{full}' to='{DOMAIN}'{kind}>{content}</presence>")
    work = component_presence.handle(gateway.router.context, parsed)
    answer = work if isinstance(work, bytes) else gateway.tx(guarded(work, 1))
    sent = read_elements(answer)
    assert all(one.get("from") == DOMAIN for one in sent)
    return [(one.get("type", ""), one.get("to", "")) for one in sent]


def session(gateway: Gateway) -> sessions.SessionRow:
    found = gateway.tx(lambda tx: sessions.find(tx, FULL))
    assert found is not None
    return found


@pytest.mark.parametrize("full", [FULL, "anybody@trusted.example/x"])
def test_trusted_user_may_subscribe_and_is_subscribed_to(gateway: Gateway, full: str) -> None:
    bind(gateway, full)
    bare = full.partition("/")[0]
    answers = [(type_, bare) for type_ in ("subscribed", "subscribe", "")]
    assert send_presence(gateway, full, "subscribe") == answers
    assert send_presence(gateway, full, "probe") == [("", bare)]
    assert send_presence(gateway, full, "unsubscribe") == [("unsubscribed", bare)]
    assert gateway.events(name="untrusted") == []
    for ignored in ("subscribed", "unsubscribed", "error", "odd"):
        assert send_presence(gateway, full, ignored) == []


def test_untrusted_user_is_refused_and_logged(gateway: Gateway) -> None:
    full = "pump1@elsewhere.example/fw"
    bind(gateway, full)
    for type_ in ("subscribe", "probe", "unsubscribe"):
        assert send_presence(gateway, full, type_) == [("unsubscribed", "pump1@elsewhere.example")]
    (event,) = gateway.events(name="untrusted")
    assert event.source == "pump1@elsewhere.example"


def test_presence_of_the_gateway_announces_its_capabilities(gateway: Gateway) -> None:
    bind(gateway, FULL)
    probe = stanza(f"<presence from='{FULL}' to='{DOMAIN}' type='probe'/>")
    work = component_presence.handle(gateway.router.context, probe)
    assert not isinstance(work, bytes)
    ((caps,),) = read_elements(gateway.tx(guarded(work, 1)))
    node = f"node='{caps.get('node')}#{caps.get('ver')}'"
    query = f"<query xmlns='http://jabber.org/protocol/disco#info' {node}/>"
    xml = f"<iq type='get' id='1' from='{FULL}' to='{DOMAIN}'>{query}</iq>"
    reply = gateway.router.route(stanza(xml), FULL)
    assert callable(reply)
    assert b"category='component' type='generic'" in gateway.tx(guarded(reply, 1))


@pytest.mark.parametrize(
    ("content", "priority"),
    [
        ("", 0),
        ("<priority>-128</priority>", -128),
        ("<priority> 127 </priority>", 127),
        ("<priority>128</priority>", 0),
        ("<priority>much</priority>", 0),
    ],
)
def test_presence_makes_a_session_available(gateway: Gateway, content: str, priority: int) -> None:
    bind(gateway, FULL)
    assert not session(gateway).available
    assert send_presence(gateway, FULL, "", content) == []
    found = session(gateway)
    assert (found.available, found.rank) == (True, priority)
    assert found.accepts is (priority >= 0)


def test_oversized_presence_is_ignored(gateway: Gateway) -> None:
    bind(gateway, FULL)
    assert send_presence(gateway, FULL, "", f"<status>{'x' * 5000}</status>") == []
    assert not session(gateway).available


def test_users_added_by_the_operator_are_probed(gateway: Gateway) -> None:
    gateway.add("account-of-embedded-mode")
    (probe,) = gateway.tx(lambda tx: component_presence.probes(gateway.router.context, tx))
    assert b"type='probe'" in probe
    assert b"to='pump1@users.example'" in probe
