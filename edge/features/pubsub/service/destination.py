"""Nodes and the service as destinations: a message to a node is published as an item.

Custody ensures that an assured message is published exactly once. Source:
docs/reference/protocol.md, on custody.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.destinations import NoDestination
from edge.engine.dispatch.hooks import (
    ALLOWED,
    NOT_ALLOWED,
    Acceptance,
    Contents,
    Context,
    Hooks,
    Message,
    Plan,
    PublishedItem,
)
from edge.engine.rules import access
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store import space
from edge.engine.store.database import Transaction
from edge.features.eventlog import service as eventlog
from edge.features.pubsub.rules.publication import PublicationShape, find_fault
from edge.features.pubsub.service import publishing
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.publishing import NO_EVENTS, ItemEvents, NewItem
from edge.features.pubsub.store import nodes
from edge.features.pubsub.store.nodes import Node
from edge.jid import AddressError, AddressReason, Jid


class NodeDestination:
    """A node as the destination of messages."""

    kind: Final = AddressKind.NODE

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
        sender, name = message.sender, message.to.resource
        item = NewItem("", message.body, NO_EVENTS, message.attributes)
        node = _accepted_node(context, tx, sender, name)
        if message.body and publishing.is_shipped(context, name):
            exceeded = eventlog.exceeded_limit_unread(context, tx)
            if exceeded is not None:
                return exceeded
        return publishing.check_room(context, tx, sender, node, item).exceeded

    def read(self, context: Context, message: Message) -> Contents:
        """Return the body as an item with a new ItemID, delivered at the QoS of the message at
        most; with its events if the node's items are logged and the body can be decoded."""
        node, body, attributes = message.to.resource, message.body, message.attributes
        logged = publishing.read_events(context, node, body, attributes.content_type)
        if attributes.qos != message.qos:
            attributes = attributes._replace(qos=message.qos)
        item = PublishedItem("", body, "", attributes)
        return Contents(logged.events, "", item, logged.unreadable)

    def check(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> PubsubError | ExceededLimit | Plan | None:
        """Return an error if the ItemID belongs to an item that the sender may not replace, or the
        limit that publishing the item would exceed; for a plain message, the limit of the database
        is checked too. The plan is the publication."""
        item, sender = contents.item, message.sender
        if item is None:
            return None
        node = _accepted_node(context, tx, sender, message.to.resource)
        new = _new_item(tx, message, contents, item)
        try:
            is_repeated = item.id != "" and publishing.is_repeated(context, tx, sender, node, new)
        except PubsubError as error:
            return error.with_traceback(None)
        room = publishing.check_room(context, tx, sender, node, new)
        exceeded = room.exceeded
        if exceeded is None and message.qos == 0 and message.body:
            exceeded = space.reserve(tx, message.size, context.limits)
        return exceeded or Plan((node, new, item.namespace, room, is_repeated))

    def deliver(
        self,
        context: Context,
        tx: Transaction,
        message: Message,
        contents: Contents,
        plan: Plan | None,
    ) -> str:
        """Publish the item in a message, or return why the node's configuration forbids it."""
        if plan is None:
            return ""
        sender = message.sender
        node, item, namespace, room, is_repeated = plan.values
        shape = PublicationShape(1, 1 if item.payload else 0, namespace)
        fault = find_fault(shape, node.config, item.attributes)
        if fault is not None:
            return fault.text or str(fault.reason.value)
        if item.attributes.expiry == 0:
            return "the item expired before its sender released it"
        if not is_repeated:
            publishing.put(context, tx, sender, node, item, room=room)
            if contents.unlogged:
                publishing.log_unlogged(context, tx, sender, node.name, contents.unlogged)
        return ""


def _accepted_node(context: Context, tx: Transaction, sender: Sender, name: str) -> Node:
    """Return the node to publish to, after `acceptance` has checked that the sender may."""
    return nodes.cached(tx, name) or publishing.find_target(context, tx, sender, name)


def _new_item(
    tx: Transaction, message: Message, contents: Contents, item: PublishedItem
) -> NewItem:
    logged, attributes = NO_EVENTS, item.attributes
    if contents.events:
        logged = ItemEvents(contents.events, message.qos, message.since)
    if attributes.expiry is not None and message.since is not None:
        left = attributes.expiry - (tx.now.service - message.since)
        attributes = attributes._replace(expiry=max(left, 0.0))
    return NewItem(item.id or publishing.new_item_id(), item.payload, logged, attributes)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.add(hooks.destinations, AddressKind.NODE, NodeDestination())
    no_messages = AddressError(
        AddressReason.NO_MESSAGES, "the service takes no messages; send them to a node"
    )
    hooks.add(hooks.destinations, AddressKind.SERVICE, NoDestination(no_messages))
