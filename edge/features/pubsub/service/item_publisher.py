"""Choose the JID that an item names as its publisher (XEP-0060, sections 7.1.2.3 and 12.17)."""

from __future__ import annotations

from edge.engine.store.database import Transaction
from edge.features.pubsub.store import affiliations
from edge.features.pubsub.store.nodes import Node


def named_publisher(tx: Transaction, node: Node | None, publisher: str) -> str | None:
    """Return the bare JID that an item names as its publisher; `None` if it names nobody.

    The node's option `pubsub#itemreply` chooses the publisher, an owner or nobody. Among several
    owners, the creator of the node is preferred.

    Args:
        node: the node of the item; `None` if the node was deleted, so that nobody is named.
        publisher: the full JID that published the item.
    """
    itemreply = "none" if node is None else node.config.itemreply
    if itemreply == "publisher":  # the default
        return publisher.partition("/")[0]
    if node is None or itemreply == "none":
        return None
    owners = affiliations.owners(tx, node.id)
    return node.creator if node.creator in owners else owners[0]
