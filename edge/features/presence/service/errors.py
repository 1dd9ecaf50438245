"""The errors of presence, subscriptions and rosters."""

from __future__ import annotations

from enum import Enum

from edge.errors import ServiceError


class Reason(Enum):
    """Reasons to refuse a request about presence or a roster."""

    OWN_SUBSCRIPTION = "an account cannot subscribe to its own presence"
    OWN_CONTACT = "an account cannot be its own contact"
    NOT_ALLOWED = "only the account itself may use its roster"
    NOT_LISTED = "the contact is not in the roster"
    ITEM_TOO_LARGE = "the contact is too large"
    ROSTER_FULL = "the roster is full, or the contact has too many unanswered requests"
    DISK_FULL = "the gateway's disk is full"
    TOO_MANY_DIRECTED = "the session has sent directed presence to too many addresses"


class PresenceError(ServiceError[Reason]):
    """The refusal of a request about presence or a roster."""
