"""Who hears of what is published to a node: subscriptions to it, filters that match its name, and
the queues of shares.

A filter reaches only nodes that its subscriber could subscribe to by name: that is looked at each
time, so a right that is taken away counts from then on. How they are told is not known here.
Source: PROTOCOL decisions on shared subscriptions (docs/reference/protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.pubsub import options, rights
from edge.features.pubsub.store import subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription

_ADMITS: Final = "admits"


def admits(context: Context, tx: Transaction, node: Node) -> Callable[[str], bool]:
    """Return what tells whether a bare JID may subscribe to a node: made once in a transaction,
    where it depends on the node alone."""
    if node.config.access_model in ("presence", "roster"):
        return rights.admits(context, tx, node)
    made: dict[int, Callable[[str], bool]] = tx.memo.setdefault(_ADMITS, {})
    if node.id not in made:
        made[node.id] = rights.admits(context, tx, node)
    return made[node.id]


def changed(tx: Transaction, node: Node) -> None:
    """Forget what was known of who may subscribe to a node: its rights have changed."""
    tx.memo.get(_ADMITS, {}).pop(node.id, None)


def plain(context: Context, tx: Transaction, node: Node) -> list[Subscription]:
    """Return the subscriptions that are told of what happens at a node: by its name or by a filter,
    who still may, and wants to be told. Members of queues are not among them."""
    by_name = subscriptions.plain_of_node(tx, node.id)
    found = by_name + subscriptions.plain_matching(tx, node.name)
    if not found:
        return found
    admitted = admits(context, tx, node)
    return [one for one in found if options.delivers(one) and admitted(one.bare)]


def shares(context: Context, tx: Transaction, node: Node) -> list[int]:
    """Return the queues, by number, of the shares that get what is published to a node: their
    filters match its name, and they have a member who may subscribe to it."""
    found = subscriptions.shares_matching(tx, node.name)
    if not found:
        return found
    admitted = admits(context, tx, node)
    return [q for q in found if any(map(admitted, subscriptions.member_jids(tx, q)))]
