"""Queues with items in every state, put where the gateway puts them: for what is seen of them."""

from __future__ import annotations

from typing import Final

from edge.engine.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import affiliations, nodes, subscriptions
from edge.features.queues.store import overview, queue_items, queues
from edge.features.queues.store.overview import Overview
from edge.features.queues.store.queues import Queue

OWNER: Final = "olga@gw.example"
PUBLISHER: Final = "pump1@gw.example/fw"
WORKER: Final = "worker@gw.example"
FIRST: Final = f"{WORKER}/a"


def node(
    tx: Transaction, name: str = "work", policy: str = "least-loaded", *, queueing: bool = True
) -> Queue:
    """Make a node of olga's, and its queue."""
    made = nodes.add(tx, name, OWNER, NodeConfig(queueing=queueing))
    affiliations.put(tx, made.id, OWNER, Affiliation.OWNER)
    return queues.add_for_node(tx, made.id, policy)


def share(tx: Transaction, policy: str = "least-loaded") -> Queue:
    """Make the queue of the share `$share:pool:plant/#`."""
    return queues.add_for_share(tx, "pool", "plant/#", policy)


def fill(tx: Transaction, queue: Queue) -> None:
    """Put items into a queue: two that are ready, and one in each other state."""
    now = tx.now.service
    for item, due in (("one", None), ("two", None), ("late", now + 30), ("bad", None)):
        queue_items.enqueue(tx, queue, "work", item, PUBLISHER, b"<a/>", due=due)
    held = queue_items.enqueue(tx, queue, "work", "held", PUBLISHER, b"<a/>", priority=2)
    queue_items.lock(tx, held, 0, FIRST, now + 60)
    bad = queue_items.find(tx, queue.id, "bad")
    assert bad is not None
    queue_items.dead_letter(tx, bad.row, "given out 5 times")


def join(tx: Transaction, queue: Queue, jid: str = WORKER, *, qos: int = 0, takes: int = 2) -> int:
    """Let an account that is there be a member of a queue; returns the subscription's number."""
    account = jid.partition("@")[0]
    return subscriptions.add(
        tx,
        account,
        jid,
        f"{queue.id} {jid}",
        node=queue.node,
        filter=queue.filter,
        queue=queue.id,
        qos=qos,
        requests=takes,
    ).id


def seen(tx: Transaction, queue: Queue) -> Overview:
    """Return a queue as it is shown."""
    (found,) = overview.page(tx, queue.id - 1, 1)
    return found


def states(tx: Transaction, queue: int = 1) -> dict[str, str]:
    """Return the states of the items of a queue."""
    return dict(tx.rows("SELECT item, state FROM queue_items WHERE queue = ?", (queue,)))
