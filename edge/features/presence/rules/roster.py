"""Presence subscriptions: what each of the four stanzas does to one entry of one roster.

One table of every state and stanza, as the account sends it (`OUT`) or as it reaches the account
(`IN`). The states are the nine of RFC 6121, appendix A, and three of them once more with the
account's approval given before it was asked (section 3.4). An approval is used up by the request
that it answers. Where rows are kept, who is told, and whether somebody may ask, is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Way(Enum):
    """Which way a stanza goes, seen from the account whose roster it is."""

    OUT = "the account sends it to the contact"
    IN = "the contact has sent it to the account"


class Kind(Enum):
    """The stanza: its `type`."""

    SUBSCRIBE = "subscribe"
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBE = "unsubscribe"
    UNSUBSCRIBED = "unsubscribed"


class State(Enum):
    """What an account and a contact are to each other; named as in appendix A.1.

    "To": the account sees the contact. "From": the contact sees the account. "Pending Out": the
    account has asked. "Pending In": the contact has.
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


class Fields(NamedTuple):
    """A state as a roster has it (section 2.1.2), and whether the contact's request waits.

    `subscription` is none, to, from or both; `ask` and `approved` are the attributes' sense.
    """

    subscription: str
    ask: bool = False
    pending: bool = False
    approved: bool = False


FIELDS: Final[Mapping[State, Fields]] = {
    State.NONE: Fields("none"),
    State.NONE_OUT: Fields("none", ask=True),
    State.NONE_IN: Fields("none", pending=True),
    State.NONE_OUT_IN: Fields("none", ask=True, pending=True),
    State.TO: Fields("to"),
    State.TO_IN: Fields("to", pending=True),
    State.FROM: Fields("from"),
    State.FROM_OUT: Fields("from", ask=True),
    State.BOTH: Fields("both"),
    State.NONE_APPROVED: Fields("none", approved=True),
    State.NONE_OUT_APPROVED: Fields("none", ask=True, approved=True),
    State.TO_APPROVED: Fields("to", approved=True),
}
"""Each state's fields, and no two alike."""

STATES: Final[Mapping[Fields, State]] = {fields: state for state, fields in FIELDS.items()}
"""The other way round."""


class Decision(NamedTuple):
    """What a stanza does: the state after it, whether it goes on, and what is answered for the
    account.

    An outgoing one goes on to the contact, an incoming one to the account's sessions.
    """

    state: State
    passes: bool
    answer: Kind | None = None


def _passes(state: State) -> Decision:
    return Decision(state, True)


def _stops(state: State) -> Decision:
    return Decision(state, False)


def _granted(state: State) -> Decision:
    return Decision(state, False, Kind.SUBSCRIBED)


