"""Stanzas of the queue benchmark: a reading as an item, published, taken and deleted.

Stanzas are not parsed: ids are found by the text around them.
"""

from __future__ import annotations

import re
from typing import Final

from benchmarks.payload import SENSOR_DATA

NODE: Final = "plant/boiler1/work"
"""The queue that items are published to."""

TOPIC: Final = "plant/boiler1/temp"
"""The node of the fan-out measurement."""

STANZA: Final = re.compile(rb"<(iq|message|presence)\b[^>]*?(?:/>|>.*?</\1>)", re.DOTALL)
"""A stanza as the gateway writes it; none contains another of its own kind."""

ITEM: Final = re.compile(rb"<item [^>]*?\bid='([^']*)'")
RETRACTED: Final = re.compile(rb"<retract [^>]*?\bid='([^']*)'")

_TO: Final = b"<iq type='set' id='%b' to='pubsub.gw.example'><pubsub xmlns='%b'>%b</pubsub></iq>"
_PUBSUB: Final = b"http://jabber.org/protocol/pubsub"
_OPTIONS: Final = (
    b"<options><x xmlns='jabber:x:data' type='submit'>"
    b"<field var='FORM_TYPE' type='hidden'><value>%b#subscribe_options</value></field>"
    b"<field var='pubsub#queue_requests'><value>%%d</value></field></x></options>" % _PUBSUB
)


def subscribe(stanza_id: bytes, jid: bytes, node: str, requests: int = 0) -> bytes:
    """Return the iq that subscribes a bare JID; to a queue, for so many items at a time."""
    wanted = b"<subscribe node='%b' jid='%b'/>" % (node.encode(), jid)
    options = _OPTIONS % requests if requests else b""
    return _TO % (stanza_id, _PUBSUB, wanted + options)


def unsubscribe(stanza_id: bytes, jid: bytes, node: str) -> bytes:
    """Return the iq that ends the subscription of a bare JID."""
    return _TO % (
        stanza_id,
        _PUBSUB,
        b"<unsubscribe node='%b' jid='%b'/>" % (node.encode(), jid),
    )


def publish(stanza_id: bytes, node: str, item: bytes) -> bytes:
    """Return the iq that publishes an item."""
    content = b"<publish node='%b'><item id='%b'>%b</item></publish>" % (
        node.encode(),
        item,
        SENSOR_DATA,
    )
    return _TO % (stanza_id, _PUBSUB, content)


def retract(stanza_id: bytes, node: str, item: bytes) -> bytes:
    """Return the iq by which a worker deletes an item."""
    content = b"<retract node='%b'><item id='%b'/></retract>" % (node.encode(), item)
    return _TO % (stanza_id, _PUBSUB, content)
