"""The sender's table against the protocol's, written out again, and what the planner promises."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.quota import Usage
from edge.features.outbox import rules
from edge.features.outbox.rules import (
    BOUND,
    TABLE,
    TERMINAL,
    Action,
    Candidate,
    Input,
    Level,
    State,
)

WINDOW = Usage(8, 64 * 1024)
LIVE = [state for state in State if state not in TERMINAL]

# For each state, what each input leads to: the next state and what is done; `.` is nothing at all.
# Inputs: its turn, its turn as a plain message, received, empty result, wait error, final error,
# no answer in time, no attempt left, expired, session gone.
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
MARKS = {Action.NONE: "", Action.SEND: "!", Action.HOLD: "~", Action.REFUND_ATTEMPT: "-"}


def written(level: Level, state: State, event: Input) -> str:
    transition = rules.transition(level, state, event)
    if transition is None:
        return "."
    return transition.state.value.removeprefix("in ") + MARKS[transition.action]


@pytest.mark.parametrize(("level", "state"), ROWS)
def test_each_input_leads_where_the_protocol_says(level: int, state: str) -> None:
    found = [written(Level(level), State(state), event) for event in Input]
    assert found == ROWS[level, state].split()


def test_every_state_that_a_message_can_be_in_has_its_inputs() -> None:
    assert set(ROWS) == {(level.value, state.value) for level in Level for state in TABLE[level]}
    for level in Level:
        reached = {
            transition.state for rows in TABLE[level].values() for transition in rows.values()
        }
        assert reached | {State.QUEUED} == set(TABLE[level]) | TERMINAL


@pytest.mark.parametrize("level", Level)
def test_what_was_received_is_never_offered_again(level: Level) -> None:
    after = {State.RECEIVED, State.RELEASED}
    for state, event in product(after & set(TABLE[level]), Input):
        transition = rules.transition(level, state, event)
        assert transition is None or transition.state in after | TERMINAL


@pytest.mark.parametrize("level", Level)
def test_what_may_have_been_delivered_never_just_fails(level: Level) -> None:
    """It was released, or sent more than once, or as a plain message: then it is in doubt."""
    for state, event in product({State.RELEASED, State.REPEATED, State.PLAIN}, Input):
        if state in TABLE[level]:
            transition = rules.transition(level, state, event)
            assert transition is None or transition.state is not State.FAILED


@pytest.mark.parametrize("level", Level)
def test_every_state_ends_with_time(level: Level) -> None:
    for state in TABLE[level]:
        transition = rules.transition(level, state, Input.EXPIRED)
        assert transition is not None
        assert transition.state in TERMINAL


# The planner.


def line(row: int, state: State = State.QUEUED, source: str = "a", **other: object) -> Candidate:
    fields: dict[str, object] = {
        "level": Level.ASSURED,
        "bytes": 100,
        "session_bound": state in BOUND,
    }
    return Candidate(row=row, source=source, state=state, **(fields | other))  # type: ignore[arg-type]


def planned(
    *lines: Candidate, turn: Input | None = Input.SEND, window: Usage = WINDOW
) -> list[int]:
    return rules.plan(lines, turn, window)


def test_the_first_of_each_source_is_offered_and_the_next_when_it_is_received() -> None:
    assert planned(line(1), line(2, source="b")) == [1, 2]
    assert planned(line(1), line(2)) == [1]
    assert planned(line(1, State.OFFERED, in_flight=True), line(2)) == []
    assert planned(line(1, State.RELEASED, in_flight=True), line(2)) == [2]


def test_a_message_is_released_when_those_before_it_are_over() -> None:
    first = line(1, State.RELEASED, in_flight=True)
    assert planned(first, line(2, State.RECEIVED)) == []
    assert planned(first, line(2, State.RECEIVED, source="b")) == [2]
    assert planned(line(2, State.RECEIVED)) == [2]


@pytest.mark.parametrize("turn", [Input.SEND, Input.SEND_PLAIN])
def test_what_arrives_by_being_sent_waits_for_all_before_it(turn: Input) -> None:
    first = line(1, State.RELEASED, in_flight=True)
    level = Level.ACKNOWLEDGED if turn is Input.SEND else Level.ASSURED
    for state in (State.QUEUED, State.OFFERED, State.PLAIN):
        second = line(2, state, level=level)
        assert planned(first, second, turn=turn) == []
        assert planned(second, turn=turn) == [2]


def test_nobody_to_take_it() -> None:
    """What belongs to a session goes to that; all else waits for one that takes it."""
    lines = line(1, State.OFFERED), line(2, source="b"), line(3, State.RELEASED, "c")
    assert planned(*lines, turn=None) == [3]
    assert planned(line(4, State.RECEIVED), turn=None) == [4]


def test_what_was_on_its_way_resumes_first_and_in_order() -> None:
    lines = line(1, source="new"), line(5, State.RELEASED), line(4, State.OFFERED, "b")
    assert planned(*lines) == [4, 5, 1]


def test_what_belongs_to_a_session_that_is_not_there_holds_back_nobody() -> None:
    gone = (
        line(1, State.RELEASED, session_bound=False),
        line(2, State.RECEIVED, session_bound=False, held=True),
    )
    assert planned(*gone, line(3), window=Usage(1, 100)) == [3]


def test_a_request_to_wait_holds_back_first_offers_behind_it_and_nothing_on_its_way() -> None:
    held = line(5, State.OFFERED, held=True)
    others = (
        line(3, source="earlier"),
        line(6, State.RELEASED, "b"),
        line(7, State.OFFERED, "c"),
        line(8, State.RECEIVED, "d"),
        line(9, source="e"),
    )
    assert planned(held, *others) == [6, 7, 8, 3]


def test_so_many_are_on_their_way_and_one_always_may_be() -> None:
    lines = [line(row, source=str(row)) for row in range(1, 12)]
    assert planned(*lines) == list(range(1, 9))
    assert planned(*lines, window=Usage(8, 250)) == [1, 2]
    assert planned(*lines, window=Usage(8, 10)) == [1]
    waiting = line(1, State.OFFERED, "x", in_flight=True, bytes=200)
    assert planned(waiting, *lines[1:], window=Usage(8, 250)) == []


LINES = st.lists(
    st.builds(
        Candidate,
        row=st.integers(1, 40),
        source=st.sampled_from("abc"),
        level=st.sampled_from(Level),
        state=st.sampled_from(LIVE),
        bytes=st.integers(1, 50_000),
        session_bound=st.booleans(),
        in_flight=st.booleans(),
        held=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda found: found.row,
)
TURNS = st.sampled_from([None, Input.SEND, Input.SEND_PLAIN])


@given(LINES, TURNS)
def test_what_is_chosen_may_be_sent_in_its_state(
    lines: list[Candidate], turn: Input | None
) -> None:
    by_row = {found.row: found for found in lines}
    for row in rules.plan(lines, turn, WINDOW):
        chosen = by_row[row]
        assert not chosen.in_flight
        assert not chosen.held
        if chosen.state in BOUND:
            assert chosen.session_bound
        else:
            assert turn is not None


@given(LINES, TURNS)
def test_no_message_overtakes_another_of_its_source(
    lines: list[Candidate], turn: Input | None
) -> None:
    by_row = {found.row: found for found in lines}
    for row in rules.plan(lines, turn, WINDOW):
        chosen = by_row[row]
        earlier = [
            found
            for found in lines
            if found.source == chosen.source and found.row < row
            if found.state not in BOUND or found.session_bound
        ]
        if chosen.state is State.RECEIVED or (
            chosen.state is State.QUEUED and chosen.level is Level.ACKNOWLEDGED
        ):
            assert not earlier
        elif chosen.state is State.QUEUED:
            assert all(found.state in BOUND for found in earlier)


@given(LINES, st.sampled_from([Input.SEND, Input.SEND_PLAIN]))
def test_something_is_always_sent_under_way_or_waiting_for_its_time(
    lines: list[Candidate], turn: Input
) -> None:
    """No set of messages holds itself back for ever: the earliest of a source waits for nobody."""
    there = [found for found in lines if found.session_bound or found.state not in BOUND]
    if there and not any(found.in_flight or found.held for found in there):
        assert rules.plan(lines, turn, WINDOW)


@given(LINES)
def test_what_is_received_is_released_whatever_the_device_asked_to_wait_with(
    lines: list[Candidate],
) -> None:
    chosen = rules.plan(lines, Input.SEND, WINDOW)
    there = [found for found in lines if found.session_bound or found.state not in BOUND]
    for found in there:
        first = min(other.row for other in there if other.source == found.source)
        idle = not found.in_flight and not found.held
        if found.state is State.RECEIVED and found.row == first and idle:
            assert found.row in chosen


def test_the_diagram_shows_each_transition() -> None:
    drawn = rules.diagram(Level.ASSURED).splitlines()
    assert "    released --> in_doubt: final error" in drawn
    assert "    offered --> offered: session lost / refund attempt" in drawn
    assert len(drawn) == 5 + sum(len(rows) for rows in TABLE[Level.ASSURED].values())
