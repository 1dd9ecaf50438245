"""Declare the operations on the queues of nodes and shares that publish-subscribe performs.

Queues are built on nodes and subscriptions, so the feature `queues` imports publish-subscribe and
implements this interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.pubsub.rules.replacement import ExistingItem
from edge.features.pubsub.rules.subscription import SubscriptionEnd
from edge.features.pubsub.store.nodes import Node
from edge.features.pubsub.store.subscriptions import Subscription

QUEUES: Final = "queues"
"""Key of the operations in `Hooks.implementations`."""


class Queue(Protocol):
    """A queue: its number, the number of its items in any state, and a value of `QueuePolicy`."""

    @property
    def id(self) -> int: ...  # noqa: D102

    @property
    def items(self) -> int: ...  # noqa: D102

    @property
    def policy(self) -> str: ...  # noqa: D102


class Queues(Protocol):
    """Operations on queues."""

    def of_node(self, tx: Transaction, node: int) -> Queue | None:
        """Return the queue of a node, given by number; `None` if it is not a queue node."""

    def of_share(self, tx: Transaction, share: str, filter: str) -> Queue | None:
        """Return the queue of a share; `None` if it does not exist."""

    def add_for_share(
        self, tx: Transaction, share: str, filter: str, policy: QueuePolicy, owner: str
    ) -> Queue:
        """Create the queue of a share; `owner` is the bare JID of its first member."""

    def configure_node(self, context: Context, tx: Transaction, node: Node) -> None:
        """Create, change or remove the queue of a node according to the node's configuration."""

    def purge_node(self, context: Context, tx: Transaction, node: Node) -> int:
        """Delete all items of a queue node; return the number of items."""

    def remove_node(self, context: Context, tx: Transaction, node: Node) -> None:
        """Remove the queue of a node that is about to be deleted, if it has one."""

    def existing_item(
        self,
        tx: Transaction,
        sender: Sender,
        node: Node,
        item_id: str,
        payload: bytes,
        content_type: str,
    ) -> ExistingItem | None:
        """Return the item of a queue node that has the ItemID of an item from `sender`."""

    def exceeded_limit(
        self,
        context: Context,
        tx: Transaction,
        sender: Sender,
        node: Node,
        item_id: str,
        payload: bytes,
        attributes: ItemAttributes,
        shares: Sequence[int],
    ) -> ExceededLimit | None:
        """Return the limit that an item would exceed, or `None`: of the queue of its node if this
        is a queue node, else of the queues of shares (given by number)."""

    def delete_item(
        self, context: Context, tx: Transaction, sender: Sender, node: Node, item_id: str
    ) -> None:
        """Delete an item of a queue node; raises a `ServiceError` if the sender may not."""

    def join(self, context: Context, tx: Transaction, subscription: Subscription) -> None:
        """Add a subscription to its queue's members, or apply its changed options."""

    def end_membership(
        self, context: Context, tx: Transaction, subscription: Subscription, reason: SubscriptionEnd
    ) -> None:
        """Remove a subscription from its queue's members, with the share if no member is left."""

    def release_withheld(self, context: Context, tx: Transaction, node: Node) -> None:
        """Assign a node's items that no member could access, after the access to it changed."""

    def release_all_withheld(self, context: Context, tx: Transaction) -> None:
        """Assign the items of all nodes that no member could access, after rules changed."""


def of(context: Context) -> Queues:
    """Return the operations."""
    found: Queues = context.hooks.implementations[QUEUES]
    return found
