"""Change of the password by the device itself."""

from __future__ import annotations

from functools import partial

import pytest

from edge import credentials
from edge.config.limits import Limits
from edge.engine.dispatch.hooks import new_context
from edge.features.accounts.store import accounts
from edge.routing.xmpp import XmppHooks
from edge.xmpp.namespaces import REGISTER
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply

PUMP = "pump1@gw.example/fw"
APART = "apart@gw.example/fw"
BARE = "pump1@gw.example"
ADDRESSES = [None, DOMAIN, BARE]


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    gateway = make_gateway()
    for name in ("pump1", "apart", "certified"):
        gateway.add(name, trusted=name != "apart")
    for name in ("pump1", "apart"):
        keys = credentials.derive(f"old of {name}")
        gateway.tx(partial(accounts.set_credentials, name=name, credentials=keys))
    return gateway


def request(
    gateway: Gateway, content: str, type_: str = "set", to: str | None = None, sender: str = PUMP
) -> Reply:
    address = "" if to is None else f" to='{to}'"
    xml = f"<iq type='{type_}' id='i'{address}><query xmlns='{REGISTER}'>{content}</query></iq>"
    reply = gateway.ask(sender, xml)
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs.get("from")) == ("i", sender, to)
    assert reply.payload is None or type_ == "get", "the answer does not repeat the request"
    return reply


def change_request(username: str, password: str) -> str:
    return f"<username>{username}</username><password>{password}</password>"


def is_password(gateway: Gateway, name: str, password: str) -> bool:
    keys = [
        gateway.tx(partial(accounts.credentials, name=name, mechanism=mechanism))
        for mechanism in credentials.MECHANISMS
    ]
    found = {key is not None and credentials.verify(password, key) for key in keys}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("to", ADDRESSES)
def test_device_gets_the_fields(gateway: Gateway, to: str | None) -> None:
    reply = request(gateway, "", "get", to)
    found = {child.tag.removeprefix(f"{{{REGISTER}}}"): child.text for child in reply.content}
    assert found == {"registered": None, "username": "pump1", "password": None}


@pytest.mark.parametrize("to", ADDRESSES)
@pytest.mark.parametrize("name", ["pump1", "PUMP1"])
def test_device_changes_its_password(gateway: Gateway, to: str | None, name: str) -> None:
    assert request(gateway, change_request(name, "a new &amp; better one"), to=to).type == "result"
    assert is_password(gateway, "pump1", "a new & better one")
    assert not is_password(gateway, "pump1", "old of pump1")
    (event,) = gateway.events("system")
    assert (event.kind, event.name, event.source, event.level) == (
        "device",
        "password",
        BARE,
        "Notice",
    )


def test_password_changes_are_logged_together(gateway: Gateway) -> None:
    for number in range(3):
        assert request(gateway, change_request("pump1", f"number {number}")).type == "result"
    gateway.clock.service += gateway.limits.refusal_window
    gateway.run_timers()
    found = [(event.kind, event.name, event.value) for event in gateway.events("system")]
    assert found == [("device", "password", None), ("device", "password", 2.0)]


@pytest.mark.parametrize("name", ["apart", "nobody", "certified"])
def test_password_of_another_cannot_be_changed(gateway: Gateway, name: str) -> None:
    reply = request(gateway, change_request(name, "mine now"))
    assert reply.error == ("cancel", "not-allowed")
    assert is_password(gateway, "apart", "old of apart")
    assert is_password(gateway, "pump1", "old of pump1")
    (event,) = gateway.events("system")
    assert (event.kind, event.name, event.source) == ("limit", "password", BARE)


def test_device_with_a_certificate_only_gets_no_password(gateway: Gateway) -> None:
    reply = request(gateway, change_request("certified", "new"), sender="certified@gw.example/fw")
    assert reply.error == ("cancel", "not-allowed")
    assert not is_password(gateway, "certified", "new")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", ("modify", "bad-request")),
        ("<password>x</password>", ("modify", "bad-request")),
        ("<username>pump1</username>", ("modify", "bad-request")),
        (change_request("pump1", ""), ("modify", "bad-request")),
        (change_request("pump1", "x") + "<email>a</email>", ("modify", "bad-request")),
        (change_request("pump1", "x") + "<password>y</password>", ("modify", "bad-request")),
        (change_request("", "x"), ("modify", "jid-malformed")),
        (change_request("a@b", "x"), ("modify", "jid-malformed")),
        (change_request("pump1", "\u200b"), ("modify", "not-acceptable")),
        (change_request("pump1", "x" * 2000), ("modify", "not-acceptable")),
        ("<remove/>", ("cancel", "not-allowed")),
        (change_request("pump1", "x") + "<remove/>", ("cancel", "not-allowed")),
    ],
)
def test_invalid_request_is_refused(gateway: Gateway, content: str, error: tuple[str, str]) -> None:
    assert request(gateway, content).error == error
    assert is_password(gateway, "pump1", "old of pump1")


def test_account_of_another_has_no_fields(gateway: Gateway) -> None:
    for type_ in ("get", "set"):
        reply = request(gateway, change_request("apart", "x"), type_, "apart@gw.example")
        assert reply.error == ("cancel", "service-unavailable")


def test_component_has_no_registration() -> None:
    assert REGISTER in new_context(DOMAIN, Limits()).hooks.of(XmppHooks).advertised
    assert (
        REGISTER not in new_context(DOMAIN, Limits(), accounts=False).hooks.of(XmppHooks).advertised
    )
