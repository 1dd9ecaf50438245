from __future__ import annotations

import itertools

import pytest

from firmware_sim.device import receiver_rules
from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.sender_rules import (
    ENDED,
    IN_FLIGHT,
    LIVE,
    TRANSITIONS,
    Action,
    Input,
    Level,
    Message,
    State,
    Transition,
    advance,
    backoff,
    diagram,
    interrupted,
    refusal,
    transmitted,
)
from tests.helpers.guide_examples import GUIDE

POLICY = SendPolicy(max_attempts=3)

A, K = Level.ASSURED, Level.ACKNOWLEDGED
Q, O, R, D, F, X = State  # noqa: E741 - queued, offered, released, done, failed, in doubt

# Written by hand from the specification; all other combinations must change nothing.
EXPECTED = {
    (A, Q, Input.ONLINE): (O, Action.OFFER),
    (A, O, Input.ONLINE): (O, Action.OFFER),
    (A, O, Input.OFFLINE): (O, Action.REST),
    (A, O, Input.RECEIVED): (R, Action.DELIVER),
    (A, O, Input.WAIT): (O, Action.HOLD),
    (A, O, Input.TIMEOUT): (O, Action.OFFER),
    (A, O, Input.REFUSED): (F, Action.NONE),
    (A, O, Input.REFUSED_LATER): (F, Action.NONE),
    (A, O, Input.EXHAUSTED): (F, Action.NONE),
    (A, R, Input.ONLINE): (R, Action.DELIVER),
    (A, R, Input.OFFLINE): (R, Action.REST),
    (A, R, Input.DELIVERED): (D, Action.NONE),
    (A, R, Input.WAIT): (R, Action.HOLD),
    (A, R, Input.TIMEOUT): (R, Action.DELIVER),
    (A, R, Input.REFUSED): (X, Action.NONE),
    (A, R, Input.REFUSED_LATER): (X, Action.NONE),
    (A, R, Input.EXHAUSTED): (X, Action.NONE),
    (K, Q, Input.ONLINE): (O, Action.OFFER),
    (K, O, Input.ONLINE): (O, Action.OFFER),
    (K, O, Input.OFFLINE): (O, Action.REST),
    (K, O, Input.DELIVERED): (D, Action.NONE),
    (K, O, Input.WAIT): (O, Action.HOLD),
    (K, O, Input.TIMEOUT): (O, Action.OFFER),
    (K, O, Input.REFUSED): (F, Action.NONE),
    (K, O, Input.REFUSED_LATER): (X, Action.NONE),
    (K, O, Input.EXHAUSTED): (X, Action.NONE),
}


@pytest.mark.parametrize("level", Level)
def test_all_states_and_inputs(level: Level) -> None:
    assert TRANSITIONS[level] == {
        (state, input_): Transition(*EXPECTED.get((level, state, input_), (state, Action.NONE)))
        for state, input_ in itertools.product(State, Input)
    }


def test_state_sets_are_a_partition() -> None:
    assert set(State) == LIVE | ENDED
    assert not LIVE & ENDED
    assert IN_FLIGHT < LIVE


@pytest.mark.parametrize("input_", [Input.WAIT, Input.TIMEOUT])
@pytest.mark.parametrize(
    ("level", "state", "end"), [(A, O, F), (A, R, X), (K, O, X)], ids=lambda value: str(value)
)
def test_last_attempt_ends_the_message(
    input_: Input, level: Level, state: State, end: State
) -> None:
    last = Message(1, level, state=state, sends=3, attempts=3)
    before_last = Message(1, level, state=state, sends=9, attempts=2)
    assert advance(last, input_, POLICY)[0].state is end
    assert advance(before_last, input_, POLICY)[0] == before_last


@pytest.mark.parametrize(("sends", "end"), [(1, State.FAILED), (2, State.IN_DOUBT)])
def test_refused_acknowledged_repetition_is_in_doubt(sends: int, end: State) -> None:
    message = Message(1, K, state=O, sends=sends, attempts=1)
    assert advance(message, Input.REFUSED, POLICY)[0].state is end


def test_new_step_resets_the_counts() -> None:
    after, action = advance(Message(7, A, 10, O, sends=4, attempts=2), Input.RECEIVED, POLICY)
    assert after == Message(7, A, 10, R, sends=0, attempts=0)
    assert action is Action.DELIVER


def test_interrupted_transmission_does_not_count() -> None:
    sent = transmitted(Message(1, A, state=O))
    assert (sent.sends, sent.attempts) == (1, 1)
    cut = interrupted(sent)
    assert (cut.sends, cut.attempts) == (1, 0)
    assert interrupted(cut).attempts == 0


@pytest.mark.parametrize("error_type", ["cancel", "auth", "modify", "continue", "", "Wait"])
def test_all_errors_but_wait_end_the_message(error_type: str) -> None:
    assert refusal(error_type) is Input.REFUSED
    assert refusal("wait") is Input.WAIT


def test_guide_contains_the_diagrams_and_states() -> None:
    text = GUIDE.read_text("utf-8")
    for drawn in (*map(diagram, Level), receiver_rules.diagram()):
        assert f"```mermaid\n{drawn}\n```\n" in text
    assert "released --> done" in diagram(Level.ASSURED)
    assert "released" not in diagram(Level.ACKNOWLEDGED)
    assert all(f"| `{state.value}` |" in text for state in State)


def test_backoff_doubles_up_to_the_cap_and_jitter_shortens_it() -> None:
    policy = SendPolicy()
    waits = [
        backoff(n, policy.retry_base, policy.retry_cap, policy.jitter, lambda: 0.0)
        for n in range(1, 12)
    ]
    assert waits[:4] == [15, 30, 60, 120]
    assert waits[-3:] == [3600, 3600, 3600]
    assert backoff(1, 16, 3600, 0.25, lambda: 0.5) == pytest.approx(14)
    assert backoff(10_000, 1, 3600, 0, lambda: 0.0) == 3600
    assert backoff(0, 1, 3600, 0, lambda: 0.0) == 1
