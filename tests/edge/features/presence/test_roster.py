"""Roster requests, changes, pushes and refusals."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import Element

import pytest

from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.presence.rules.subscriptions import SubscriptionState
from edge.features.presence.xmpp import roster
from tests.helpers.rosters import (
    PANEL,
    PANEL_DESK,
    PUMP,
    ROSTER,
    bare,
    describe_item,
    discard_sent,
    received_lines,
    request_roster,
    send_initial_presence,
    send_presence,
    state_of,
    subscribe_mutually,
)
from tests.helpers.store import DOMAIN, Gateway, Reply, refused


def change(gateway: Gateway, items: str, to: str | None = None, full: str = PANEL) -> Reply:
    address = "" if to is None else f" to='{to}'"
    query = f"<query xmlns='jabber:iq:roster'>{items}</query>"
    reply = gateway.ask(full, f"<iq type='set' id='s'{address}>{query}</iq>")
    assert (reply.attrs["id"], reply.attrs["to"]) == ("s", full)
    assert reply.attrs.get("from") == to
    return reply


def put_contact(gateway: Gateway, jid: str, content: str = "", name: str = "") -> None:
    xml = f"<item jid='{jid}' name='{name}'>{content}</item>"
    assert change(gateway, xml).type == "result"


@pytest.mark.parametrize("address", ["", f" to='{bare(PANEL)}'"])
def test_new_roster_is_empty(gateway: Gateway, address: str) -> None:
    query = "<query xmlns='jabber:iq:roster'/>"
    reply = gateway.ask(PANEL, f"<iq type='get' id='r'{address}>{query}</iq>")
    assert reply.type == "result"
    assert (reply.content.tag, len(reply.content)) == (f"{ROSTER}query", 0)


def test_contact_keeps_its_name_and_groups(gateway: Gateway) -> None:
    xml = (
        "<item jid='Pump1@GW.example' name='Pump &apos;A&apos;' subscription='both' ask='subscribe'"
        " approved='true'><group>Plant &amp; Co</group><group>é</group></item>"
    )
    assert change(gateway, xml).type == "result"
    item = stored_contact(gateway)
    assert item.attrib == {"jid": bare(PUMP), "name": "Pump 'A'", "subscription": "none"}
    assert [group.text for group in item] == ["Plant & Co", "é"]
    put_contact(gateway, bare(PUMP))
    item = stored_contact(gateway)
    assert (item.get("name"), len(item)) == (None, 0)


def stored_contact(gateway: Gateway) -> Element:
    reply = gateway.ask(PANEL, "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>")
    (item,) = reply.content
    return item


def test_changes_are_pushed_to_sessions_that_requested_the_roster(gateway: Gateway) -> None:
    request_roster(gateway, PANEL_DESK)
    put_contact(gateway, bare(PUMP))
    assert received_lines(gateway, PANEL) == []
    (push,) = gateway.elements(PANEL_DESK)
    assert push.attrib.keys() == {"type", "id", "to"}
    assert (push.get("type"), push.get("to")) == ("set", PANEL_DESK)
    (item,) = push[0]
    assert describe_item(item) == f"{bare(PUMP)} none"
    request_roster(gateway, PANEL)
    put_contact(gateway, bare(PUMP), name="P")
    ids = {stanza.get("id") for full in (PANEL, PANEL_DESK) for stanza in gateway.elements(full)}
    assert len(ids | {push.get("id")}) == 3
    assert received_lines(gateway, PUMP) == []


def test_push_expects_no_answer(gateway: Gateway) -> None:
    for xml in ("<iq type='result' id='push-1'/>", "<iq type='error' id='push-1'><error/></iq>"):
        assert gateway.send(PANEL, xml) is None
    assert gateway.events() == []


NAME = "x" * roster.MAX_NAME_BYTES
GROUP = "é" * (roster.MAX_GROUP_BYTES // 2)


def groups(*names: str) -> str:
    content = "".join(f"<group>{name}</group>" for name in names)
    return f"<item jid='pump1@gw.example'>{content}</item>"


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ("", "modify/bad-request"),
        ("<item jid='a@gw.example'/><item jid='b@gw.example'/>", "modify/bad-request"),
        ("<other jid='a@gw.example'/>", "modify/bad-request"),
        ("<item/>", "modify/bad-request"),
        ("text<item jid='a@gw.example'/>", "modify/bad-request"),
        ("<item jid='a@gw.example'>pumps</item>", "modify/bad-request"),
        ("<item jid='a@gw.example'><group>a</group>pumps</item>", "modify/bad-request"),
        ("<item jid=''/>", "modify/jid-malformed"),
        ("<item jid='@gw.example'/>", "modify/jid-malformed"),
        ("<item jid='a@gw.example/x'/>", "modify/not-acceptable"),
        (f"<item jid='a@gw.example' name='{NAME}x'/>", "modify/not-acceptable"),
        (groups("a", "a"), "modify/bad-request"),
        (groups(""), "modify/not-acceptable"),
        (groups(f"{GROUP}x"), "modify/not-acceptable"),
        (groups(*"abcde"), "modify/not-acceptable"),
        ("<item jid='panel@gw.example'/>", "cancel/not-allowed"),
        ("<item jid='panel@gw.example' subscription='remove'/>", "cancel/not-allowed"),
        ("<item jid='pump1@gw.example' subscription='remove'/>", "cancel/item-not-found"),
    ],
)
def test_invalid_contact_is_refused(gateway: Gateway, items: str, error: str) -> None:
    request_roster(gateway, PANEL)
    assert refused(change(gateway, items)) == error
    assert received_lines(gateway, PANEL) == []
    assert gateway.count("SELECT count(*) FROM roster") == 0


def test_largest_contact_is_accepted(gateway: Gateway) -> None:
    xml = groups(GROUP, *"abc").replace("<item ", f"<item name='{NAME}' ")
    assert change(gateway, xml).type == "result"


@pytest.mark.parametrize("type_", ["get", "set"])
@pytest.mark.parametrize(
    ("to", "error"),
    [
        (bare(PUMP), "auth/forbidden"),
        ("nobody@gw.example", "auth/forbidden"),
        (DOMAIN, "cancel/service-unavailable"),
        ("other.example", "cancel/remote-server-not-found"),
    ],
)
def test_roster_of_another_account_is_forbidden(
    gateway: Gateway, type_: str, to: str, error: str
) -> None:
    query = "<query xmlns='jabber:iq:roster'><item jid='valve@gw.example'/></query>"
    reply = gateway.ask(PANEL, f"<iq type='{type_}' id='r' to='{to}'>{query}</iq>")
    assert refused(reply) == error
    assert gateway.count("SELECT count(*) FROM roster") == 0


@pytest.mark.parametrize("end", [accounts.revoke, accounts.remove])
def test_revoked_or_removed_account_has_no_roster(
    gateway: Gateway, end: Callable[[Transaction, str], object]
) -> None:
    gateway.tx(lambda tx: end(tx, "panel"))
    assert refused(change(gateway, "<item jid='pump1@gw.example'/>")) == "auth/forbidden"


def test_full_roster_accepts_changes_only(gateway: Gateway) -> None:
    for name in "ab":
        put_contact(gateway, f"{name}@gw.example")
    reply = change(gateway, "<item jid='d@gw.example'/>")
    assert refused(reply) == "wait/resource-constraint"
    assert [event.name for event in gateway.events()] == ["roster_items"]
    put_contact(gateway, "a@gw.example", name="A")
    remove(gateway, PANEL, "a@gw.example")
    put_contact(gateway, "d@gw.example")


# Removal, which ends both subscriptions (section 2.5.2)


def remove(gateway: Gateway, full: str, contact: str) -> None:
    xml = f"<item jid='{bare(contact)}' subscription='remove'/>"
    assert change(gateway, xml, full=full).type == "result"


def test_removing_a_contact_ends_both_subscriptions(gateway: Gateway) -> None:
    send_initial_presence(gateway, (PANEL, PUMP))
    subscribe_mutually(gateway, PANEL, PUMP)
    remove(gateway, PANEL, PUMP)
    assert request_roster(gateway, PANEL) == []
    assert request_roster(gateway, PUMP) == [f"{bare(PANEL)} none"]
    assert received_lines(gateway, PANEL) == [f"unavailable {PUMP}", f"push {bare(PUMP)} remove"]
    assert received_lines(gateway, PUMP) == [
        f"unsubscribe {bare(PANEL)}",
        f"push {bare(PANEL)} to",
        f"unavailable {PANEL}",
        f"unsubscribed {bare(PANEL)}",
        f"push {bare(PANEL)} none",
    ]


@pytest.mark.parametrize(
    "before",
    [(), (PANEL, "subscribe", PUMP), (PUMP, "subscribe", PANEL), (PANEL, "subscribed", PUMP)],
)
def test_removed_contact_leaves_nothing_on_either_side(
    gateway: Gateway, before: tuple[str, ...]
) -> None:
    put_contact(gateway, bare(PUMP))
    if before:
        one, kind, other = before
        send_presence(gateway, one, kind, bare(other))
    remove(gateway, PANEL, PUMP)
    for one, other in ((PANEL, PUMP), (PUMP, PANEL)):
        assert state_of(gateway, one, other) is SubscriptionState.NONE
    count = "SELECT count(*) FROM roster WHERE request IS NOT NULL OR jid = ?"
    assert gateway.count(count, bare(PUMP)) == 0


def test_pending_request_is_not_a_contact(gateway: Gateway) -> None:
    send_presence(gateway, PUMP, "subscribe", bare(PANEL))
    assert request_roster(gateway, PANEL) == []
    discard_sent(gateway)
    xml = f"<item jid='{bare(PUMP)}' subscription='remove'/>"
    assert refused(change(gateway, xml)) == "cancel/item-not-found"
    assert state_of(gateway, PANEL, PUMP) is SubscriptionState.NONE_IN


@pytest.mark.parametrize("jid", [DOMAIN, "someone@other.example", "nobody@gw.example"])
def test_contact_without_an_account_is_accepted(gateway: Gateway, jid: str) -> None:
    put_contact(gateway, jid)
    assert request_roster(gateway, PANEL) == [f"{jid} none"]
    remove(gateway, PANEL, jid)
    assert request_roster(gateway, PANEL) == []
