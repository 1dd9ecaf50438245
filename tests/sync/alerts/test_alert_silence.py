"""The rules for silent gateways, a silent fleet and a late ingest."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sync.alerts.rules import (
    FLEET_SILENT,
    INGEST_BEHIND,
    INGEST_BEHIND_S,
    MAX_TIMEOUT_S,
    NEW_GATEWAY_TIMEOUT_S,
    AllClear,
    LandingBacklog,
    Problem,
    Subject,
    Verdict,
    judge_silence,
    silence_timeout_ms,
)
from sync.alerts.state import FleetState, GatewayState, Segment
from sync.reports.shared.thresholds import MIN_SEALINGS, MISSED_INTERVALS, SILENCE_S
from tests.helpers.alerting import (
    EPOCH,
    HOUR,
    MINUTE,
    NOON,
    USUAL_MS,
    GatewayEvents,
    add_to_state,
    heartbeat_event,
    system_event,
)

AFTER = int(SILENCE_S * 1000)
ONE, TWO, THREE = "gw-001.example", "gw-002.example", "gw-003.example"


def fleet(minutes: dict[str, int], every: int = 5) -> FleetState:
    """Create gateways with an event at regular intervals, from noon for some minutes."""
    state = FleetState()
    for name, until in minutes.items():
        site = GatewayEvents(name)
        for at in range(0, until + 1, every):
            add_to_state(state, *site.segment("system", [(NOON + at * MINUTE, heartbeat_event())]))
    return state


def at(minutes: float) -> int:
    return NOON + round(minutes * MINUTE) + USUAL_MS


def judge(
    state: FleetState,
    now: int,
    landing: Mapping[str, LandingBacklog] | None = None,
    revoked: str = "",
    on: Mapping[Subject, int] | None = None,
) -> dict[Subject, Verdict]:
    found = judge_silence(state, landing or {}, now, lambda name: name == revoked, on or {})
    return {each.key: each for each in found}


def silent(name: str) -> Subject:
    return Subject("silent", name, name)


def problems(found: dict[Subject, Verdict]) -> dict[Subject, int]:
    return {key: each.since for key, each in found.items() if isinstance(each, Problem)}


def test_gateway_is_silent_after_its_timeout_while_others_arrive() -> None:
    state = fleet({ONE: 60, TWO: 45})
    assert problems(judge(state, at(60))) == {silent(TWO): at(45)}
    assert problems(judge(fleet({ONE: 60, TWO: 50}), at(60))) == {}
    assert isinstance(judge(state, at(60))[silent(ONE)], AllClear)


def test_stopped_or_revoked_gateway_is_not_silent() -> None:
    state = fleet({ONE: 60, TWO: 30})
    assert problems(judge(state, at(60), revoked=TWO)) == {}
    site = GatewayEvents(TWO, last={"system": 100})
    add_to_state(state, *site.segment("system", [(NOON + 31 * MINUTE, system_event("stop"))]))
    assert problems(judge(state, at(60))) == {}
    site = GatewayEvents(TWO, epoch="01JE0000000000000000000000")
    add_to_state(state, *site.segment("system", [(NOON + 32 * MINUTE, system_event("start"))]))
    assert problems(judge(state, at(60))) == {silent(TWO): at(32)}


def test_landing_arrivals_count_before_the_ingest() -> None:
    state = fleet({ONE: 60, TWO: 30})
    landing = {TWO: LandingBacklog(at(50), at(55))}
    assert problems(judge(state, at(60), landing)) == {}
    clean_stop = {TWO: LandingBacklog(at(31), at(31), stopped=True)}
    assert problems(judge(state, at(60), clean_stop)) == {INGEST_BEHIND: at(31)}
    new = judge(fleet({ONE: 120}), at(120), {THREE: LandingBacklog(at(20), at(20))})
    assert problems(new) == {silent(THREE): at(20), INGEST_BEHIND: at(20)}


def test_silent_fleet_causes_one_alert() -> None:
    state = fleet({ONE: 60, TWO: 58, THREE: 60})
    found = judge(state, at(60) + AFTER + 1)
    assert problems(found) == {FLEET_SILENT: at(60)}
    assert silent(ONE) not in found
    fault = found[FLEET_SILENT]
    assert isinstance(fault, Problem)
    assert "3 gateways" in fault.text
    assert "fieldpost-fleet serve" in fault.remedy


def test_each_gateway_has_its_timeout_again_after_a_pause() -> None:
    state = fleet({ONE: 60, TWO: 60})
    one = GatewayEvents(ONE, last={"system": 100})
    for minute in (200, 205, 210):
        add_to_state(state, *one.segment("system", [(NOON + minute * MINUTE, heartbeat_event())]))
    assert problems(judge(state, at(212))) == {}
    for minute in (215, 220):
        add_to_state(state, *one.segment("system", [(NOON + minute * MINUTE, heartbeat_event())]))
    assert problems(judge(state, at(220))) == {silent(TWO): at(60)}


def test_single_expected_gateway_is_silent_itself() -> None:
    now = at(60) + AFTER + 1
    assert problems(judge(fleet({ONE: 60}), now)) == {silent(ONE): at(60)}
    assert problems(judge(fleet({ONE: 60}), now - 1)) == {}
    both_silent = {silent(ONE): at(60), silent(TWO): at(30)}
    assert problems(judge(fleet({ONE: 60, TWO: 30}), now)) == both_silent


def merged(one: FleetState, other: FleetState) -> FleetState:
    minutes = sorted({*one.arrival_minutes, *other.arrival_minutes})
    return FleetState(gateways={**one.gateways, **other.gateways}, arrival_minutes=minutes)


def test_slow_gateway_is_silent_when_another_arrives_after_it() -> None:
    state = merged(fleet({ONE: 600, TWO: 600}, every=60), fleet({THREE: 605}))
    assert problems(judge(state, at(640))) == {}
    later = merged(fleet({ONE: 660, TWO: 600}, every=60), fleet({THREE: 605}))
    assert problems(judge(later, at(661))) == {silent(THREE): at(605)}


def test_silent_or_stopped_gateways_do_not_affect_others() -> None:
    state = merged(fleet({ONE: 600, TWO: 600}, every=60), fleet({THREE: 300}))
    on = {silent(THREE): at(300)}
    for now in (at(601), at(650), at(700)):
        assert problems(judge(state, now, on=on)) == {}
        assert silent(THREE) not in judge(state, now, on=on)
        assert problems(judge(state, now, revoked=THREE)) == {}
    slow = round(MISSED_INTERVALS * 60) + 601
    assert problems(judge(state, at(slow), on=on)) == {FLEET_SILENT: at(600)}
    returned = merged(state, fleet({THREE: 605}))
    assert isinstance(judge(returned, at(606), on=on)[silent(THREE)], AllClear)


def test_overdue_gateway_waits_for_the_others() -> None:
    state = fleet({ONE: 60, TWO: 50, THREE: 60})
    assert problems(judge(state, at(63))) == {}
    assert problems(judge(state, at(73))) == {FLEET_SILENT: at(60)}


def test_fleet_is_not_silent_while_most_are_not_overdue() -> None:
    slow = fleet({f"gw-01{number}.example": 600 for number in range(3)}, every=60)
    state = merged(slow, fleet({ONE: 595, TWO: 595}))
    assert problems(judge(state, at(630))) == {}


def test_ingest_is_behind_if_files_wait_too_long() -> None:
    state = fleet({ONE: 60})
    landing = {ONE: LandingBacklog(at(60), at(60))}
    late = int(INGEST_BEHIND_S * 1000)
    assert INGEST_BEHIND not in problems(judge(state, at(60) + late, landing))
    assert problems(judge(state, at(60) + late + 1, landing))[INGEST_BEHIND] == at(60)


@pytest.mark.parametrize(
    ("sealings", "every", "timeout_ms"),
    [
        (MIN_SEALINGS - 1, 5, NEW_GATEWAY_TIMEOUT_S * 1000),
        (MIN_SEALINGS, 5, AFTER),
        (MIN_SEALINGS - 1, 60, MISSED_INTERVALS * HOUR),
        (MIN_SEALINGS, 60, MISSED_INTERVALS * HOUR),
    ],
    ids=["new", "known", "new and slow", "slow"],
)
def test_timeout_depends_on_the_usual_interval(
    sealings: int, every: int, timeout_ms: float
) -> None:
    state = fleet({ONE: every * sealings}, every)
    assert silence_timeout_ms(state.gateways[ONE]) == timeout_ms


def test_time_between_two_epochs_is_no_interval() -> None:
    state = FleetState()
    for number in range(MIN_SEALINGS + 1):
        site = GatewayEvents(ONE, epoch=f"01JD000000000000000000000{number}")
        add_to_state(state, *site.segment("system", [(NOON + number * MINUTE, heartbeat_event())]))
    assert silence_timeout_ms(state.gateways[ONE]) == NEW_GATEWAY_TIMEOUT_S * 1000


@pytest.mark.parametrize("segments", [3, 18], ids=["new", "known"])
def test_huge_service_seconds_give_the_longest_timeout(segments: int) -> None:
    rows = [Segment(EPOCH, at, at, 0, at * 1e307, 0) for at in range(1, segments)]
    assert silence_timeout_ms(GatewayState(system_segments=rows)) == 1000 * MAX_TIMEOUT_S
