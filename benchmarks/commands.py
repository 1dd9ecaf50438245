"""Stanzas of the relay benchmark: a command as an assured iq, its `deliver`, and the device's
answers.

Stanzas are not parsed: ids and addresses are found by searching for their attributes.
"""

from __future__ import annotations

import re
from typing import Final

_ATTRIBUTE: Final = re.compile(rb" (id|from|msgId|node)='([^']*)'")
_FEATURES: Final = b"".join(
    b"<feature var='%b'/>" % name
    for name in (b"http://jabber.org/protocol/disco#info", b"urn:xmpp:qos")
)
_INFO: Final = (
    b"<iq type='result' id='%b' to='%b'><query xmlns='http://jabber.org/protocol/disco#info'%b>"
    b"<identity category='client' type='bot'/>%b</query></iq>"
)
_RECEIVED: Final = (
    b"<iq type='result' id='%b' to='%b'><received xmlns='urn:xmpp:qos' msgId='%b'/></iq>"
)
_DONE: Final = b"<iq type='result' id='%b' to='%b'/>"
_ASSURED: Final = (
    b"<iq type='set' id='%b' to='%b@gw.example'><assured xmlns='urn:xmpp:qos' msgId='%b'>"
    b"<message xmlns='jabber:client'><set xmlns='urn:xmpp:iot:control'>"
    b"<int name='Light' value='80'/></set></message></assured></iq>"
)
_DELIVER: Final = (
    b"<iq type='set' id='%b' to='%b@gw.example'><deliver xmlns='urn:xmpp:qos' msgId='%b'/></iq>"
)

PRESENCE: Final = b"<presence/>"
"""Presence by which a device accepts messages."""


def assured(stanza_id: bytes, device: bytes, key: bytes) -> bytes:
    """Return the iq that offers command `key` to a device, given by its account's name."""
    return _ASSURED % (stanza_id, device, key)


def deliver(stanza_id: bytes, device: bytes, key: bytes) -> bytes:
    """Return the iq that requests delivery of command `key`."""
    return _DELIVER % (stanza_id, device, key)


def is_release(iq: bytes) -> bool:
    """Return whether an iq asks the device to deliver a command."""
    return b"<deliver " in iq


def answer(iq: bytes) -> bytes:
    """Return the device's answer to an iq from the gateway."""
    attributes = dict(_ATTRIBUTE.findall(iq))
    id_, from_ = attributes[b"id"], attributes.get(b"from", b"gw.example")
    if b"disco#info" in iq:
        node = b" node='%b'" % attributes[b"node"] if b"node" in attributes else b""
        return _INFO % (id_, from_, node, _FEATURES)
    if b":assured " in iq:
        return _RECEIVED % (id_, from_, attributes[b"msgId"])
    return _DONE % (id_, from_)


def quick_answer(iq: bytes) -> bytes:
    """Return the device's answer to an iq that delivers a command, with the gateway's quotes."""
    values = iq.split(b"'", 12)[1::2]
    if b":assured " in iq:
        return _RECEIVED % (values[1], values[3], values[5])
    return _DONE % (values[1], values[3])
