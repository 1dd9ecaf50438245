"""Reasons for which the publish-subscribe service refuses a request."""

from __future__ import annotations

from enum import Enum, auto


class Reason(Enum):
    """Why a request was refused."""

    # rights
    FORBIDDEN = auto()
    CLOSED_NODE = auto()
    PRESENCE_SUBSCRIPTION_REQUIRED = auto()
    NOT_IN_ROSTER_GROUP = auto()

    # nodes
    NODE_REQUIRED = auto()
    NODE_NOT_FOUND = auto()
    NODE_EXISTS = auto()
    INVALID_NODE_NAME = auto()
    TOO_MANY_NODES = auto()
    INVALID_CONFIGURATION = auto()
    UNSUPPORTED_ACCESS_MODEL = auto()
    NOT_PERSISTENT = auto()
    IS_QUEUE = auto()
    INVALID_AFFILIATION = auto()
    TOO_MANY_AFFILIATIONS = auto()

    # publications and items
    PRECONDITION_NOT_MET = auto()
    TOO_MANY_ITEMS = auto()
    ITEM_REQUIRED = auto()
    ITEM_FORBIDDEN = auto()
    PAYLOAD_REQUIRED = auto()
    INVALID_PAYLOAD = auto()
    UNREADABLE_PAYLOAD = auto()
    ITEM_NOT_FOUND = auto()
    ITEM_LOCKED = auto()
    LIMIT_EXCEEDED = auto()

    # subscriptions
    SHARES_DISABLED = auto()
    INVALID_FILTER = auto()
    INVALID_SUBSCRIBER = auto()
    NOT_SUBSCRIBED = auto()
    INVALID_SUBID = auto()
    INVALID_OPTIONS = auto()
    CONFIGURATION_REQUIRED = auto()
    POLICY_CONFLICT = auto()
    TOO_MANY_SUBSCRIPTIONS = auto()
    SUBSCRIPTION_NOT_ACCEPTABLE = auto()
