"""Convert publications of MQTT to attributes of items, and items to publications.

What a publisher says of its message comes back unchanged to subscribers by MQTT (MQTT 5.0, section
3.3.2.3): what `ItemAttributes` has no field for is among its properties, by the names here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import ceil
from typing import Any, Final

from edge import content_types
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.dispatch.item_attributes import Properties as ItemProperties
from edge.mqtt.packets import NO_PROPERTIES, Properties, Property, Publish

USER: Final = "user:"
"""Prefix of the name of a user property."""

CONTENT_TYPE: Final = "content-type"
"""A property of a publication whose content type is empty, or that of payloads without one."""

_UNSAID: Final = ("", content_types.UNKNOWN)

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
        if value is not None and (name != CONTENT_TYPE or value in _UNSAID):
            kept.append((name, value if isinstance(value, bytes) else str(value)))
    kept += ((USER + name, value) for name, value in properties.get(Property.USER, ()))
    return ItemAttributes(
        content_type or content_types.UNKNOWN,
        qos,
        retain,
        properties.get(Property.MESSAGE_EXPIRY),
        tuple(kept),
    )


@lru_cache(maxsize=4)  # one item usually goes to several subscribers
def _exported(export: Callable[[bytes], tuple[bytes, str]], payload: bytes) -> tuple[bytes, str]:
    return export(payload)


def publication(
    context: Context,
    topic: str,
    payload: bytes,
    content_type: str,
    item_properties: ItemProperties,
    expires: float | None,
    now: Callable[[], float],
    *,
    retain: bool,
    identifiers: tuple[int, ...] = (),
) -> Publish:
    """Return the publication of an item, at QoS 0. If the item has expired, its expiry is 0.

    Args:
        expires: the service second at which it expires.
        now: returns the present service second.
        identifiers: those of the subscriptions.
    """
    if payload and content_type in context.hooks.exports:
        payload, content_type = _exported(context.hooks.exports[content_type], payload)
    left = None if expires is None else max(0, ceil(expires - now()))
    return _publish(topic, payload, content_type, item_properties, left, retain, identifiers)


@lru_cache(maxsize=4)  # as above
def _publish(
    topic: str,
    payload: bytes,
    content_type: str,
    item_properties: ItemProperties,
    left: int | None,
    retain: bool,
    identifiers: tuple[int, ...],
) -> Publish:
    found: dict[Property, Any] = {}
    if content_type not in ("", content_types.UNKNOWN):
        found[Property.CONTENT_TYPE] = content_type
    if left is not None:
        found[Property.MESSAGE_EXPIRY] = left
    if identifiers:
        found[Property.SUBSCRIPTION_ID] = identifiers
    if item_properties:
        _add_properties(found, item_properties)
    return Publish(topic, payload, 0, retain, properties=found or NO_PROPERTIES)


def _add_properties(found: dict[Property, Any], item_properties: ItemProperties) -> None:
    user = []
    for name, value in item_properties:
        if name.startswith(USER):
            user.append((name.removeprefix(USER), value))
        elif name in _BY_NAME:
            key, type_ = _BY_NAME[name]
            found[key] = type_(value)
    if user:
        found[Property.USER] = tuple(user)
