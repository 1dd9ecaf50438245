"""Operations of queues."""

from __future__ import annotations

from edge.engine.dispatch.hooks import Hooks
from edge.features.pubsub.service.publishing import ITEM_PUBLISHED
from edge.features.pubsub.service.queueing import QUEUES, Queues
from edge.features.queues.service import queue_registry
from edge.features.queues.service.messages import ItemDelivery, LockEnded
from edge.features.queues.store.notifications import age as age_notifications
from edge.features.queues.store.queue_items import age as age_items


def register(hooks: Hooks) -> None:
    """Register what is needed even if the gateway is a component and serves no queues.

    These are the messages that rows store, the operations that publish-subscribe performs, and the
    hooks that add the time for which the gateway was off to the age of items and notifications.
    """
    hooks.store("item delivery", ItemDelivery)
    hooks.store("lock ended", LockEnded)
    operations: Queues = queue_registry
    hooks.add(hooks.implementations, QUEUES, operations)
    hooks.on(ITEM_PUBLISHED, queue_registry.enqueue)
    hooks.on_time_off.append(age_items)
    hooks.on_time_off.append(age_notifications)
