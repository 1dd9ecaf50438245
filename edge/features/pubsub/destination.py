"""Nodes as the destination of messages: what is sent to `pubsub.DOMAIN/NODE` is published there.

A message has one element, which is the payload; an `<item/>` of publish-subscribe is the item, with
its ItemID. What clients put beside it about the message itself is passed over. Without an ItemID
one is drawn by chance: that a message in custody is published once is the work of custody. The
service itself takes no messages. Source: PROTOCOL decisions on custody
(docs/reference/protocol.md).
"""

from __future__ import annotations

from typing import Final

from edge.engine import access, refusals, space
from edge.engine.access import Sender
from edge.engine.addresses import AddressError, AddressKind, AddressReason
from edge.engine.database import Transaction
from edge.engine.destinations import NoDestination
from edge.engine.hooks import (
    ALLOWED,
    NOT_ALLOWED,
    Contents,
    Context,
    Hooks,
    Message,
    PublishedItem,
    Standing,
)
from edge.engine.quota import ExceededLimit, Usage
from edge.features.outbox.qos_stanzas import as_stanza
from edge.features.outbox.store import dead_letters
from edge.features.outbox.store.dead_letters import DeadLetter
from edge.features.pubsub import publishing, uplink_topics
from edge.features.pubsub.publish import draw_id
from edge.features.pubsub.publishing import NewItem
from edge.features.pubsub.rules import publication
from edge.features.pubsub.rules.publication import MAX_ITEM_ID_BYTES, PublicationShape
from edge.features.pubsub.uplink_topics import Report
from edge.xmpp.errors import FragmentError, StanzaError
from edge.xmpp.jid import Jid
from edge.xmpp.namespaces import ABOUT, PUBSUB, QOS_ALL, clark, namespace
from edge.xmpp.stanza import Child, with_namespace
from edge.xmpp.subelements import parse_element

_ITEM: Final = clark(PUBSUB, "item")
_EMBEDDED: Final = frozenset(clark(namespace, "message") for namespace in QOS_ALL)

UNFIT: Final = "unfit"
"""The rule under which a plain message is refused that its node does not take."""


def read(context: Context, body: bytes, node: str) -> Contents:
    """Read the item in a message to a node, and what of it goes to the centre."""
    found = _item(body)
    if found.item is None:
        return found
    report = uplink_topics.read(context, node, found.item.payload)
    if report.unreadable:
        return report
    return found._replace(events=report.events) if report.events else found


def _item(body: bytes) -> Contents:
    try:
        message = parse_element(body)
        if message.name in _EMBEDDED:
            message = parse_element(as_stanza(body))
        found = [one for one in message.children if namespace(one.name) not in ABOUT]
    except FragmentError as error:
        return Contents([], str(error))
    if len(found) != 1:
        return Contents([], "a message to a node has one element, which is published")
    if found[0].name != _ITEM:
        return _contents(draw_id(), found)
    id = found[0].attrs.get("id", "")
    if len(id.encode()) > MAX_ITEM_ID_BYTES:
        return Contents([], f"an ItemID has at most {MAX_ITEM_ID_BYTES} bytes")
    return _contents(id or draw_id(), found[0].children)


def _contents(id: str, payloads: list[Child]) -> Contents:
    if len(payloads) > 1:
        return Contents([], "an item has one payload")
    of = namespace(payloads[0].name) if payloads else ""
    body = with_namespace(payloads[0]) if payloads else b""
    return Contents([], "", PublishedItem(id, body, of))


class Node:
    """A node as the destination of messages."""

    def standing(self, context: Context, tx: Transaction, sender: Sender, to: Jid) -> Standing:
        """Trust who may use the services; tell whether there is such a node, and its error."""
        if not access.may_use_services(sender, context.trusted_domains):
            return NOT_ALLOWED
        try:
            publishing.target(context, tx, sender, to.resource)
        except StanzaError as error:
            return Standing(True, error.with_traceback(None))
        return ALLOWED

    def room_to_hold(
        self, context: Context, tx: Transaction, message: Message
    ) -> ExceededLimit | None:
        """Look for room as if it were published now; what is held beside has bounds of its own."""
        item, name = NewItem("", message.body), message.to.resource
        node = publishing.target(context, tx, message.sender, name)
        over = uplink_topics.room_to_hold(context, tx, name)
        return over or publishing.room(context, tx, message.sender, node, item).over

    def recipient(self, _to: Jid) -> str | None:
        """It is of no account."""
        return None

    def read(self, context: Context, body: bytes, to: Jid) -> Contents:
        """Read the item in a message, and what of it goes to the centre."""
        return read(context, body, to.resource)

    def room_now(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> ExceededLimit | None:
        """Look for room: in the node, or in its line; and in the database, for a plain message."""
        item = contents.item
        if item is None:
            return None
        sender = message.sender
        node = publishing.target(context, tx, sender, message.to.resource)
        over = publishing.room(context, tx, sender, node, _new(message, contents, item)).over
        if over is None and message.qos == 0:
            over = space.refuses(tx, message.size, context.limits)
        return over

    def deliver(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> None:
        """Publish the item; one that the node does not take is kept as dead, or refused."""
        item, sender = contents.item, message.sender
        if item is None:
            return
        node = publishing.target(context, tx, sender, message.to.resource)
        shape = PublicationShape(1, 1 if item.payload else 0, item.namespace)
        fault = publication.find_fault(shape, node.config)
        if fault is None:
            publishing.put(context, tx, sender, node, _new(message, contents, item))
        else:
            _refuse(context, tx, message, fault.text)


def _new(message: Message, contents: Contents, item: PublishedItem) -> NewItem:
    if not contents.events:
        return NewItem(item.id, item.payload)
    report = Report(contents.events, message.qos, message.since)
    return NewItem(item.id, item.payload, report)


def _refuse(context: Context, tx: Transaction, message: Message, why: str) -> None:
    refusals.log(context, tx, message.sender, UNFIT)
    if message.qos:
        limits = context.limits
        sender, to = message.sender.full, message.to.full
        letter = DeadLetter(sender, message.msg_id, to, message.qos, message.body, why)
        dead_letters.add(tx, letter, Usage(limits.dead_messages, limits.dead_bytes))


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.destination(AddressKind.NODE, Node())
    hooks.destination(
        AddressKind.SERVICE,
        NoDestination(
            AddressError(AddressReason.NO_MESSAGES, "the service takes no messages; its nodes do")
        ),
    )
    hooks.advertise_pubsub(*QOS_ALL)
