"""Verification strings, by the specification's example, and the presence that carries them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from firmware_sim.device.capabilities import NODE, presence, verification

DISCO = "http://jabber.org/protocol"


def test_verification_string_of_the_specification() -> None:
    """XEP-0115, section 5.2."""
    identity = ("client", "pc", "", "Exodus 0.9.1")
    features = [f"{DISCO}/{name}" for name in ("disco#info", "disco#items", "muc", "caps")]
    assert verification([identity], features) == "QgayPKawpkPSDYmwT/WM94uAlu0="


def test_identities_are_sorted() -> None:
    one, other = ("client", "bot", "", ""), ("client", "bot", "en", "a")
    assert verification([one, other], []) == verification([other, one], [])
    assert verification([one], []) != verification([other], [])


def test_presence_contains_the_verification_string() -> None:
    root = ET.fromstring(presence("a+b/c=", -3))  # noqa: S314 - our own
    assert root.tag == "presence"
    assert root.findtext("priority") == "-3"
    assert root[1].attrib == {"hash": "sha-1", "node": NODE, "ver": "a+b/c="}
