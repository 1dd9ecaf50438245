"""Rows of queues with items in every state."""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.rules.subscription import SubscriptionOptions
from edge.features.pubsub.store import affiliations, nodes, subscriptions
from edge.features.queues.store import overview, queue_items, queues
from edge.features.queues.store.overview import Overview
from edge.features.queues.store.queue_items import Lock, NewQueuedItem
from edge.features.queues.store.queues import Queue

OWNER: Final = "olga@gw.example"
PUBLISHER: Final = "pump1@gw.example/fw"
WORKER: Final = "worker@gw.example"
FIRST: Final = f"{WORKER}/a"


def node(
    tx: Transaction, name: str = "work", policy: str = "least-loaded", *, queueing: bool = True
) -> Queue:
    new_node = nodes.add(tx, name, OWNER, NodeConfig(queueing=queueing))
    affiliations.put(tx, new_node.id, OWNER, Affiliation.OWNER)
    return queues.add_for_node(tx, new_node.id, policy)


def share(tx: Transaction, policy: str = "least-loaded") -> Queue:
    """Create the queue of the shared subscription `$share:pool:plant/#`."""
    return queues.add_for_share(tx, "pool", "plant/#", policy)


def fill(tx: Transaction, queue: Queue) -> None:
    """Enqueue the ready items `one` and `two`, `late` (delayed), `bad` (dead), `held` (locked)."""
    now = tx.now.service
    for item, due in (("one", None), ("two", None), ("late", now + 30), ("bad", None)):
        queue_items.enqueue(tx, queue, NewQueuedItem("work", item, PUBLISHER, b"<a/>", due=due))
    held = queue_items.enqueue(
        tx, queue, NewQueuedItem("work", "held", PUBLISHER, b"<a/>", priority=2)
    )
    queue_items.lock(tx, queue, held, Lock(0, FIRST, now + 60))
    bad = queue_items.find(tx, queue.id, "bad")
    assert bad is not None
    queue_items.dead_letter(tx, bad.row, "given out 5 times")


def join(tx: Transaction, queue: Queue, jid: str = WORKER, *, qos: int = 0, takes: int = 2) -> int:
    """Subscribe an existing account to a queue; return the subscription's number."""
    account = jid.partition("@")[0]
    return subscriptions.add(
        tx,
        account,
        jid,
        f"{queue.id} {jid}",
        node=queue.node,
        filter=queue.filter,
        queue=queue.id,
        options=SubscriptionOptions(qos=qos, requests=takes),
    ).id


def overview_of(tx: Transaction, queue: Queue) -> Overview:
    (found,) = overview.page(tx, queue.id - 1, 1)
    return found


def states(tx: Transaction, queue: int = 1) -> dict[str, str]:
    """Return the states of the items of a queue by their ItemIDs."""
    return dict(tx.rows("SELECT item, state FROM queue_items WHERE queue = ?", (queue,)))
