"""Devices of a test gateway (`store.Gateway`) that send messages to each other."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from tests.helpers.store import Gateway

PUMP: Final = "pump1@gw.example/fw"
VALVE: Final = "valve@gw.example/fw"
VALVE_BARE: Final = "valve@gw.example"
UNTRUSTED: Final = "apart@gw.example/fw"
"""A device that was added with --no-trust."""

CLIENT: Final = "{jabber:client}"
DELAY: Final = "{urn:xmpp:delay}delay"

_SET_AVAILABLE: Final = """
UPDATE temp.sessions SET available = 1, accepts = ?1 >= 0, rank = ?1 WHERE full = ?2
"""
_ADD_CONTACT: Final = """
INSERT INTO roster (account, jid, listed, subscription, ask, approved)
SELECT id, ?, 1, ?, 0, 0 FROM accounts WHERE name = ?
"""


def provision(gateway: Gateway) -> None:
    """Add the devices and bind a session for each except the valve."""
    for name in ("pump1", "valve"):
        gateway.add(name)
    gateway.add("apart", trusted=False)
    for full in (PUMP, UNTRUSTED):
        gateway.bind(full)


def make_available(gateway: Gateway, full: str, priority: int = 0) -> None:
    """Bind a session and mark it available without broadcasting its presence."""
    gateway.bind(full)
    gateway.tx(lambda tx: tx.run(_SET_AVAILABLE, (priority, full)))


def add_contact(gateway: Gateway, owner: str, contact: str, subscription: str = "none") -> None:
    """Add a contact (bare JID) to the roster of a device, by name."""
    gateway.tx(lambda tx: tx.run(_ADD_CONTACT, (contact, subscription, owner)))


def received(gateway: Gateway, full: str) -> list[Element]:
    """Return the stanzas sent to a session except answers and presence; acknowledge them."""
    return [stanza for stanza in gateway.elements(full) if stanza.tag != f"{CLIENT}presence"]


def bodies(stanzas: list[Element]) -> list[str | None]:
    return [stanza.findtext(f"{CLIENT}body") for stanza in stanzas]
