"""Fill a stopped gateway's database with waiting queue items and subscriptions to topic filters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.payload import DOMAIN, SENSOR_DATA
from benchmarks.peer import device
from benchmarks.queue_payload import NODE, TOPIC
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import nodes, subscriptions
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.ops import current_time

OWNER: Final = f"{device(0)}@{DOMAIN}"

PER_ACCOUNT: Final = 100
"""Subscriptions of an account: the default limit."""

IN_ONE: Final = 20_000
"""Items that are written in one transaction."""

FILTERS: Final = ("site{n}/+/temp", "+/tank{n}/temp", "plant/+/temp{n}/#", "plant/line{n}/#")
"""Topic filters that do not match the measured node; some match its first levels."""


@contextmanager
def _written(folder: Path) -> Iterator[Transaction]:
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        yield tx


def make_nodes(folder: Path) -> None:
    """Create the queue and the fan-out node; anybody may publish to them."""
    with _written(folder) as tx:
        queue = nodes.add(tx, NODE, OWNER, NodeConfig(queueing=True, publish_model="open"))
        queues.add_for_node(tx, queue.id)
        nodes.add(tx, TOPIC, OWNER, NodeConfig(publish_model="open", persist_items=False))


def add_items(folder: Path, count: int) -> None:
    """Add `count` waiting items to the queue."""
    for begin in range(0, count, IN_ONE):
        with _written(folder) as tx:
            node = nodes.get(tx, NODE)
            queue = None if node is None else queues.of_node(tx, node.id)
            if queue is None:
                raise RuntimeError(f"{folder} has no queue")
            for number in range(begin, min(begin + IN_ONE, count)):
                queue_items.enqueue(
                    tx, queue, NewQueuedItem(NODE, f"waits-{number}", f"{OWNER}/fw", SENSOR_DATA)
                )


def add_filters(folder: Path, count: int) -> None:
    """Subscribe accounts without a session to `count` filters."""
    with _written(folder) as tx:
        for number in range(count):
            name = f"absent{number // PER_ACCOUNT:04d}"
            if number % PER_ACCOUNT == 0:
                accounts.add(tx, name, [], trusted=True)
            filter_ = FILTERS[number % len(FILTERS)].format(n=number)
            subscriptions.add(tx, name, f"{name}@{DOMAIN}", f"filter-{number}", filter=filter_)
