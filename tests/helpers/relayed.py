"""Messages from one session to another, as units of work send them, made from their stanzas."""

from __future__ import annotations

from edge.engine.store.database import MessageBytes, SentMessage
from edge.features.messages import rules
from edge.features.messages.service import AccountMessage
from edge.features.messages.xmpp.iq_relay import RelayedIq
from edge.features.messages.xmpp.messages import DELAY_ELEMENT, is_storable
from edge.features.presence.service.messages import SessionPresence
from tests.helpers.store import DOMAIN, read_element


def account_message(stanza: bytes) -> AccountMessage:
    tree = read_element(stanza)
    return AccountMessage(
        MessageBytes(stanza),
        tree.attrib["from"],
        tree.attrib["to"],
        rules.parse_type(tree.get("type")),
        is_storable([child.tag for child in tree]),
        any(child.tag == DELAY_ELEMENT and child.get("from") == DOMAIN for child in tree),
    )


def relayed(stanza: bytes) -> SentMessage:
    """Return the message that relays a stanza, which has `from` and `to`."""
    tree = read_element(stanza)
    name, sender, to = tree.tag.rpartition("}")[2], tree.attrib["from"], tree.attrib["to"]
    if name == "iq":
        return RelayedIq(stanza, sender, to, tree.get("type") in ("get", "set"))
    return account_message(stanza) if name == "message" else SessionPresence(stanza, sender, to)
