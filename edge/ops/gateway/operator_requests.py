"""The requests of the operator's commands to a running gateway, as sent over the control socket.

`edge.ops.gateway.control` sends them, and `edge.ops.gateway.operator` performs them in the gateway.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from edge.errors import FieldpostError


class SendMessage(Struct, frozen=True, tag="send"):
    """A request to send a message, as `protocol` writes it, at QoS level 0, 1 or 2.

    `to` is the recipient's address. It must be that of a queue node if there are publish `options`
    (by registered name, such as `pubsub#queue_ttl`).
    """

    to: str
    message: str
    qos: int
    options: dict[str, str] = field(default_factory=dict)
    protocol: str = "xmpp"


class CreateNode(Struct, frozen=True, tag="create"):
    """A request to create a node; `options` are by registered name, such as `pubsub#max_items`.

    If `owner` is empty, the gateway owns the node.
    """

    node: str
    owner: str = ""
    options: dict[str, list[str]] = field(default_factory=dict)


class ConfigureNode(Struct, frozen=True, tag="configure"):
    """A request to change options of a node, by registered name such as `pubsub#max_items`."""

    node: str
    options: dict[str, list[str]]


class DeleteNode(Struct, frozen=True, tag="delete"):
    """A request to delete a node with its items and subscriptions."""

    node: str


class TakeItem(Struct, frozen=True, tag="take"):
    """A request to take the next ready item of a queue node (`admin.take`)."""

    node: str


class FinishItem(Struct, frozen=True, tag="finish"):
    """A request to delete an item that `TakeItem` returned (`admin.finish`)."""

    node: str
    item: str


class Listen(Struct, frozen=True, tag="listen"):
    """A request for the items that are published to nodes whose names match one of `filters`."""

    filters: list[str]


Work: TypeAlias = SendMessage | CreateNode | ConfigureNode | DeleteNode | TakeItem | FinishItem
Request: TypeAlias = Work | Listen


class ItemReport(Struct, frozen=True):
    """A published item: its publisher's JID, and its payload, which may be empty.

    An empty `content_type` means that the payload is an XML element. `redeliveries` is the number
    of earlier deliveries, if the item is from a queue.
    """

    node: str
    item: str
    publisher: str
    payload: bytes
    redeliveries: int = 0
    content_type: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """The result of a request; `error` is the reason if the request was refused, else empty.

    `item` is the item that was taken or, for a listener, published.
    """

    error: str = ""
    item: ItemReport | None = None


class RequestRefused(FieldpostError):
    """The gateway's refusal of a request of the operator."""
