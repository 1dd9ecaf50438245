"""Devices of a gateway under test, for what goes from one to another; see `store.Gateway`."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from tests.helpers.store import Gateway

PUMP: Final = "pump1@gw.example/fw"
VALVE: Final = "valve@gw.example/fw"
VALVE_BARE: Final = "valve@gw.example"
APART: Final = "apart@gw.example/fw"
"""A device that was added with --no-trust."""

CLIENT: Final = "{jabber:client}"
DELAY: Final = "{urn:xmpp:delay}delay"

_APPEAR: Final = "UPDATE temp.sessions SET available = 1, priority = ? WHERE full = ?"
_KNOW: Final = """
INSERT INTO roster (account, jid, listed, subscription, ask, approved)
SELECT id, ?, 1, ?, 0, 0 FROM accounts WHERE name = ?
"""


def provision(gateway: Gateway) -> None:
    """Add the devices, and let each but the valve begin a session."""
    for name in ("pump1", "valve"):
        gateway.add(name)
    gateway.add("apart", trusted=False)
    for full in (PUMP, APART):
        gateway.bind(full)


def appear(gateway: Gateway, full: str, priority: int = 0) -> None:
    """Begin a session and make it available, as its row says; nobody is told."""
    gateway.bind(full)
    gateway.tx(lambda tx: tx.run(_APPEAR, (priority, full)))


def know(gateway: Gateway, owner: str, contact: str, subscription: str = "none") -> None:
    """Put a contact (bare JID) into the roster of a device, by name."""
    gateway.tx(lambda tx: tx.run(_KNOW, (contact, subscription, owner)))


def received(gateway: Gateway, full: str) -> list[Element]:
    """Return what a session was sent beside its own answers and presence; it has that then."""
    return [stanza for stanza in gateway.elements(full) if stanza.tag != f"{CLIENT}presence"]


def bodies(stanzas: list[Element]) -> list[str | None]:
    """Return the texts of messages."""
    return [stanza.findtext(f"{CLIENT}body") for stanza in stanzas]
