"""Errors that operations on queues raise."""

from __future__ import annotations

from enum import Enum

from edge.errors import ServiceError


class RefusalReason(Enum):
    """Reasons to refuse an operation on a queue."""

    NO_SUCH_ITEM = "there is no such item"
    LOCKED_BY_ANOTHER = "another session has locked the item"
    LOCK_ENDED = "you no longer have the lock of the item"
    NOT_ALLOWED = "you may not delete or unlock the item"
    NOT_A_QUEUE = "the node is not a queue node"
    WRONG_STATE = "the item is in the wrong state"


class QueueError(ServiceError[RefusalReason]):
    """An operation on a queue is refused."""
