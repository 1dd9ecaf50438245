"""Rules of presence subscriptions: how each subscription stanza changes a roster item.

`TABLE` has every state and stanza, outbound from the account and inbound to it. The states are the
nine of RFC 6121, appendix A, and three of them again with a pre-approved subscription (section
3.4). A pre-approval is used up by the request that it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Direction(Enum):
    """The direction of a stanza, seen from the account that owns the roster."""

    OUT = "sent by the account to the contact"
    IN = "sent by the contact to the account"


class SubscriptionType(Enum):
    """The `type` of a subscription stanza."""

    SUBSCRIBE = "subscribe"
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBE = "unsubscribe"
    UNSUBSCRIBED = "unsubscribed"


class SubscriptionState(Enum):
    """The subscriptions between an account and a contact; named as in appendix A.1.

    "To": the account is subscribed to the contact. "From": the contact is subscribed to the
    account. "Pending Out": the account has requested a subscription. "Pending In": the contact has.
    """

    NONE = "None"
    NONE_OUT = "None + Pending Out"
    NONE_IN = "None + Pending In"
    NONE_OUT_IN = "None + Pending Out+In"
    TO = "To"
    TO_IN = "To + Pending In"
    FROM = "From"
    FROM_OUT = "From + Pending Out"
    BOTH = "Both"
    NONE_APPROVED = "None, approved"
    NONE_OUT_APPROVED = "None + Pending Out, approved"
    TO_APPROVED = "To, approved"


class RosterFields(NamedTuple):
    """A state as roster attributes (section 2.1.2), and whether the contact's request is pending.

    `subscription` is `none`, `to`, `from` or `both`.
    """

    subscription: str
    ask: bool = False
    pending: bool = False
    approved: bool = False


FIELDS: Final[Mapping[SubscriptionState, RosterFields]] = {
    SubscriptionState.NONE: RosterFields("none"),
    SubscriptionState.NONE_OUT: RosterFields("none", ask=True),
    SubscriptionState.NONE_IN: RosterFields("none", pending=True),
    SubscriptionState.NONE_OUT_IN: RosterFields("none", ask=True, pending=True),
    SubscriptionState.TO: RosterFields("to"),
    SubscriptionState.TO_IN: RosterFields("to", pending=True),
    SubscriptionState.FROM: RosterFields("from"),
    SubscriptionState.FROM_OUT: RosterFields("from", ask=True),
    SubscriptionState.BOTH: RosterFields("both"),
    SubscriptionState.NONE_APPROVED: RosterFields("none", approved=True),
    SubscriptionState.NONE_OUT_APPROVED: RosterFields("none", ask=True, approved=True),
    SubscriptionState.TO_APPROVED: RosterFields("to", approved=True),
}
"""The attributes of each state; all differ."""

STATES: Final[Mapping[RosterFields, SubscriptionState]] = {
    fields: state for state, fields in FIELDS.items()
}
"""The state of each combination of attributes."""


class Decision(NamedTuple):
    """The effects of a stanza: the next state, whether it is passed on, and an automatic answer.

    An outbound stanza is passed on to the contact, an inbound one to the account's sessions.
    """

    state: SubscriptionState
    passes: bool
    answer: SubscriptionType | None = None


def _passes(state: SubscriptionState) -> Decision:
    return Decision(state, True)


def _stops(state: SubscriptionState) -> Decision:
    return Decision(state, False)


def _granted(state: SubscriptionState) -> Decision:
    return Decision(state, False, SubscriptionType.SUBSCRIBED)


TABLE: Final[Mapping[tuple[Direction, SubscriptionType], Mapping[SubscriptionState, Decision]]] = {
    (Direction.OUT, SubscriptionType.SUBSCRIBE): {
        SubscriptionState.NONE: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.NONE_OUT: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.NONE_IN: _passes(SubscriptionState.NONE_OUT_IN),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.NONE_OUT_IN),
        SubscriptionState.TO: _passes(SubscriptionState.TO),
        SubscriptionState.TO_IN: _passes(SubscriptionState.TO_IN),
        SubscriptionState.FROM: _passes(SubscriptionState.FROM_OUT),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.FROM_OUT),
        SubscriptionState.BOTH: _passes(SubscriptionState.BOTH),
        SubscriptionState.NONE_APPROVED: _passes(SubscriptionState.NONE_OUT_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _passes(SubscriptionState.NONE_OUT_APPROVED),
        SubscriptionState.TO_APPROVED: _passes(SubscriptionState.TO_APPROVED),
    },
    (Direction.OUT, SubscriptionType.UNSUBSCRIBE): {
        SubscriptionState.NONE: _passes(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT: _passes(SubscriptionState.NONE),
        SubscriptionState.NONE_IN: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.TO: _passes(SubscriptionState.NONE),
        SubscriptionState.TO_IN: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.FROM: _passes(SubscriptionState.FROM),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.FROM),
        SubscriptionState.BOTH: _passes(SubscriptionState.FROM),
        SubscriptionState.NONE_APPROVED: _passes(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _passes(SubscriptionState.NONE_APPROVED),
        SubscriptionState.TO_APPROVED: _passes(SubscriptionState.NONE_APPROVED),
    },
    (Direction.OUT, SubscriptionType.SUBSCRIBED): {
        SubscriptionState.NONE: _stops(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT: _stops(SubscriptionState.NONE_OUT_APPROVED),
        SubscriptionState.NONE_IN: _passes(SubscriptionState.FROM),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.FROM_OUT),
        SubscriptionState.TO: _stops(SubscriptionState.TO_APPROVED),
        SubscriptionState.TO_IN: _passes(SubscriptionState.BOTH),
        SubscriptionState.FROM: _stops(SubscriptionState.FROM),
        SubscriptionState.FROM_OUT: _stops(SubscriptionState.FROM_OUT),
        SubscriptionState.BOTH: _stops(SubscriptionState.BOTH),
        SubscriptionState.NONE_APPROVED: _stops(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _stops(SubscriptionState.NONE_OUT_APPROVED),
        SubscriptionState.TO_APPROVED: _stops(SubscriptionState.TO_APPROVED),
    },
    (Direction.OUT, SubscriptionType.UNSUBSCRIBED): {
        SubscriptionState.NONE: _stops(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT: _stops(SubscriptionState.NONE_OUT),
        SubscriptionState.NONE_IN: _passes(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.TO: _stops(SubscriptionState.TO),
        SubscriptionState.TO_IN: _passes(SubscriptionState.TO),
        SubscriptionState.FROM: _passes(SubscriptionState.NONE),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.BOTH: _passes(SubscriptionState.TO),
        SubscriptionState.NONE_APPROVED: _stops(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT_APPROVED: _stops(SubscriptionState.NONE_OUT),
        SubscriptionState.TO_APPROVED: _stops(SubscriptionState.TO),
    },
    (Direction.IN, SubscriptionType.SUBSCRIBE): {
        SubscriptionState.NONE: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.NONE_OUT: _passes(SubscriptionState.NONE_OUT_IN),
        SubscriptionState.NONE_IN: _stops(SubscriptionState.NONE_IN),
        SubscriptionState.NONE_OUT_IN: _stops(SubscriptionState.NONE_OUT_IN),
        SubscriptionState.TO: _passes(SubscriptionState.TO_IN),
        SubscriptionState.TO_IN: _stops(SubscriptionState.TO_IN),
        SubscriptionState.FROM: _granted(SubscriptionState.FROM),
        SubscriptionState.FROM_OUT: _granted(SubscriptionState.FROM_OUT),
        SubscriptionState.BOTH: _granted(SubscriptionState.BOTH),
        SubscriptionState.NONE_APPROVED: _granted(SubscriptionState.FROM),
        SubscriptionState.NONE_OUT_APPROVED: _granted(SubscriptionState.FROM_OUT),
        SubscriptionState.TO_APPROVED: _granted(SubscriptionState.BOTH),
    },
    (Direction.IN, SubscriptionType.UNSUBSCRIBE): {
        SubscriptionState.NONE: _stops(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT: _stops(SubscriptionState.NONE_OUT),
        SubscriptionState.NONE_IN: _passes(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.TO: _stops(SubscriptionState.TO),
        SubscriptionState.TO_IN: _passes(SubscriptionState.TO),
        SubscriptionState.FROM: _passes(SubscriptionState.NONE),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.NONE_OUT),
        SubscriptionState.BOTH: _passes(SubscriptionState.TO),
        SubscriptionState.NONE_APPROVED: _stops(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _stops(SubscriptionState.NONE_OUT_APPROVED),
        SubscriptionState.TO_APPROVED: _stops(SubscriptionState.TO_APPROVED),
    },
    (Direction.IN, SubscriptionType.SUBSCRIBED): {
        SubscriptionState.NONE: _stops(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT: _passes(SubscriptionState.TO),
        SubscriptionState.NONE_IN: _stops(SubscriptionState.NONE_IN),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.TO_IN),
        SubscriptionState.TO: _stops(SubscriptionState.TO),
        SubscriptionState.TO_IN: _stops(SubscriptionState.TO_IN),
        SubscriptionState.FROM: _stops(SubscriptionState.FROM),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.BOTH),
        SubscriptionState.BOTH: _stops(SubscriptionState.BOTH),
        SubscriptionState.NONE_APPROVED: _stops(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _passes(SubscriptionState.TO_APPROVED),
        SubscriptionState.TO_APPROVED: _stops(SubscriptionState.TO_APPROVED),
    },
    (Direction.IN, SubscriptionType.UNSUBSCRIBED): {
        SubscriptionState.NONE: _stops(SubscriptionState.NONE),
        SubscriptionState.NONE_OUT: _passes(SubscriptionState.NONE),
        SubscriptionState.NONE_IN: _stops(SubscriptionState.NONE_IN),
        SubscriptionState.NONE_OUT_IN: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.TO: _passes(SubscriptionState.NONE),
        SubscriptionState.TO_IN: _passes(SubscriptionState.NONE_IN),
        SubscriptionState.FROM: _stops(SubscriptionState.FROM),
        SubscriptionState.FROM_OUT: _passes(SubscriptionState.FROM),
        SubscriptionState.BOTH: _passes(SubscriptionState.FROM),
        SubscriptionState.NONE_APPROVED: _stops(SubscriptionState.NONE_APPROVED),
        SubscriptionState.NONE_OUT_APPROVED: _passes(SubscriptionState.NONE_APPROVED),
        SubscriptionState.TO_APPROVED: _passes(SubscriptionState.NONE_APPROVED),
    },
}
"""Every direction, stanza and state (appendix A.2 and A.3; section 3.4)."""


def decide(way: Direction, kind: SubscriptionType, state: SubscriptionState) -> Decision:
    """Return how a subscription stanza changes a roster item (RFC 6121, section 3 and appendix
    A).
    """
    return TABLE[way, kind][state]


def shares_presence(state: SubscriptionState) -> bool:
    """Return whether the contact is subscribed to the account: "From" or "Both"."""
    return FIELDS[state].subscription in ("from", "both")


def is_listed(state: SubscriptionState) -> bool:
    """Return whether a state makes the item a part of the roster.

    A contact that only requested a subscription is not listed until the account responds (sections
    3.1.3 and 3.1.5).
    """
    return state not in (SubscriptionState.NONE, SubscriptionState.NONE_IN)
