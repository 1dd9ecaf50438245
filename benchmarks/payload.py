"""Stanzas of the exchange benchmark: a sensor reading as an assured iq, and its `deliver`.

Only the ids are formatted at run time; all lengths are fixed, so that an exchange costs the load
generator two formatting operations.
"""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "gw.example"

STANZA_BYTES: Final = 413
"""Bytes of the assured iq: a sensor's reading with its node, time, unit and quality."""

ID_BYTES: Final = 13
MSG_ID_BYTES: Final = 21

SENSOR_DATA: Final = (
    b"<fields xmlns='urn:xmpp:iot:sensordata' seqnr='47' done='true'><node nodeId='boiler-1'>"
    b"<timestamp value='2026-06-07T16:24:30Z'>"
    b"<numeric name='Temperature' momentary='true' automaticReadout='true' value='63.4' unit='C'/>"
    b"</timestamp></node></fields>"
)
"""A sensor's reading (XEP-0323)."""

LOG_EVENT: Final = (
    b"<log xmlns='urn:xmpp:eventlog' timestamp='2026-06-07T16:24:30Z' id='Entered'>"
    b"<message>Entered the hall.</message><tag name='n' value='47'/></log>"
)
"""A log event with a tag (XEP-0337)."""

_ASSURED: Final = (
    b"<iq type='set' id='%%b' to='gw.example'>"
    b"<assured xmlns='urn:xmpp:qos' msgId='%%b'><message xmlns='jabber:client'>"
    b"%b</message></assured></iq>"
) % SENSOR_DATA
_DELIVER: Final = (
    b"<iq type='set' id='%b' to='gw.example'><deliver xmlns='urn:xmpp:qos' msgId='%b'/></iq>"
)

HEADER: Final = (
    b"<?xml version='1.0'?><stream:stream to='gw.example' version='1.0' xml:lang='en'"
    b" xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
)
"""A client's stream header."""


def msg_id(run: int, sender: int, count: int) -> bytes:
    """Return a message id that is unique for a sender's `count` in a `run` (a random 32-bit
    number)."""
    return b"%08x-%04x%08x" % (run, sender, count)


def assured(stanza_id: bytes, key: bytes) -> bytes:
    """Return the iq that offers message `key`: 413 bytes."""
    return _ASSURED % (stanza_id, key)


def deliver(stanza_id: bytes, key: bytes) -> bytes:
    """Return the iq that requests delivery of message `key`."""
    return _DELIVER % (stanza_id, key)