TABLE: Final[Mapping[tuple[Way, Kind], Mapping[State, Decision]]] = {
    (Way.OUT, Kind.SUBSCRIBE): {
        State.NONE: _passes(State.NONE_OUT),
        State.NONE_OUT: _passes(State.NONE_OUT),
        State.NONE_IN: _passes(State.NONE_OUT_IN),
        State.NONE_OUT_IN: _passes(State.NONE_OUT_IN),
        State.TO: _passes(State.TO),
        State.TO_IN: _passes(State.TO_IN),
        State.FROM: _passes(State.FROM_OUT),
        State.FROM_OUT: _passes(State.FROM_OUT),
        State.BOTH: _passes(State.BOTH),
        State.NONE_APPROVED: _passes(State.NONE_OUT_APPROVED),
        State.NONE_OUT_APPROVED: _passes(State.NONE_OUT_APPROVED),
        State.TO_APPROVED: _passes(State.TO_APPROVED),
    },
    (Way.OUT, Kind.UNSUBSCRIBE): {
        State.NONE: _passes(State.NONE),
        State.NONE_OUT: _passes(State.NONE),
        State.NONE_IN: _passes(State.NONE_IN),
        State.NONE_OUT_IN: _passes(State.NONE_IN),
        State.TO: _passes(State.NONE),
        State.TO_IN: _passes(State.NONE_IN),
        State.FROM: _passes(State.FROM),
        State.FROM_OUT: _passes(State.FROM),
        State.BOTH: _passes(State.FROM),
        State.NONE_APPROVED: _passes(State.NONE_APPROVED),
        State.NONE_OUT_APPROVED: _passes(State.NONE_APPROVED),
        State.TO_APPROVED: _passes(State.NONE_APPROVED),
    },
    (Way.OUT, Kind.SUBSCRIBED): {
        State.NONE: _stops(State.NONE_APPROVED),
        State.NONE_OUT: _stops(State.NONE_OUT_APPROVED),
        State.NONE_IN: _passes(State.FROM),
        State.NONE_OUT_IN: _passes(State.FROM_OUT),
        State.TO: _stops(State.TO_APPROVED),
        State.TO_IN: _passes(State.BOTH),
        State.FROM: _stops(State.FROM),
        State.FROM_OUT: _stops(State.FROM_OUT),
        State.BOTH: _stops(State.BOTH),
        State.NONE_APPROVED: _stops(State.NONE_APPROVED),
        State.NONE_OUT_APPROVED: _stops(State.NONE_OUT_APPROVED),
        State.TO_APPROVED: _stops(State.TO_APPROVED),
    },
    (Way.OUT, Kind.UNSUBSCRIBED): {
        State.NONE: _stops(State.NONE),
        State.NONE_OUT: _stops(State.NONE_OUT),
        State.NONE_IN: _passes(State.NONE),
        State.NONE_OUT_IN: _passes(State.NONE_OUT),
        State.TO: _stops(State.TO),
        State.TO_IN: _passes(State.TO),
        State.FROM: _passes(State.NONE),
        State.FROM_OUT: _passes(State.NONE_OUT),
        State.BOTH: _passes(State.TO),
        State.NONE_APPROVED: _stops(State.NONE),
        State.NONE_OUT_APPROVED: _stops(State.NONE_OUT),
        State.TO_APPROVED: _stops(State.TO),
    },
    (Way.IN, Kind.SUBSCRIBE): {
        State.NONE: _passes(State.NONE_IN),
        State.NONE_OUT: _passes(State.NONE_OUT_IN),
        State.NONE_IN: _stops(State.NONE_IN),
        State.NONE_OUT_IN: _stops(State.NONE_OUT_IN),
        State.TO: _passes(State.TO_IN),
        State.TO_IN: _stops(State.TO_IN),
        State.FROM: _granted(State.FROM),
        State.FROM_OUT: _granted(State.FROM_OUT),
        State.BOTH: _granted(State.BOTH),
        State.NONE_APPROVED: _granted(State.FROM),
        State.NONE_OUT_APPROVED: _granted(State.FROM_OUT),
        State.TO_APPROVED: _granted(State.BOTH),
    },
    (Way.IN, Kind.UNSUBSCRIBE): {
        State.NONE: _stops(State.NONE),
        State.NONE_OUT: _stops(State.NONE_OUT),
        State.NONE_IN: _passes(State.NONE),
        State.NONE_OUT_IN: _passes(State.NONE_OUT),
        State.TO: _stops(State.TO),
        State.TO_IN: _passes(State.TO),
        State.FROM: _passes(State.NONE),
        State.FROM_OUT: _passes(State.NONE_OUT),
        State.BOTH: _passes(State.TO),
        State.NONE_APPROVED: _stops(State.NONE_APPROVED),
        State.NONE_OUT_APPROVED: _stops(State.NONE_OUT_APPROVED),
        State.TO_APPROVED: _stops(State.TO_APPROVED),
    },
    (Way.IN, Kind.SUBSCRIBED): {
        State.NONE: _stops(State.NONE),
        State.NONE_OUT: _passes(State.TO),
        State.NONE_IN: _stops(State.NONE_IN),
        State.NONE_OUT_IN: _passes(State.TO_IN),
        State.TO: _stops(State.TO),
        State.TO_IN: _stops(State.TO_IN),
        State.FROM: _stops(State.FROM),
        State.FROM_OUT: _passes(State.BOTH),
        State.BOTH: _stops(State.BOTH),
        State.NONE_APPROVED: _stops(State.NONE_APPROVED),
        State.NONE_OUT_APPROVED: _passes(State.TO_APPROVED),
        State.TO_APPROVED: _stops(State.TO_APPROVED),
    },
    (Way.IN, Kind.UNSUBSCRIBED): {
        State.NONE: _stops(State.NONE),
        State.NONE_OUT: _passes(State.NONE),
        State.NONE_IN: _stops(State.NONE_IN),
        State.NONE_OUT_IN: _passes(State.NONE_IN),
        State.TO: _passes(State.NONE),
        State.TO_IN: _passes(State.NONE_IN),
        State.FROM: _stops(State.FROM),
        State.FROM_OUT: _passes(State.FROM),
        State.BOTH: _passes(State.FROM),
        State.NONE_APPROVED: _stops(State.NONE_APPROVED),
        State.NONE_OUT_APPROVED: _passes(State.NONE_APPROVED),
        State.TO_APPROVED: _passes(State.NONE_APPROVED),
    },
}
"""Every way, stanza and state (appendix A.2 and A.3; section 3.4)."""


def decide(way: Way, kind: Kind, state: State) -> Decision:
    """Tell what a subscription stanza does to an entry (RFC 6121, section 3 and appendix A)."""
    return TABLE[way, kind][state]


def shows(state: State) -> bool:
    """Tell whether the contact sees the account's presence: "From" or "Both"."""
    return FIELDS[state].subscription in ("from", "both")


def lists(state: State) -> bool:
    """Tell whether a state is one that only the account itself brings about: the roster has it.

    A contact that merely asks is not in the roster until the account says something to it
    (sections 3.1.3 and 3.1.5).
    """
    return state not in (State.NONE, State.NONE_IN)
