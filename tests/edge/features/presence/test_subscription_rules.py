"""The subscription table against the tables of RFC 6121, written out again from appendix A."""

from __future__ import annotations

from itertools import product

import pytest

from edge.features.presence.rules import subscriptions
from edge.features.presence.rules.subscriptions import (
    FIELDS,
    TABLE,
    Decision,
    Direction,
    RosterFields,
    SubscriptionState,
    SubscriptionType,
    decide,
)

# Appendix A.2 and A.3: for each existing state, is it routed or delivered, and the new state ("-"
# is no change). A star is an answer of type "subscribed" in the account's name.
APPENDIX = """
A.2.1 out subscribe
None                   yes  None + Pending Out
None + Pending Out     yes  -
None + Pending In      yes  None + Pending Out+In
None + Pending Out+In  yes  -
To                     yes  -
To + Pending In        yes  -
From                   yes  From + Pending Out
From + Pending Out     yes  -
Both                   yes  -

A.2.2 out unsubscribe
None                   yes  -
None + Pending Out     yes  None
None + Pending In      yes  -
None + Pending Out+In  yes  None + Pending In
To                     yes  None
To + Pending In        yes  None + Pending In
From                   yes  -
From + Pending Out     yes  From
Both                   yes  From

A.2.3 out subscribed
None                   no   None, approved
None + Pending Out     no   None + Pending Out, approved
None + Pending In      yes  From
None + Pending Out+In  yes  From + Pending Out
To                     no   To, approved
To + Pending In        yes  Both
From                   no   -
From + Pending Out     no   -
Both                   no   -

A.2.4 out unsubscribed
None                   no   -
None + Pending Out     no   -
None + Pending In      yes  None
None + Pending Out+In  yes  None + Pending Out
To                     no   -
To + Pending In        yes  To
From                   yes  None
From + Pending Out     yes  None + Pending Out
Both                   yes  To

A.3.1 in subscribe
None                   yes  None + Pending In
None + Pending Out     yes  None + Pending Out+In
None + Pending In      no   -
None + Pending Out+In  no   -
To                     yes  To + Pending In
To + Pending In        no   -
From                   no*  -
From + Pending Out     no*  -
Both                   no*  -

A.3.2 in unsubscribe
None                   no   -
None + Pending Out     no   -
None + Pending In      yes  None
None + Pending Out+In  yes  None + Pending Out
To                     no   -
To + Pending In        yes  To
From                   yes  None
From + Pending Out     yes  None + Pending Out
Both                   yes  To

A.3.3 in subscribed
None                   no   -
None + Pending Out     yes  To
None + Pending In      no   -
None + Pending Out+In  yes  To + Pending In
To                     no   -
To + Pending In        no   -
From                   no   -
From + Pending Out     yes  Both
Both                   no   -

A.3.4 in unsubscribed
None                   no   -
None + Pending Out     yes  None
None + Pending In      no   -
None + Pending Out+In  yes  None + Pending In
To                     yes  None
To + Pending In        yes  None + Pending In
From                   no   -
From + Pending Out     yes  From
Both                   yes  From
"""

# Section 3.4: pre-approval. It is withdrawn without informing the contact, is used up by the
# request, and is not changed by other stanzas.
APPROVED = """
3.4 out subscribe
None, approved                yes  None + Pending Out, approved
None + Pending Out, approved  yes  -
To, approved                  yes  -

3.4 out unsubscribe
None, approved                yes  -
None + Pending Out, approved  yes  None, approved
To, approved                  yes  None, approved

3.4 out subscribed
None, approved                no   -
None + Pending Out, approved  no   -
To, approved                  no   -

3.4 out unsubscribed
None, approved                no   None
None + Pending Out, approved  no   None + Pending Out
To, approved                  no   To

3.4 in subscribe
None, approved                no*  From
None + Pending Out, approved  no*  From + Pending Out
To, approved                  no*  Both

3.4 in unsubscribe
None, approved                no   -
None + Pending Out, approved  no   -
To, approved                  no   -

3.4 in subscribed
None, approved                no   -
None + Pending Out, approved  yes  To, approved
To, approved                  no   -

3.4 in unsubscribed
None, approved                no   -
None + Pending Out, approved  yes  None, approved
To, approved                  yes  None, approved
"""

Row = tuple[Direction, SubscriptionType, SubscriptionState, Decision]


def rows(text: str) -> list[Row]:
    found: list[Row] = []
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        _, way, kind = head.split()
        for line in lines:
            existing, passes, new = (part.strip() for part in line.split("  ") if part.strip())
            state = SubscriptionState(existing)
            decision = Decision(
                state if new == "-" else SubscriptionState(new),
                passes == "yes",
                SubscriptionType.SUBSCRIBED if passes == "no*" else None,
            )
            found.append((Direction[way.upper()], SubscriptionType(kind), state, decision))
    return found


ROWS = rows(APPENDIX) + rows(APPROVED)


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row[0].name} {row[1].value} in {row[2].value}"
)
def test_each_stanza_changes_each_state_as_specified(row: Row) -> None:
    way, kind, state, decision = row
    assert decide(way, kind, state) == decision


def test_written_tables_are_complete() -> None:
    written = [(way, kind, state) for way, kind, state, _ in ROWS]
    assert len(written) == len(set(written))
    assert set(written) == set(product(Direction, SubscriptionType, SubscriptionState))
    assert set(TABLE) == set(written)


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
