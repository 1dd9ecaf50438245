"""Look up nodes and subscriptions for other features."""

from edge.features.pubsub.store import nodes, subscriptions
from edge.features.pubsub.store.nodes import Node as Node
from edge.features.pubsub.store.nodes import has_subscriber as has_subscriber
from edge.features.pubsub.store.subscriptions import Subscription as Subscription
from edge.features.pubsub.store.subscriptions import has_members as has_members
from edge.features.pubsub.store.subscriptions import invalidate_filters as invalidate_filters
from edge.features.pubsub.store.subscriptions import member_jids as member_jids
from edge.features.pubsub.store.subscriptions import members as members
from edge.features.pubsub.store.subscriptions import shares_matching as shares_matching

find_node = nodes.get
find_subscription = subscriptions.get
remove_subscription = subscriptions.remove
