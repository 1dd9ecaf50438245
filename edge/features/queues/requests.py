"""What is asked of a queue node's items: delete one, unlock one (XEP-0254).

Who may is decided in `rules.locks`, and what becomes of the item is `line`'s; here is who the
caller is, and how the answer is written.
"""

from __future__ import annotations

from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import rights
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import nodes
from edge.features.pubsub.store.nodes import Node
from edge.features.queues import notifications, operations
from edge.features.queues.dispatch import pump
from edge.features.queues.rules import locks
from edge.features.queues.rules.locks import Action, Lock, Role, Verdict
from edge.features.queues.rules.transitions import Loss
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queues import Queue
from edge.xmpp import pubsub
from edge.xmpp.namespaces import QUEUEING, QUEUEING_SHORT, clark
from edge.xmpp.stanza import Stanza

_CONDITIONS: Final = {
    Verdict.CONFLICT: ("conflict", "another subscriber has it"),
    Verdict.FORBIDDEN: ("forbidden", ""),
    Verdict.UNEXPECTED: ("unexpected-request", "it is not locked by you any more"),
}
"""The errors, each of the type that RFC 6120 recommends; all repeat the request."""

_PUBLISHERS: Final = (Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)


def retract(context: Context, tx: Transaction, sender: Sender, node: Node, item_id: str) -> bytes:
    """Delete an item of a queue node; returns the payload of the answer, which has none.

    Raises:
        StanzaError: there is no such item, or the sender may not.
    """
    queue, item = _item(tx, node, item_id)
    if _allowed(tx, sender, node, item, Action.DELETE) is Verdict.ALLOWED_WITH_NOTIFICATION:
        notifications.deleted(context, tx, item, sender.full)
    operations.delete(context, tx, item)
    pump(context, tx, queue.id, queue)
    return b""


def unlock(context: Context, stanza: Stanza) -> Work:
    """Unlock an item of a queue node; raises `StanzaError`."""
    element = stanza.children[0].children[0]
    name = element.attrs.get("node")
    if not name:
        raise pubsub.refusal("bad-request", "nodeid-required")
    ids = [child.get("id", "") for child in element.tree() if child.tag.endswith("}item")]
    if len(ids) != 1 or not ids[0]:
        raise pubsub.refusal("bad-request", "item-required", "one item, by its id")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        if not node.config.queueing:
            raise pubsub.refusal("feature-not-implemented", text="the node is no queue")
        queue, item = _item(tx, node, ids[0])
        if _allowed(tx, sender, node, item, Action.UNLOCK) is Verdict.ALLOWED_WITH_NOTIFICATION:
            operations.lose(context, tx, item, Loss.UNLOCKED)
            pump(context, tx, queue.id, queue)
        return b""

    return answering(context, stanza, act)


def _item(tx: Transaction, node: Node, item_id: str) -> tuple[Queue, Item]:
    queue = queues.of_node(tx, node.id)
    item = None if queue is None else queue_items.find(tx, queue.id, item_id)
    if queue is None or item is None:
        raise pubsub.refusal("item-not-found", text="there is no such item")
    return queue, item


def _allowed(tx: Transaction, sender: Sender, node: Node, item: Item, action: Action) -> Verdict:
    """Return the verdict, if it is none of the errors; raises `StanzaError`."""
    lock = Lock.NONE
    if item.state == "locked":
        lock = Lock.OWN if item.holder == sender.full else Lock.FOREIGN
    role = Role.RECEIVER if lock is Lock.OWN else _role(tx, sender, node, item)
    verdict = locks.decide(action, lock, role)
    if verdict in _CONDITIONS:
        condition, text = _CONDITIONS[verdict]
        raise pubsub.refusal(condition, text=text)
    return verdict


def _role(tx: Transaction, sender: Sender, node: Node, item: Item) -> Role:
    """Return what the caller is to an item: the first that fits."""
    if queue_items.has_received(tx, item.row, sender.full):
        return Role.RECEIVER
    affiliation = rights.affiliation(tx, node, sender.bare)
    if affiliation is Affiliation.OWNER:
        return Role.OWNER
    if item.publisher.partition("/")[0] == sender.bare:
        return Role.AUTHOR
    if affiliation in _PUBLISHERS:
        return Role.PUBLISHER
    if nodes.has_subscriber(tx, node.id, sender.account):
        return Role.SUBSCRIBER
    return Role.NOBODY


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    for type_ in ("get", "set"):
        for namespace in (QUEUEING, QUEUEING_SHORT):
            hooks.pubsub_request(type_, clark(namespace, "unlock"), unlock)
    hooks.advertise_pubsub(QUEUEING)
