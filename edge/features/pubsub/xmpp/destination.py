"""Publish messages that are addressed to a node: `pubsub.DOMAIN/NODE`.

A message must contain one element: the payload, or an `<item/>` (XEP-0060) with the payload and an
optional ItemID. Elements about the message itself, such as a delay, are ignored. If there is no
ItemID, a random one is assigned. Custody ensures that an assured message is published exactly once.
Source: docs/reference/protocol.md, on custody.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.engine import access, space
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import (
    ALLOWED,
    NOT_ALLOWED,
    Acceptance,
    Contents,
    Context,
    Message,
    PublishedItem,
)
from edge.engine.quota import ExceededLimit
from edge.features.eventlog import service as eventlog
from edge.features.pubsub.rules.publication import (
    MAX_ITEM_ID_BYTES,
    PublicationShape,
    find_fault,
)
from edge.features.pubsub.service import publishing
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.publishing import ItemEvents, NewItem
from edge.features.pubsub.xmpp.items import ITEM, new_item_id, read_payload
from edge.xmpp.embedded import as_client_stanza
from edge.xmpp.errors import FragmentError
from edge.xmpp.jid import Jid
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
        return _contents(new_item_id(), found)
    id = found[0].attrs.get("id", "")
    if len(id.encode()) > MAX_ITEM_ID_BYTES:
        return Contents([], f"an ItemID has at most {MAX_ITEM_ID_BYTES} bytes")
    return _contents(id or new_item_id(), found[0].children)


def _contents(id: str, payloads: list[Child]) -> Contents:
    if len(payloads) > 1:
        return Contents([], "an item has at most one payload")
    xmlns = namespace(payloads[0].name) if payloads else ""
    payload = with_namespace(payloads[0]) if payloads else b""
    return Contents([], "", PublishedItem(id, payload, xmlns))


class NodeDestination:
    """A node as the destination of messages."""

    def acceptance(self, context: Context, tx: Transaction, sender: Sender, to: Jid) -> Acceptance:
        """Return whether the sender may use the service, and an error if it cannot publish to the
        node, for example because the node does not exist."""
        if not access.may_use_services(sender, context.trusted_domains):
            return NOT_ALLOWED
        try:
            publishing.find_target(context, tx, sender, to.resource)
        except PubsubError as error:
            return Acceptance(True, error.with_traceback(None))
        return ALLOWED

    def room_to_hold(
        self, context: Context, tx: Transaction, message: Message
    ) -> ExceededLimit | None:
        """Return the limit that publishing the message now would exceed, or `None`; its whole body
        counts as the payload, because the contents are not read yet."""
        item, name = NewItem("", message.body), message.to.resource
        node = publishing.find_target(context, tx, message.sender, name)
        if publishing.is_shipped(context, name):
            exceeded = eventlog.exceeded_limit_unread(context, tx)
            if exceeded is not None:
                return exceeded
        return publishing.check_room(context, tx, message.sender, node, item).exceeded

    def recipient(self, _to: Jid) -> str | None:
        """Return `None`, because a node belongs to no account."""
        return None

    def read(
        self, context: Context, body: bytes, to: Jid, parsed: Element | None = None
    ) -> Contents:
        """Return the item in a message, with its events if the node's items are logged, or why the
        message cannot be read."""
        found = _read_item(body)
        if found.item is None:
            return found
        logged = read_payload(context, to.resource, found.item.payload)
        if logged.unreadable:
            return logged
        return found._replace(events=logged.events) if logged.events else found

    def refusal(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> PubsubError | None:
        """Return an error if the ItemID belongs to an item that the sender may not replace."""
        item, sender = contents.item, message.sender
        if item is None:
            return None
        node = publishing.find_target(context, tx, sender, message.to.resource)
        try:
            publishing.is_repeated(context, tx, sender, node, _new_item(message, contents, item))
        except PubsubError as error:
            return error.with_traceback(None)
        return None

    def room_now(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> ExceededLimit | None:
        """Return the limit that publishing the item would exceed, or `None`; for a plain message,
        the limit of the database is checked too."""
        item = contents.item
        if item is None:
            return None
        sender = message.sender
        node = publishing.find_target(context, tx, sender, message.to.resource)
        new = _new_item(message, contents, item)
        exceeded = publishing.check_room(context, tx, sender, node, new).exceeded
        if exceeded is None and message.qos == 0:
            exceeded = space.reserve(tx, message.size, context.limits)
        return exceeded

    def deliver(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> str:
        """Publish the item in a message, or return why the node's configuration forbids it."""
        item, sender = contents.item, message.sender
        if item is None:
            return ""
        node = publishing.find_target(context, tx, sender, message.to.resource)
        shape = PublicationShape(1, 1 if item.payload else 0, item.namespace)
        fault = find_fault(shape, node.config)
        if fault is not None:
            return fault.text or str(fault.reason.value)
        new = _new_item(message, contents, item)
        if not publishing.is_repeated(context, tx, sender, node, new):
            publishing.put(context, tx, sender, node, new)
        return ""


def _new_item(message: Message, contents: Contents, item: PublishedItem) -> NewItem:
    if not contents.events:
        return NewItem(item.id, item.payload)
    return NewItem(item.id, item.payload, ItemEvents(contents.events, message.qos, message.since))
