"""Rules of subscriptions, transcribed from appendix A of RFC 6121, and of priorities."""

from __future__ import annotations

from itertools import product

import pytest

from edge.features.presence.rules import presence, subscriptions
from edge.features.presence.rules.subscriptions import (
    FIELDS,
    STATES,
    TABLE,
    Decision,
    Direction,
    RosterFields,
    SubscriptionState,
    SubscriptionType,
    decide,
)

NAMES = {(False, False): "none", (True, False): "to", (False, True): "from", (True, True): "both"}


def expected(direction: Direction, kind: SubscriptionType, before: RosterFields) -> Decision:
    """Return the effects of a stanza by appendix A.2 and A.3 and, for pre-approval, section 3.4."""
    subscription, ask, pending, approved = before
    to, from_ = subscription in ("to", "both"), subscription in ("from", "both")
    passes, is_answered = True, False
    match direction, kind:
        case Direction.OUT, SubscriptionType.SUBSCRIBE:  # is always routed
            ask = not to
        case Direction.OUT, SubscriptionType.UNSUBSCRIBE:  # is always routed
            to = ask = False
        case Direction.OUT, SubscriptionType.SUBSCRIBED:  # approves a request, or a future one
            passes = pending
            approved = approved or not (from_ or pending)
            from_, pending = from_ or pending, False
        case Direction.OUT, SubscriptionType.UNSUBSCRIBED:
            passes = from_ or pending
            from_ = pending = approved = False
        case Direction.IN, SubscriptionType.SUBSCRIBE:  # pre-approval is used up by the request
            is_answered = from_ or approved
            passes = not (is_answered or pending)
            from_, pending, approved = is_answered, not is_answered, False
        case Direction.IN, SubscriptionType.UNSUBSCRIBE:
            passes = from_ or pending
            from_ = pending = False
        case Direction.IN, SubscriptionType.SUBSCRIBED:  # counts only as the answer to a request
            passes = ask
            to, ask = to or ask, False
        case Direction.IN, SubscriptionType.UNSUBSCRIBED:
            passes = to or ask
            to = ask = False
    after = STATES[RosterFields(NAMES[to, from_], ask, pending, approved)]
    return Decision(after, passes, SubscriptionType.SUBSCRIBED if is_answered else None)


@pytest.mark.parametrize("state", SubscriptionState)
@pytest.mark.parametrize("kind", SubscriptionType)
@pytest.mark.parametrize("direction", Direction)
def test_each_stanza_changes_each_state_as_specified(
    direction: Direction, kind: SubscriptionType, state: SubscriptionState
) -> None:
    assert decide(direction, kind, state) == expected(direction, kind, FIELDS[state])


def test_table_is_complete() -> None:
    assert set(TABLE) == set(product(Direction, SubscriptionType, SubscriptionState))


@pytest.mark.parametrize("state", SubscriptionState)
def test_fields_match_the_name_of_the_state(state: SubscriptionState) -> None:
    name, _, pending = state.value.removesuffix(", approved").partition(" + Pending ")
    assert FIELDS[state] == RosterFields(
        name.lower(), "Out" in pending, "In" in pending, state.value.endswith(", approved")
    )
    assert subscriptions.shares_presence(state) is name.startswith(("From", "Both"))


def test_request_alone_does_not_list_a_contact() -> None:
    unlisted = {state for state in SubscriptionState if not subscriptions.is_listed(state)}
    assert unlisted == {SubscriptionState.NONE, SubscriptionState.NONE_IN}


VALID = {None: 0, "": 0, "0": 0, "-128": -128, "127": 127, "+5": 5, "007": 7, " \t1\r\n": 1}
ARABIC_ONE = "\u0661"  # a digit, and no ASCII
INVALID = ["-129", "128", "1.0", "1e1", "0x1", "five", "- 1", "--1", " ", "9" * 10_000, ARABIC_ONE]


@pytest.mark.parametrize(("text", "number"), [*VALID.items(), *((text, None) for text in INVALID)])
def test_priority_is_a_small_integer(text: str | None, number: int | None) -> None:
    assert presence.priority(text) == number


def test_session_of_a_negative_priority_accepts_no_messages() -> None:
    assert [presence.accepts_messages(number) for number in (-128, -1, 0, 127)] == [
        False, False, True, True
    ]  # fmt: skip
