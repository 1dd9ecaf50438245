"""Look up nodes and subscriptions for other features."""

from edge.features.pubsub.store.nodes import Node, has_subscriber
from edge.features.pubsub.store.nodes import get as find_node
from edge.features.pubsub.store.subscriptions import (
    Subscription,
    has_members,
    invalidate_filters,
    member_jids,
    members,
    shares_matching,
)
from edge.features.pubsub.store.subscriptions import get as find_subscription
from edge.features.pubsub.store.subscriptions import remove as remove_subscription

__all__ = [
    "Node",
    "Subscription",
    "find_node",
    "find_subscription",
    "has_members",
    "has_subscriber",
    "invalidate_filters",
    "member_jids",
    "members",
    "remove_subscription",
    "shares_matching",
]
