"""The outbox's transitions, compared with a transcribed protocol table, and the planner."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.engine.rules.quota import Usage
from edge.features.outbox import rules
from edge.features.outbox.rules import (
    BOUND,
    TABLE,
    TERMINAL,
    Action,
    Candidate,
    Input,
    Level,
    SessionWindow,
    State,
)
from tests.helpers import diagrams

WINDOW = Usage(8, 64 * 1024)
LIVE = [state for state in State if state not in TERMINAL]

# The next state and action for each input of each state; `.` is no transition.
# Inputs: send, send plain, received, empty result, wait error, final error, no answer in time,
# no attempts left, expired, session lost.
ROWS = {
    (2, "queued"): "offered! plain! . . . . . . failed .",
    (2, "offered"): "offered! plain! received . offered~ failed offered! failed failed offered-",
    (2, "received"): "released! . . . . . . . failed .",
    (2, "released"): "released! . . done released~ doubt released! doubt doubt released-",
    (2, "plain"): "plain! plain! . done . . . doubt doubt plain-",
    (1, "queued"): "offered! plain! . . . . . . failed .",
    (1, "offered"): "repeated! plain! . done offered~ failed repeated! doubt doubt offered-",
    (1, "repeated"): "repeated! plain! . done repeated~ doubt repeated! doubt doubt repeated-",
    (1, "plain"): "plain! plain! . done . . . doubt doubt plain-",
}
MARKS = {Action.NONE: "", Action.SEND: "!", Action.DEFER: "~", Action.REFUND_ATTEMPT: "-"}


def describe(level: int, state: str, event: Input) -> str:
    transition = rules.transition(level, state, event)
    if transition is None:
        return "."
    return transition.state.removeprefix("in ") + MARKS[transition.action]


@pytest.mark.parametrize(("level", "state"), ROWS)
def test_each_input_leads_to_the_state_of_the_protocol(level: int, state: str) -> None:
    found = [describe(level, state, event) for event in Input]
    assert found == ROWS[level, state].split()


def test_every_state_has_its_transitions() -> None:
    assert set(ROWS) == {(level, state) for level in Level for state in TABLE[level]}
    for level in Level:
        reached = {
            transition.state for rows in TABLE[level].values() for transition in rows.values()
        }
        assert reached | {State.QUEUED} == set(TABLE[level]) | TERMINAL


def candidate(
    row: int, state: State = State.QUEUED, source: str = "a", **other: object
) -> Candidate:
    fields: dict[str, object] = {"level": Level.ASSURED, "bytes": 100}
    return Candidate(row=row, source=source, state=state, **(fields | other))  # type: ignore[arg-type]


def plan_rows(
    *candidates: Candidate, send: Input | None = Input.SEND, window: Usage = WINDOW
) -> list[int]:
    return rules.plan(candidates, send, window)


BEING_RELEASED = candidate(1, State.RELEASED, in_flight=True)
ASKED_TO_WAIT = candidate(5, State.OFFERED, deferred=True)


@pytest.mark.parametrize(
    ("candidates", "send", "rows"),
    [
        # the first message of each source is offered, the next when the one before is received
        ([candidate(1), candidate(2, source="b")], Input.SEND, [1, 2]),
        ([candidate(1), candidate(2)], Input.SEND, [1]),
        ([candidate(1, State.OFFERED, in_flight=True), candidate(2)], Input.SEND, []),
        ([BEING_RELEASED, candidate(2)], Input.SEND, [2]),
        # a message is released when earlier ones of its source are finished
        ([BEING_RELEASED, candidate(2, State.RECEIVED)], Input.SEND, []),
        ([BEING_RELEASED, candidate(2, State.RECEIVED, "b")], Input.SEND, [2]),
        ([candidate(2, State.RECEIVED)], Input.SEND, [2]),
        # without an accepting session, only messages that belong to a session or are for one are
        # sent; that one may have a negative priority (RFC 6121, 8.5.3)
        ([candidate(1, State.OFFERED), candidate(2, source="b")], None, []),
        ([candidate(1), candidate(3, State.RELEASED, "c")], None, [3]),
        ([candidate(4, State.RECEIVED)], None, [4]),
        ([candidate(1), candidate(2, source="b", own=Input.SEND)], None, [2]),
        # sent messages resume first, in order
        (
            [candidate(1), candidate(5, State.RELEASED, "b"), candidate(4, State.OFFERED, "c")],
            Input.SEND,
            [4, 5, 1],
        ),
        # a message with which the device asked to wait blocks later first offers only
        ([ASKED_TO_WAIT, candidate(3, source="b"), candidate(6, source="c")], Input.SEND, [3]),
        ([ASKED_TO_WAIT, candidate(6, State.RELEASED, "b")], Input.SEND, [6]),
        ([ASKED_TO_WAIT, candidate(7, State.OFFERED, "b")], Input.SEND, [7]),
        ([ASKED_TO_WAIT, candidate(8, State.RECEIVED, "b")], Input.SEND, [8]),
    ],
)
def test_planner_chooses_the_messages_to_send(
    candidates: list[Candidate], send: Input | None, rows: list[int]
) -> None:
    assert plan_rows(*candidates, send=send) == rows


@pytest.mark.parametrize("send", [Input.SEND, Input.SEND_PLAIN])
def test_single_step_delivery_waits_for_all_earlier_messages(send: Input) -> None:
    level = Level.ACKNOWLEDGED if send is Input.SEND else Level.ASSURED
    for state in (State.QUEUED, State.OFFERED, State.PLAIN):
        second = candidate(2, state, level=level)
        assert plan_rows(BEING_RELEASED, second, send=send) == []
        assert plan_rows(second, send=send) == [2]


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("send", [Input.SEND, Input.SEND_PLAIN, None])
def test_decision_for_one_message_agrees_with_the_planner(state: State, send: Input | None) -> None:
    inputs = (None, Input.SEND, Input.SEND_PLAIN)
    for in_flight, deferred, own in product([False, True], [False, True], inputs):
        one = candidate(5, state, in_flight=in_flight, deferred=deferred, own=own)
        assert rules.may_send_alone(one, send) == (plan_rows(one, send=send) == [5])


def test_window_limits_sent_messages_but_allows_one() -> None:
    candidates = [candidate(row, source=str(row)) for row in range(1, 12)]
    assert plan_rows(*candidates) == list(range(1, 9))
    assert plan_rows(*candidates, window=Usage(8, 250)) == [1, 2]
    assert plan_rows(*candidates, window=Usage(8, 10)) == [1]
    waiting = candidate(1, State.OFFERED, "x", in_flight=True, bytes=200)
    assert plan_rows(waiting, *candidates[1:], window=Usage(8, 250)) == []


OWN_WINDOWS = (
    SessionWindow("valve@gw.example/one", Usage(3, 60_000), 4, ordered=True),
    SessionWindow("valve@gw.example/two", Usage(5, 100_000), None, ordered=False),
)


def lists_of_candidates(
    session: st.SearchStrategy[SessionWindow | None], turn: st.SearchStrategy[int]
) -> st.SearchStrategy[list[Candidate]]:
    one = st.builds(
        Candidate,
        row=st.integers(1, 40),
        source=st.sampled_from("abc"),
        level=st.sampled_from(Level),
        state=st.sampled_from(LIVE),
        bytes=st.integers(1, 50_000),
        in_flight=st.booleans(),
        deferred=st.booleans(),
        own=st.sampled_from([None, Input.SEND, Input.SEND_PLAIN]),
        turn=turn,
        session=session,
        joins=st.just(False),
    )
    return st.lists(one, max_size=12, unique_by=lambda found: found.row)


CANDIDATES = lists_of_candidates(st.none(), st.just(0))
WITH_OWN_WINDOWS = lists_of_candidates(st.sampled_from([None, *OWN_WINDOWS]), st.integers(0, 9))
SENDS = st.sampled_from([None, Input.SEND, Input.SEND_PLAIN])


@given(CANDIDATES, SENDS)
def test_chosen_messages_may_be_sent_and_overtake_none_of_their_source(
    candidates: list[Candidate], send: Input | None
) -> None:
    by_row = {found.row: found for found in candidates}
    for row in rules.plan(candidates, send, WINDOW):
        chosen = by_row[row]
        assert not chosen.in_flight
        assert not chosen.deferred
        assert chosen.state in BOUND or (chosen.own or send) is not None
        earlier = [one for one in candidates if one.source == chosen.source and one.row < row]
        if chosen.state == State.RECEIVED or (
            chosen.state == State.QUEUED and chosen.level == Level.ACKNOWLEDGED
        ):
            assert not earlier
        elif chosen.state == State.QUEUED:
            assert all(one.state in BOUND for one in earlier)


@given(CANDIDATES, st.sampled_from([Input.SEND, Input.SEND_PLAIN]))
def test_plan_never_deadlocks(candidates: list[Candidate], send: Input) -> None:
    """The earliest message of a source waits for no other message."""
    if candidates and not any(found.in_flight or found.deferred for found in candidates):
        assert rules.plan(candidates, send, WINDOW)


@given(CANDIDATES)
def test_received_message_is_released_while_others_are_held(candidates: list[Candidate]) -> None:
    chosen = rules.plan(candidates, Input.SEND, WINDOW)
    for found in candidates:
        first = min(other.row for other in candidates if other.source == found.source)
        idle = not found.in_flight and not found.deferred
        if found.state == State.RECEIVED and found.row == first and idle:
            assert found.row in chosen


@given(WITH_OWN_WINDOWS)
@example([candidate(row, in_flight=row == 1, session=OWN_WINDOWS[0]) for row in (1, 9)])
def test_sessions_with_lanes_have_windows_ids_and_an_order_of_their_own(
    candidates: list[Candidate],
) -> None:
    by_row = {found.row: found for found in candidates}
    chosen = [by_row[row] for row in rules.plan(candidates, Input.SEND, WINDOW)]
    for session, window in (
        (None, WINDOW),
        *((session, session.window) for session in OWN_WINDOWS),
    ):
        mine = [one for one in candidates if one.session == session]
        unfinished = [one for one in mine if one.state != State.QUEUED]
        new = [one for one in chosen if one.session == session and one.state == State.QUEUED]
        used = unfinished + new
        assert not new or used == new[:1] or len(used) <= window.messages
        assert not new or used == new[:1] or sum(one.bytes for one in used) <= window.bytes
        if session is not None and session.ids is not None:
            sent = [one for one in mine if one.in_flight or one in chosen]
            ids = [rules.message_id(one.row, session.ids) for one in sent if not one.in_flight]
            others = {rules.message_id(one.row, session.ids) for one in sent if one.in_flight}
            assert len(ids) == len({*ids} - others)
        if session is not None and session.ordered:
            received = [one for one in mine if one.state in BOUND and not one.in_flight]
            again = [one for one in chosen if one in received]
            assert again == sorted(again, key=lambda one: (one.turn, one.row))
            known = [one for one in mine if one.in_flight or one.state != State.QUEUED]
            if len({one.row % 4 for one in known}) == len(known):
                assert {one.row for one in received if not one.deferred} <= {
                    one.row for one in again
                }


def test_message_id_is_unique_among_neighbours() -> None:
    ids = [rules.message_id(row, 65_535) for row in (1, 65_534, 65_535, 65_536, 131_069)]
    assert ids == [2, 65_535, 1, 2, 65_535]


def test_diagram_shows_each_transition() -> None:
    diagram_lines = diagrams.of_outgoing_message(Level.ASSURED).splitlines()
    assert "    released --> in_doubt: final error" in diagram_lines
    assert "    offered --> offered: session lost / refund attempt" in diagram_lines
    assert len(diagram_lines) == 5 + sum(len(rows) for rows in TABLE[Level.ASSURED].values())
