"""Service discovery (XEP-0030): what the gateway is, and every feature that is really there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.handlers.feature import Feature
from edge.wire import serialize
from edge.wire.errors import StanzaError
from edge.wire.namespaces import DISCO_INFO, DISCO_ITEMS, clark

if TYPE_CHECKING:
    from edge.handlers.feature import House, Work
    from edge.rules.access import Sender
    from edge.store.database import Transaction
    from edge.wire.stanza import Stanza


def info(house: House, stanza: Stanza) -> Work:
    """Answer disco#info with the gateway's identity and features."""
    identity = serialize.tag("identity", {"category": "server", "type": "im", "name": "Fieldpost"})
    features = b"".join(serialize.tag("feature", {"var": name}) for name in house.features)
    return _query(stanza, DISCO_INFO, identity + features)


def items(_house: House, stanza: Stanza) -> Work:
    """Answer disco#items: nothing stands below the gateway."""
    return _query(stanza, DISCO_ITEMS, b"")


def _query(stanza: Stanza, namespace: str, content: bytes) -> Work:
    if "node" in stanza.children[0].attrs:
        raise StanzaError("item-not-found")
    payload = serialize.tag("query", content=content, xmlns=namespace)

    def work(_tx: Transaction, sender: Sender) -> bytes:
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)

    return work


FEATURE = Feature(
    here={
        ("iq", "get", clark(DISCO_INFO, "query")): info,
        ("iq", "get", clark(DISCO_ITEMS, "query")): items,
    },
    advertises=(DISCO_INFO, DISCO_ITEMS),
)
