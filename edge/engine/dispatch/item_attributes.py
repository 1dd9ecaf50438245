"""Attributes of published items beside ItemID and payload, in every protocol."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

Properties: TypeAlias = tuple[tuple[str, Any], ...]
"""Names and values in the order of the publication; a name may be repeated. A value is `str` or
`bytes`, for which rows need `Any`: msgspec decodes no union of both."""

MAX_PROPERTIES: Final = 64
"""Maximum number of properties of an item; limited because each delivery of the item has them."""

MAX_BYTES: Final = 8192
"""Maximum bytes of the content type and the properties of an item."""


class ItemAttributes(NamedTuple):
    """Attributes of a publication; XMPP's publications have the defaults.

    Attributes:
        content_type: the payload's content type, such as `application/json`; "" for an XML element.
        qos: the highest quality of service at which the item is delivered.
        retain: whether the node, if it keeps items, keeps this one in place of all others, or
            deletes all if there is no payload; `None`: the node keeps it as its newest item.
        expiry: the seconds after which the item is not delivered any more; `None` for no end.
        properties: what a protocol carries from publisher to subscriber unchanged.
    """

    content_type: str = ""
    qos: int = 2
    retain: bool | None = None
    expiry: float | None = None
    properties: Properties = ()

    @property
    def size(self) -> int:
        """The bytes of the content type and the properties, which count towards the limits."""
        size = len(self.content_type.encode())
        for name, value in self.properties:
            size += len(name.encode())
            size += len(value if isinstance(value, bytes) else value.encode())
        return size


NO_ATTRIBUTES: Final = ItemAttributes()

_Rest: TypeAlias = tuple[int, bool | None, float | None, Properties]


def charge(
    overhead: int, item_id: str, publisher: str, payload: bytes, attributes: ItemAttributes
) -> int:
    """Return the bytes of an item that count towards the limits of a store, with its `overhead`."""
    size = overhead + len(item_id.encode()) + len(publisher.encode()) + len(payload)
    return size if attributes is NO_ATTRIBUTES else size + attributes.size


def find_fault(attributes: ItemAttributes) -> str:
    """Return which limit the attributes of an item exceed, or ""."""
    if len(attributes.properties) > MAX_PROPERTIES:
        return f"an item has at most {MAX_PROPERTIES} properties"
    if attributes.size > MAX_BYTES:
        return f"the content type and the properties of an item have at most {MAX_BYTES} bytes"
    return ""


def pack_message(attributes: ItemAttributes) -> bytes | None:
    """Encode the attributes of a message beside its content type for a column, which is NULL if
    they are the defaults."""
    if attributes is NO_ATTRIBUTES:
        return None
    rest = attributes[1:]
    return None if rest == NO_ATTRIBUTES[1:] else msgspec.msgpack.encode(rest)


def unpack_message(content_type: str, column: bytes | None) -> ItemAttributes:
    """Decode the attributes of a message from the columns of its content type and the others."""
    if column is None:
        return ItemAttributes(content_type) if content_type else NO_ATTRIBUTES
    return ItemAttributes(content_type, *msgspec.msgpack.decode(column, type=_Rest))


def pack(properties: Properties) -> bytes:
    """Encode properties for a column, which is NULL if there are none."""
    return msgspec.msgpack.encode(properties)


def unpack(column: bytes | None) -> Properties:
    """Decode the properties in a column."""
    return () if column is None else msgspec.msgpack.decode(column, type=Properties)
