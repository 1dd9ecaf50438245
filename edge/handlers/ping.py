"""Ping (XEP-0199): of the gateway, and of the own account, for which it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.handlers.feature import Feature
from edge.wire import serialize
from edge.wire.namespaces import PING, clark

if TYPE_CHECKING:
    from edge.handlers.feature import House, Work
    from edge.rules.access import Sender
    from edge.store.database import Transaction
    from edge.wire.stanza import Stanza


def ping(_house: House, stanza: Stanza) -> Work:
    """Answer; in line with the stanzas before it, so that a ping tells that they are done."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        return serialize.iq_result(stanza.attrs["id"], sender.full, stanza.attrs.get("to"))

    return work


_PING: Final = ("iq", "get", clark(PING, "ping"))

FEATURE = Feature(here={_PING: ping}, mine={_PING: ping}, advertises=(PING,))
