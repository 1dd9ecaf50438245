"""Rules of presence subscriptions: how each subscription stanza changes a roster item.

`TABLE` has a row for every state and stanza, outbound from the account or inbound to it. The states
are the nine of RFC 6121, appendix A, and three of them again with a pre-approved subscription
(section 3.4). The next request of the contact uses up a pre-approval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias


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
    account. "Pending Out": the account has requested a subscription. "Pending In": the contact has
    requested a subscription.
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
"""The roster attributes of each state; no two states have the same attributes."""

STATES: Final[Mapping[RosterFields, SubscriptionState]] = {
    fields: state for state, fields in FIELDS.items()
}
"""The state for each combination of roster attributes."""


class Decision(NamedTuple):
    """The effects of a stanza: the next state, whether it is passed on, and the automatic answer.

    An outbound stanza is passed on to the contact, an inbound one to the account's sessions.
    """

    state: SubscriptionState
    passes: bool
    answer: SubscriptionType | None = None


_Key: TypeAlias = tuple[Direction, SubscriptionType, SubscriptionState]

_NAMES: Final = ("N", "NO", "NI", "NOI", "T", "TI", "F", "FO", "B", "N*", "NO*", "T*")
_CODES: Final = dict(zip(_NAMES, SubscriptionState, strict=True))
"""The states by their names below: None, To, From, Both, pending Out or In, `*` pre-approved."""

# The next state of each state (rows) for each stanza (columns), from appendix A.2 and A.3 and
# section 3.4. `!`: the stanza is passed on. `+`: it is answered with `subscribed` instead.
_OUTBOUND: Final = """
     subscribe  subscribed  unsubscribe  unsubscribed
N    NO!        N*          N!           N
NO   NO!        NO*         N!           NO
NI   NOI!       F!          NI!          N!
NOI  NOI!       FO!         NI!          NO!
T    T!         T*          N!           T
TI   TI!        B!          NI!          T!
F    FO!        F           F!           N!
FO   FO!        FO          F!           NO!
B    B!         B           F!           T!
N*   NO*!       N*          N*!          N
NO*  NO*!       NO*         N*!          NO
T*   T*!        T*          N*!          T
"""
_INBOUND: Final = """
     subscribe  subscribed  unsubscribe  unsubscribed
N    NI!        N           N            N
NO   NOI!       T!          NO           N!
NI   NI         NI          N!           NI
NOI  NOI        TI!         NO!          NI!
T    TI!        T           T            N!
TI   TI         TI          T!           NI!
F    F+         F           N!           F
FO   FO+        B!          NO!          F!
B    B+         B           T!           F!
N*   F+         N*          N*           N*
NO*  FO+        T*!         NO*          N*!
T*   B+         T*          T*           N*!
"""


def _parse(direction: Direction, matrix: str) -> Iterator[tuple[_Key, Decision]]:
    header, *rows = matrix.strip().splitlines()
    types = [SubscriptionType(name) for name in header.split()]
    for row in rows:
        code, *cells = row.split()
        for type_, cell in zip(types, cells, strict=True):
            answer = SubscriptionType.SUBSCRIBED if "+" in cell else None
            decision = Decision(_CODES[cell.rstrip("!+")], "!" in cell, answer)
            yield (direction, type_, _CODES[code]), decision


TABLE: Final[Mapping[_Key, Decision]] = {
    **dict(_parse(Direction.OUT, _OUTBOUND)),
    **dict(_parse(Direction.IN, _INBOUND)),
}
"""The decision for each direction and type of a stanza and each state."""


def decide(direction: Direction, kind: SubscriptionType, state: SubscriptionState) -> Decision:
    """Return how a stanza changes a roster item (RFC 6121, section 3 and appendix A)."""
    return TABLE[direction, kind, state]


def shares_presence(state: SubscriptionState) -> bool:
    """Return whether the contact is subscribed to the account: "From" or "Both"."""
    return FIELDS[state].subscription in ("from", "both")


def is_listed(state: SubscriptionState) -> bool:
    """Return whether the roster contains a contact in this state.

    A contact that only requested a subscription is not listed until the account responds (sections
    3.1.3 and 3.1.5).
    """
    return state not in (SubscriptionState.NONE, SubscriptionState.NONE_IN)
