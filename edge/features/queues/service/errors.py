"""Errors that operations on queues raise."""

from __future__ import annotations

from enum import Enum

from edge.errors import ServiceError


class RefusalReason(Enum):
    """Reasons to refuse an operation on a queue."""

    ITEM_LOCKED = "a member is working on the item"
    NO_SUCH_ITEM = "there is no such item"
    LOCKED_BY_ANOTHER = "another subscriber has locked the item"
    LOCK_ENDED = "the item is no longer locked by you"
    NOT_ALLOWED = "not allowed"
    NOT_A_QUEUE = "the node is not a queue node"
    WRONG_STATE = "the item is in another state"


class QueueError(ServiceError[RefusalReason]):
    """An operation on a queue is refused."""
