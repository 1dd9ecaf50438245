"""Name the publisher of an item to those who receive or retrieve it (XEP-0060, sections 7.1.2.3
and 12.17)."""

from __future__ import annotations

from edge.engine.database import Transaction
from edge.features.pubsub.store import affiliations
from edge.features.pubsub.store.nodes import Node


def named_publisher(tx: Transaction, node: Node | None, publisher: str) -> str | None:
    """Return the bare JID that items name as their publisher, as `pubsub#itemreply` says.

    With several owners, that is the one that created the node, while it is an owner.

    Args:
        node: the node of the item; `None` if it was deleted: then nobody is named.
        publisher: the full JID that published the item.
    """
    itemreply = "none" if node is None else node.config.itemreply
    if itemreply == "publisher":  # the default
        return publisher.partition("/")[0]
    if node is None or itemreply == "none":
        return None
    owners = affiliations.owners(tx, node.id)
    return node.owner if node.owner in owners else owners[0]
