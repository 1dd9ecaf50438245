"""Messages that the queue service sends to members, for each protocol to encode."""

from __future__ import annotations

from typing import NamedTuple

from edge.engine.dispatch.item_attributes import Properties


class ItemDelivery(NamedTuple):
    """Delivery of an item to a member of a queue.

    Attributes:
        node: the name of the node to which the item was published.
        item: the ItemID.
        body: the payload; empty if there is none.
        publisher: the bare JID that the item names as its publisher, or `None`.
        redeliveries: how often the item was assigned before.
        subid: the SubID of a member of a shared subscription; `None` for queue nodes.
        to: the full JID of the session; `None` if the outbox adds the address.
        id: the `id` attribute of the message, or `None`.
        content_type: the content type of the payload; "" for an XML element.
        retain: whether the publication asked the node to retain the item.
        expires: the service second at which the item expires unless it is locked.
        properties: the properties of the publication.
        identifier: that of the member's subscription (`DeliveryOptions`).
    """

    node: str
    item: str
    body: bytes
    publisher: str | None
    redeliveries: int
    subid: str | None = None
    to: str | None = None
    id: str | None = None
    content_type: str = ""
    retain: bool = False
    expires: float | None = None
    properties: Properties = ()
    identifier: int = 0


class LockEnded(NamedTuple):
    """Notice that a session no longer has the lock of an item, which was deleted or unlocked."""

    node: str
    item: str
    to: str
    id: str
    is_deleted: bool
