"""A message on its way to a destination."""

from __future__ import annotations

from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.rules.access import Sender
from edge.engine.store.database import MessageBytes
from edge.jid import Jid


class Message:
    """A message on its way to a destination, with its body as it was received.

    Attributes:
        size: the bytes that it counts towards limits.
        since: the service second at which it came into custody, or `None`.
        attributes: what else its sender says of it, if it is published; among this, the content
            type of the body.
    """

    __slots__ = ("attributes", "body", "msg_id", "qos", "sender", "since", "size", "to")

    def __init__(
        self,
        sender: Sender,
        to: Jid,
        body: bytes,
        size: int,
        qos: int,
        msg_id: str | None = None,
        since: float | None = None,
        attributes: ItemAttributes = NO_ATTRIBUTES,
    ) -> None:
        self.sender = sender
        self.to = to
        self.body = body
        self.size = size
        self.qos = qos
        self.msg_id = msg_id
        self.since = since
        self.attributes = attributes

    @property
    def content(self) -> MessageBytes:
        """The message as rows store it."""
        return MessageBytes(self.body, "", self.attributes.content_type)
