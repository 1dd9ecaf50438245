"""Rosters and presence of test accounts; what sessions receive is described as short lines.

The lines look like `available pump1@gw.example/fw` or `push pump1@gw.example to ask`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element

from edge.features.presence.rules.subscriptions import STATES, RosterFields, SubscriptionState
from tests.helpers.store import Gateway, refused

PUMP: Final = "pump1@gw.example/fw"
PANEL: Final = "panel@gw.example/screen"
PANEL_DESK: Final = "panel@gw.example/desk"
VALVE: Final = "valve@gw.example/fw"
UNTRUSTED: Final = "odd@gw.example/fw"
"""A device that was added with --no-trust."""

ROSTER: Final = "{jabber:iq:roster}"
CLIENT: Final = "{jabber:client}"


def provision(gateway: Gateway) -> None:
    for name in ("pump1", "panel", "valve"):
        gateway.add(name)
    gateway.add("odd", trusted=False)
    for full in (PUMP, PANEL, PANEL_DESK, VALVE, UNTRUSTED):
        gateway.bind(full)


def bare(full: str) -> str:
    return full.partition("/")[0]


def describe(stanza: Element) -> str:
    """Describe a presence by its type and sender, or a roster push by its item."""
    items = stanza.findall(f"{ROSTER}query/{ROSTER}item")
    if stanza.tag == f"{CLIENT}iq" and stanza.get("type") == "set" and len(items) == 1:
        return f"push {describe_item(items[0])}"
    assert stanza.tag == f"{CLIENT}presence", stanza.tag
    return f"{stanza.get('type', 'available')} {stanza.get('from')}"


def describe_item(item: Element) -> str:
    """Describe a roster item by its JID, its subscription and what else is set."""
    ask = " ask" if item.get("ask") == "subscribe" else ""
    approved = " approved" if item.get("approved") == "true" else ""
    return f"{item.get('jid')} {item.get('subscription')}{ask}{approved}"


def received_lines(gateway: Gateway, full: str) -> list[str]:
    """Return what a session received since the last call, as lines, in order."""
    return [describe(stanza) for stanza in gateway.elements(full)]


def discard_sent(gateway: Gateway) -> None:
    gateway.sent.clear()


def request_roster(gateway: Gateway, full: str) -> list[str]:
    """Request a session's roster and return its items as lines."""
    reply = gateway.ask(full, "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>")
    assert reply.type == "result"
    assert reply.payload is not None
    assert reply.payload.tag == f"{ROSTER}query"
    return [describe_item(item) for item in reply.payload]


def send_initial_presence(gateway: Gateway, fulls: Iterable[str], content: str = "") -> None:
    """Request the rosters of sessions and send their initial presence; discard what they
    receive.
    """
    for full in fulls:
        request_roster(gateway, full)
        assert gateway.send(full, f"<presence>{content}</presence>") is None
    discard_sent(gateway)


def send_presence(gateway: Gateway, full: str, kind: str, to: str) -> None:
    """Send a presence of a type to a JID; expect no answer."""
    assert gateway.send(full, f"<presence type='{kind}' to='{to}'/>") is None


def subscribe_mutually(gateway: Gateway, one: str, other: str) -> None:
    """Subscribe two sessions' accounts to each other; discard what they receive."""
    for subscriber, contact in ((one, other), (other, one)):
        send_presence(gateway, subscriber, "subscribe", bare(contact))
        send_presence(gateway, contact, "subscribed", bare(subscriber))
    assert state_of(gateway, one, other) is state_of(gateway, other, one) is SubscriptionState.BOTH
    discard_sent(gateway)


def state_of(gateway: Gateway, full: str, contact: str) -> SubscriptionState:
    """Return the subscription state of a contact in the roster table."""
    row = gateway.connection.execute(
        "SELECT r.subscription, r.ask, r.request IS NOT NULL, r.approved"
        " FROM roster AS r JOIN accounts AS a ON a.id = r.account WHERE a.name = ? AND r.jid = ?",
        (full.partition("@")[0], bare(contact)),
    ).fetchone()
    if row is None:
        return SubscriptionState.NONE
    return STATES[RosterFields(row[0], *map(bool, row[1:]))]


def send_refused(gateway: Gateway, full: str, xml: str) -> str:
    """Send an XML stanza that is refused, and return the error's type and condition."""
    reply = gateway.ask(full, xml)
    assert reply.attrs["to"] == full
    return refused(reply)
