"""The alert state is independent of the order of batches; alerts form pairs."""

from __future__ import annotations

import os
import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sync.alerts.incidents import Alert, Incident, IncidentTracker
from sync.alerts.rules import AllClear, Subject, Verdict, judge_events, judge_silence, problem
from sync.alerts.state import (
    MAX_DAYS,
    MAX_DEPTHS,
    MAX_READINGS,
    MAX_SEGMENTS,
    Event,
    FleetState,
    Segment,
)
from tests.helpers.alerting import (
    DAY,
    MINUTE,
    NOON,
    GatewayEvents,
    add_to_state,
    depth_event,
    heartbeat_event,
    reading_event,
    refusal_event,
    system_event,
)

EXAMPLES = 2_000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 15

Batch = tuple[Segment, list[Event]]

LIFE = ("start", "stop", "clock_stepped")
SYSTEM = st.one_of(
    st.builds(depth_event, st.integers(0, 3), st.integers(0, 1), queue=st.sampled_from("ab")),
    st.builds(refusal_event, st.integers(1, 60), rule=st.sampled_from("rs")),
    st.just(heartbeat_event()) | st.builds(system_event, st.sampled_from(LIFE)),
)
READINGS = st.builds(reading_event, sensor=st.sampled_from("xyz"))


@st.composite
def histories(draw: st.DrawFn) -> list[Batch]:
    """Segments of two gateways, one with a wrong clock, some delayed."""
    batches: list[Batch] = []
    for name in ("gw-001.example", "gw-002.example"):
        gateway = GatewayEvents(name, ahead=draw(st.sampled_from([0, -20 * DAY, 3 * DAY])))
        now = NOON
        for _ in range(draw(st.integers(1, 12))):
            lane, rows = draw(st.sampled_from([("system", SYSTEM), ("readings", READINGS)]))
            gateway.delay = draw(st.sampled_from([2_000, 20 * MINUTE, DAY]))
            events = []
            for event in draw(st.lists(rows, min_size=1, max_size=6)):
                now += draw(st.sampled_from([1_000, 5 * MINUTE, 30 * MINUTE, DAY]))
                events.append((now, event))
            batches.append(gateway.segment(lane, events))
            if draw(st.booleans()):
                gateway.last[lane] += 3
            if draw(st.integers(0, 9)) == 0:
                gateway.epoch, gateway.last = "01JE0000000000000000000000", {}
    return batches


def state_of(batches: list[Batch]) -> FleetState:
    state = FleetState()
    for batch in batches:
        add_to_state(state, *batch)
    return state


def plain(state: FleetState) -> object:
    return msgspec.to_builtins(state)


def verdicts(state: FleetState) -> set[Verdict]:
    now = NOON + 30 * DAY
    return {*judge_events(state, {}), *judge_silence(state, {}, now, lambda _: False, {})}


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_state_does_not_depend_on_order(batches: list[Batch], dice: random.Random) -> None:
    state = state_of(batches)
    shuffled = batches.copy()
    dice.shuffle(shuffled)
    other = state_of(shuffled)
    assert plain(other) == plain(state)
    assert verdicts(other) == verdicts(state)
    kept = msgspec.json.decode(msgspec.json.encode(state), type=FleetState)
    assert plain(kept) == plain(state)
    for gateway in state.gateways.values():
        assert max(len(gateway.system_segments), len(gateway.reading_segments)) <= MAX_SEGMENTS
        assert len(gateway.days) <= MAX_DAYS
        assert all(len(rows) <= MAX_DEPTHS for rows in gateway.queues.values())
        assert all(len(rule.hours) <= 24 * MAX_DAYS for rule in gateway.refusals.values())
        assert all(len(each.seconds) <= MAX_READINGS for each in gateway.sensors.values())


SUBJECTS = [Subject("queue_stuck", "gw.example", name) for name in ("a", "b")]
ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([1_000, 10 * MINUTE, 90 * MINUTE, 3 * DAY, 40 * DAY]),
        st.lists(st.sampled_from(["wrong", "late", "right", "unknown"]), min_size=2, max_size=2),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(ROUNDS)
def test_each_incident_is_raised_once_and_recovers_once(
    rounds: list[tuple[int, list[str], bool]],
) -> None:
    tracker, now = IncidentTracker(), NOON
    alerts: list[Alert] = []
    for pause, states, again in rounds:
        now += pause
        current: list[Verdict] = []
        for key, state in zip(SUBJECTS, states, strict=True):
            if state in ("wrong", "late"):
                current.append(problem(key, now - 500, now, "", late=state == "late"))
            elif state == "right":
                current.append(AllClear(key, now, ""))
        alerts += tracker.update(current, now)
        if again:
            kept = msgspec.json.encode(tracker.incidents())
            tracker = IncidentTracker(msgspec.json.decode(kept, type=list[Incident]))
    for key in SUBJECTS:
        mine = [message for message in alerts if message.subject == key.subject]
        last = ["raised"] * (key in tracker.active())
        pairs = ["raised", "recovered"] * (len(mine) // 2)
        assert [message.state for message in mine] == pairs + last
        raised = [message.id for message in mine if message.state == "raised"]
        recovered = [message.id for message in mine if message.state == "recovered"]
        assert len(set(raised)) == len(raised)
        assert recovered == raised[: len(recovered)]
