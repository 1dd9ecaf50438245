"""Operations of `fieldpost node`: list, show, create, configure and delete nodes.

Nodes are listed from the database. Changes are made by the running gateway, because it notifies
the nodes' subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edge.config import load
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.features.pubsub.rules import node_config
from edge.features.pubsub.store import nodes
from edge.features.pubsub.store.nodes import Node
from edge.features.queues.store import overview
from edge.ops.gateway import control
from edge.ops.gateway.operator_requests import ConfigureNode, CreateNode, DeleteNode
from edge.ops.transactions import read_pages, reading

_PREFIX: Final = "pubsub#"


class NodeSummary(NamedTuple):
    """A node; `items` and `bytes` count its stored items or, for a queue node, its queue's items.

    `subscribers` counts the subscriptions to the node itself, not those to filters that match it.
    For a queue node, this is the number of its members.
    """

    name: str
    queue: bool
    owner: str
    items: int
    bytes: int
    subscribers: int


def list_all(folder: Path) -> Iterator[NodeSummary]:
    """Yield all nodes, ordered by name, in several transactions (see `read_pages`)."""
    return read_pages(folder, "", _page, lambda node: node.name)


def _page(tx: Transaction, after: str, limit: int) -> list[NodeSummary]:
    return [_summary(tx, node) for node in nodes.page(tx, after, limit)]


def _summary(tx: Transaction, node: Node) -> NodeSummary:
    subscribers = nodes.count_subscriptions(tx, node.id)
    queue = overview.of_node(tx, node.name)
    items, size = (node.items, node.bytes) if queue is None else (queue.items, queue.bytes)
    return NodeSummary(node.name, queue is not None, node.creator, items, size, subscribers)


def options(folder: Path, name: str) -> dict[str, list[str]]:
    """Return the values of a node's options by name, without the prefix `pubsub#`.

    Raises `SetupError` if there is no such node.
    """
    with reading(folder) as tx:
        node = nodes.get(tx, name)
    if node is None:
        raise SetupError(f"there is no node {name}; see `fieldpost node list`")
    found = node_config.option_values(node.config)
    return {option.name.removeprefix(_PREFIX): values for option, values in found}


def create(
    folder: Path, name: str, values: Mapping[str, list[str]], owner: str | None = None
) -> None:
    """Create a node; raises as `control.perform` does.

    Args:
        values: options, with or without the prefix `pubsub#`.
        owner: the name of a device, or a bare JID; `None` means the gateway itself.
    """
    domain = load.load(folder).gateway.domain
    jid = "" if owner is None else owner if "@" in owner else f"{owner}@{domain}"
    control.perform(folder, CreateNode(name, jid, _registered(values)))


def configure(folder: Path, name: str, values: Mapping[str, list[str]]) -> None:
    """Change options of a node.

    `values` and the errors are those of `create`.
    """
    control.perform(folder, ConfigureNode(name, _registered(values)))


def delete(folder: Path, name: str) -> None:
    """Delete a node with its items and subscriptions; raises as `control.perform` does."""
    control.perform(folder, DeleteNode(name))


def _registered(values: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {
        name if name.startswith(_PREFIX) else f"{_PREFIX}{name}": texts
        for name, texts in values.items()
    }
