"""Ping (XEP-0199): of the gateway, and of the own account, for which it answers."""

from __future__ import annotations

from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.feature import Feature, House, Work
from edge.xmpp import serialize
from edge.xmpp.namespaces import PING, clark
from edge.xmpp.stanza import Stanza


def ping(_house: House, stanza: Stanza) -> Work:
    """Answer; in line with the stanzas before it, so that a ping tells that they are done."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        return serialize.iq_result(stanza.attrs["id"], sender.full, stanza.attrs.get("to"))

    return work


_PING: Final = ("iq", "get", clark(PING, "ping"))

FEATURE = Feature(here={_PING: ping}, mine={_PING: ping}, advertises=(PING,))
