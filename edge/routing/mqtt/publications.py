"""Convert publications of MQTT to attributes of items, and items to publications.

What a publisher says of its message comes back unchanged to subscribers by MQTT (MQTT 5.0, section
3.3.2.3): what `ItemAttributes` has no field for is among its properties, by the names here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil
from typing import Any, Final

from edge import content_types
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.dispatch.item_attributes import Properties as ItemProperties
from edge.mqtt.packets import NO_PROPERTIES, Properties, Property, Publish

USER: Final = "user:"
"""Prefix of the name of a user property."""

CONTENT_TYPE: Final = "content-type"
"""A property of a publication whose content type is the one of payloads without a content type."""

_KEPT: Final[dict[Property, tuple[str, Callable[[Any], Any]]]] = {
    Property.PAYLOAD_FORMAT: ("payload-format", int),
    Property.CONTENT_TYPE: (CONTENT_TYPE, str),
    Property.RESPONSE_TOPIC: ("response-topic", str),
    Property.CORRELATION_DATA: ("correlation-data", bytes),
}
"""The properties that are kept as they are: their names, and the types of their values."""

_BY_NAME: Final = {name: (key, type_) for key, (name, type_) in _KEPT.items()}


@cache
def _plain(qos: int, *, retain: bool) -> ItemAttributes:
    return ItemAttributes(content_types.UNKNOWN, qos, retain)


def attributes(qos: int, retain: bool, properties: Properties) -> ItemAttributes:
    """Return the attributes of a publication."""
    if not properties:
        return _plain(qos, retain=retain)
    content_type = properties.get(Property.CONTENT_TYPE)
    kept: list[tuple[str, str | bytes]] = []
    for key, (name, _type) in _KEPT.items():
        value = properties.get(key)
        if value is not None and (name != CONTENT_TYPE or value == content_types.UNKNOWN):
            kept.append((name, value if isinstance(value, bytes) else str(value)))
    kept += ((USER + name, value) for name, value in properties.get(Property.USER, ()))
    return ItemAttributes(
        content_type or content_types.UNKNOWN,
        qos,
        retain,
        properties.get(Property.MESSAGE_EXPIRY),
        tuple(kept),
    )


def publication(
    topic: str,
    payload: bytes,
    content_type: str,
    item_properties: ItemProperties,
    expires: float | None,
    now: Callable[[], float],
    *,
    retain: bool,
    identifier: int = 0,
) -> Publish | None:
    """Return the publication of an item, at QoS 0; `None` if the item has expired.

    Args:
        expires: the service second at which it expires.
        now: returns the present service second.
        identifier: that of the subscription, 0 for none.
    """
    has_type = content_type != content_types.UNKNOWN
    if not (item_properties or has_type or expires is not None or identifier):
        return Publish(topic, payload, 0, retain)
    found: dict[Property, Any] = {}
    if has_type:
        found[Property.CONTENT_TYPE] = content_type or content_types.XML
    if expires is not None:
        left = expires - now()
        if left <= 0:
            return None
        found[Property.MESSAGE_EXPIRY] = ceil(left)
    user = []
    for name, value in item_properties:
        if name.startswith(USER):
            user.append((name.removeprefix(USER), value))
        elif name in _BY_NAME:
            key, type_ = _BY_NAME[name]
            found[key] = type_(value)
    if identifier:
        found[Property.SUBSCRIPTION_ID] = (identifier,)
    if user:
        found[Property.USER] = tuple(user)
    return Publish(topic, payload, 0, retain, properties=found or NO_PROPERTIES)
