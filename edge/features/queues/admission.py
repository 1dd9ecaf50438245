"""Which members of a share may have what was published to a node: those who could subscribe to it
by its name.

A share may have members with different rights. An item goes to one who may have it; while none of
those is there it stands aside, so that it holds up nothing, until a member comes or rights change.
Of a node that is no more, nobody can be told to have no right; so what waits of it where some had
none dies with it. Source: PROTOCOL decisions on shared subscriptions (docs/reference/protocol.md).
"""

from __future__ import annotations

from typing import NamedTuple

from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.hooks import Context
from edge.features.pubsub import matching
from edge.features.pubsub.store import nodes, subscriptions
from edge.features.pubsub.store.nodes import Node
from edge.features.queues.store import queue_items, queue_members
from edge.features.queues.store.queue_items import Item
from edge.features.queues.store.queue_members import ConnectedMember
from edge.features.queues.store.queues import Queue


class Chosen(NamedTuple):
    """Who gets an item, if anybody does now; `aside` tells that it stands aside."""

    one: ConnectedMember | None
    aside: bool = False


def choose(
    context: Context, tx: Transaction, queue: Queue, item: Item, one: ConnectedMember
) -> Chosen:
    """Choose who gets an item of a queue: the member that the queue's policy names, if it may have
    it, else the least loaded of those who may and have room."""
    node = nodes.get(tx, item.node) if queue.node is None else None
    if node is None:
        return Chosen(one)
    admitted = matching.admits(context, tx, node)
    if admitted(_bare(one)):
        return Chosen(one)
    there = [other for other in queue_members.connected(tx, queue.id) if admitted(_bare(other))]
    if not there:
        queue_items.hold(tx, queue.id, item.node)
        return Chosen(None, aside=True)
    free = [other for other in there if other.member.has_room]
    return Chosen(min(free, key=lambda other: other.member.in_flight) if free else None)


def _bare(one: ConnectedMember) -> str:
    return one.member.session.partition("/")[0]


def node_goes(context: Context, tx: Transaction, node: Node) -> None:
    """See to the items of a node that is about to be deleted, in shares that have a member who may
    not have them."""
    admitted = matching.admits(context, tx, node)
    for queue in subscriptions.shares_matching(tx, node.name):
        if all(map(admitted, subscriptions.member_jids(tx, queue))):
            continue
        count = queue_items.dead_letter_node(tx, queue, node.name, "its node was deleted")
        if count:
            text = "a node was deleted, and what waited of it in a share is dead"
            event = NewEvent(
                "message",
                topic=node.name,
                name="share_items_dead",
                value=float(count),
                level="Warning",
                text=text,
                tags={"queue": str(queue)},
            )
            events.append(tx, events.SYSTEM, event)
