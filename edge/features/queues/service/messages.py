"""Messages that the queue service sends to members, for each protocol to encode."""

from __future__ import annotations

from typing import NamedTuple


class ItemDelivery(NamedTuple):
    """An item of a node for a member.

    Attributes:
        body: the payload; empty if there is none.
        publisher: the JID that the item names as its publisher, if it names one.
        redeliveries: how often the item was assigned before.
        subid: the SubID of a member of a shared subscription.
        to: the full JID of the session; `None` if the outbox addresses the message.
        id: the id of the message, if it has one.
    """

    node: str
    item: str
    body: bytes
    publisher: str | None
    redeliveries: int
    subid: str | None = None
    to: str | None = None
    id: str | None = None


class LockEnded(NamedTuple):
    """Notice that a session no longer has the lock of an item, which was deleted or unlocked."""

    node: str
    item: str
    to: str
    id: str
    is_deleted: bool
