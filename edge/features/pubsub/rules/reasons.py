"""Reasons for which the publish-subscribe service refuses a request."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Reasons to refuse a request; the value is the text of the stanza error."""

    # rights
    FORBIDDEN = "your affiliation with the node does not allow this"
    NOT_ALLOWED_BY_RULE = "no rule in [[access]] allows this"
    CLOSED_NODE = "the node admits only affiliated accounts"
    PRESENCE_SUBSCRIPTION_REQUIRED = "the node admits only subscribers to an owner's presence"
    NOT_IN_ROSTER_GROUP = "the node admits only accounts in certain groups of an owner's roster"

    # nodes
    NODE_REQUIRED = "the request must name a node"
    NODE_NOT_FOUND = "the node does not exist"
    NODE_EXISTS = "the node exists already"
    INVALID_NODE_NAME = "the name of the node is invalid"
    TOO_MANY_NODES = "there are too many nodes"
    INVALID_CONFIGURATION = "the configuration is invalid"
    UNSUPPORTED_ACCESS_MODEL = "the access model is not supported"
    NOT_PERSISTENT = "the node stores no items"
    IS_QUEUE = "the items of a queue cannot be retrieved"
    INVALID_AFFILIATION = "the affiliation is invalid"
    TOO_MANY_AFFILIATIONS = "the node has too many affiliations"

    # publications and items
    PRECONDITION_NOT_MET = "the node's configuration differs from the publish options"
    TOO_MANY_ITEMS = "a publication must have at most one item"
    ITEM_REQUIRED = "the node requires an item"
    ITEM_FORBIDDEN = "the node neither stores items nor sends payloads; publish without an item"
    PAYLOAD_REQUIRED = "the node stores no items, so an item needs a payload"
    INVALID_PAYLOAD = "the payload is invalid"
    UNREADABLE_PAYLOAD = "the payload cannot be read"
    ITEM_NOT_FOUND = "the item does not exist"
    ITEM_EXISTS = "the queue has another item with this ItemID, which waits or is locked"
    LIMIT_EXCEEDED = "a limit is exceeded"

    # subscriptions
    SHARES_DISABLED = "shared subscriptions are disabled"
    INVALID_FILTER = "the filter is invalid"
    INVALID_SUBSCRIBER = "the JID must be your bare JID or your own full JID"
    NOT_SUBSCRIBED = "the JID is not subscribed"
    INVALID_SUBID = "the JID's subscription has another SubID"
    INVALID_OPTIONS = "the options are invalid"
    CONFIGURATION_REQUIRED = "a subscription to a queue node must set pubsub#queue_requests"
    POLICY_CONFLICT = "the share has another policy"
    TOO_MANY_SUBSCRIPTIONS = "there are too many subscriptions"
    SUBSCRIPTION_NOT_ACCEPTABLE = "the JID cannot be subscribed"
