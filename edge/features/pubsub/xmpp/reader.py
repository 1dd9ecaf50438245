"""Read the items in messages that are addressed to a node: `pubsub.DOMAIN/NODE`.

A message must contain one element: the payload, or an `<item/>` (XEP-0060) with the payload and an
optional ItemID. Elements about the message itself, such as a delay, are ignored. If there is no
ItemID, a random one is assigned. Source: docs/reference/protocol.md, on custody.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.engine.dispatch.hooks import Contents, Context, Message, PublishedItem
from edge.features.pubsub.rules.publication import MAX_ITEM_ID_BYTES
from edge.features.pubsub.xmpp.items import ITEM, read_payload
from edge.xmpp.embedded import as_client_stanza
from edge.xmpp.errors import FragmentError
from edge.xmpp.namespaces import ABOUT, QOS_ALL, clark, namespace
from edge.xmpp.stanza import Child, with_namespace
from edge.xmpp.subelements import parse_element

_EMBEDDED: Final = frozenset(clark(namespace, "message") for namespace in QOS_ALL)


def _read_item(body: bytes) -> Contents:
    try:
        message = parse_element(body)
        if message.name in _EMBEDDED:
            message = parse_element(as_client_stanza(body))
        found = [one for one in message.children if namespace(one.name) not in ABOUT]
    except FragmentError as error:
        return Contents([], str(error))
    if len(found) != 1 or message.has_other_content():
        return Contents([], "a message to a node must contain one element to publish, and no text")
    if found[0].name == ITEM and found[0].has_other_content():
        return Contents([], "an item must contain one element as its payload, and no text")
    if found[0].name != ITEM:
        return _contents("", found)
    id = found[0].attrs.get("id", "")
    if len(id.encode()) > MAX_ITEM_ID_BYTES:
        return Contents([], f"an ItemID has at most {MAX_ITEM_ID_BYTES} bytes")
    return _contents(id, found[0].children)


def _contents(id: str, payloads: list[Child]) -> Contents:
    if len(payloads) > 1:
        return Contents([], "an item has at most one payload")
    xmlns = namespace(payloads[0].name) if payloads else ""
    payload = with_namespace(payloads[0]) if payloads else b""
    return Contents([], "", PublishedItem(id, payload, xmlns))


def read_message(context: Context, message: Message, _parsed: Element | None) -> Contents:
    """Return the item in a message, with its events if the node's items are logged, or why the
    message cannot be read."""
    found = _read_item(message.body)
    if found.item is None:
        return found
    logged = read_payload(context, message.to.resource, found.item.payload)
    if logged.unreadable:
        return logged
    return found._replace(events=logged.events) if logged.events else found
