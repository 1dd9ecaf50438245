"""Rosters and presence in tests: what accounts do to each other, and what their sessions are told.

What a session was told is read as short lines, such as `available pump1@gw.example/fw` or
`push pump1@gw.example to ask`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element

from edge.features.presence.rules.subscriptions import STATES, RosterFields, SubscriptionState
from tests.helpers.store import Gateway

PUMP: Final = "pump1@gw.example/fw"
PANEL: Final = "panel@gw.example/screen"
DESK: Final = "panel@gw.example/desk"
VALVE: Final = "valve@gw.example/fw"
ODD: Final = "odd@gw.example/fw"
"""A device that was added with --no-trust."""

ROSTER: Final = "{jabber:iq:roster}"
CLIENT: Final = "{jabber:client}"


def provision(gateway: Gateway) -> None:
    """Add the accounts, and begin the sessions."""
    for name in ("pump1", "panel", "valve"):
        gateway.add(name)
    gateway.add("odd", trusted=False)
    for full in (PUMP, PANEL, DESK, VALVE, ODD):
        gateway.bind(full)


def bare(full: str) -> str:
    """Return a JID without its resource."""
    return full.partition("/")[0]


def line(stanza: Element) -> str:
    """Write what a stanza tells as one line: a presence's type and sender, or a roster push."""
    items = stanza.findall(f"{ROSTER}query/{ROSTER}item")
    if stanza.tag == f"{CLIENT}iq" and stanza.get("type") == "set" and len(items) == 1:
        return f"push {item_line(items[0])}"
    assert stanza.tag == f"{CLIENT}presence", stanza.tag
    return f"{stanza.get('type', 'available')} {stanza.get('from')}"


def item_line(item: Element) -> str:
    """Write a roster's item as one line: JID, subscription, and what else is set."""
    ask = " ask" if item.get("ask") == "subscribe" else ""
    approved = " approved" if item.get("approved") == "true" else ""
    return f"{item.get('jid')} {item.get('subscription')}{ask}{approved}"


def told(gateway: Gateway, full: str) -> list[str]:
    """Return what a session was told since this was last asked, as lines, in order."""
    return [line(stanza) for stanza in gateway.elements(full)]


def forget(gateway: Gateway) -> None:
    """Pass over all that was told until now."""
    gateway.sent.clear()


def fetch(gateway: Gateway, full: str) -> list[str]:
    """Ask for a session's roster, and return its items as lines."""
    reply = gateway.send(full, "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>")
    assert reply is not None
    assert reply.type == "result"
    assert reply.payload is not None
    assert reply.payload.tag == f"{ROSTER}query"
    return [item_line(item) for item in reply.payload]


def appear(gateway: Gateway, fulls: Iterable[str], content: str = "") -> None:
    """Have sessions ask for their rosters and send initial presence; all is passed over."""
    for full in fulls:
        fetch(gateway, full)
        assert gateway.send(full, f"<presence>{content}</presence>") is None
    forget(gateway)


def say(gateway: Gateway, full: str, kind: str, to: str) -> None:
    """Send a presence of a type to somebody; it is not answered."""
    assert gateway.send(full, f"<presence type='{kind}' to='{to}'/>") is None


def befriend(gateway: Gateway, one: str, other: str) -> None:
    """Have two sessions' accounts see each other; all that is told meanwhile is passed over."""
    for asking, asked in ((one, other), (other, one)):
        say(gateway, asking, "subscribe", bare(asked))
        say(gateway, asked, "subscribed", bare(asking))
    assert state_of(gateway, one, other) is state_of(gateway, other, one) is SubscriptionState.BOTH
    forget(gateway)


def state_of(gateway: Gateway, full: str, contact: str) -> SubscriptionState:
    """Return what a contact is in the roster of a session's account, from its row."""
    row = gateway.connection.execute(
        "SELECT r.subscription, r.ask, r.request IS NOT NULL, r.approved"
        " FROM roster AS r JOIN accounts AS a ON a.id = r.account WHERE a.name = ? AND r.jid = ?",
        (full.partition("@")[0], bare(contact)),
    ).fetchone()
    return (
        SubscriptionState.NONE if row is None else STATES[RosterFields(row[0], *map(bool, row[1:]))]
    )


def refused(gateway: Gateway, full: str, xml: str) -> str:
    """Send what is refused, and return the error's type and condition."""
    reply = gateway.send(full, xml)
    assert reply is not None
    assert (reply.type, reply.attrs["to"]) == ("error", full)
    assert reply.error is not None
    return "/".join(reply.error)
