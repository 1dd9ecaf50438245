"""The items of shares as publications (MQTT 5.0, section 4.8.2; MQTT-234)."""

from __future__ import annotations

from collections.abc import Callable

from edge.engine.dispatch.hooks import Context, Hooks
from edge.features.queues.service.messages import ItemDelivery
from edge.mqtt.packets import Publish
from edge.routing.mqtt import MqttHooks, publications


def item(context: Context, delivery: ItemDelivery, now: Callable[[], float]) -> Publish:
    """Return the publication of an item, at QoS 0."""
    return publications.publication(
        context,
        delivery.node,
        delivery.body,
        delivery.content_type,
        delivery.properties,
        delivery.expires,
        now,
        retain=delivery.retain,
        identifiers=(delivery.identifier,) if delivery.identifier else (),
    )


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    mqtt = hooks.of(MqttHooks)
    mqtt.add(mqtt.packets, ItemDelivery, item)
