"""The rules for stuck queues, surges of refusals and silent sensors."""

from __future__ import annotations

from typing import Any

import pytest

from sync.alerts import state as bounds
from sync.alerts.rules import (
    NEW_GATEWAY_TIMEOUT_S,
    UNMONITORED,
    AllClear,
    Problem,
    Subject,
    Verdict,
    format_duration,
    judge_events,
    judge_silence,
)
from sync.alerts.state import FleetState, forget
from sync.reports.shared.thresholds import (
    DEPTH_EVENT_S,
    DEPTH_GAP_S,
    MIN_SILENCE_S,
    SILENT_INTERVALS,
    STUCK_S,
    SURGE_MIN,
)
from tests.helpers.alerting import (
    DAY,
    GATEWAY,
    HOUR,
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

QUEUE = Subject("queue_stuck", GATEWAY, "jobs")
REFUSALS = Subject("refusals", GATEWAY, "rate")
SENSOR = Subject("sensor_silent", GATEWAY, "probe@gw.example cellar temperature")
STEP = int(DEPTH_EVENT_S * 1000)

Rows = list[tuple[int, dict[str, Any]]]


def judge(state: FleetState, site: GatewayEvents, lane: str, rows: Rows) -> dict[Subject, Any]:
    """Add each row as a segment of its own; return the verdicts."""
    for row in rows:
        add_to_state(state, *site.segment(lane, [row]))
    return {each.key: each for each in judge_events(state, {})}


def depths(count: int, start: int = NOON, **what: Any) -> Rows:
    return [(start + at * STEP, depth_event(7, **what)) for at in range(count)]


def test_queue_is_stuck_after_half_an_hour_without_delivery() -> None:
    state, site = FleetState(), GatewayEvents()
    count = int(STUCK_S * 1000 / STEP)
    assert QUEUE not in judge(state, site, "system", depths(count))
    found = judge(state, site, "system", [(NOON + count * STEP, depth_event(9))])[QUEUE]
    assert (found.since, found.until, found.late) == (NOON, NOON + count * STEP, False)
    assert "items: 9, members: 2" in found.text
    moving = judge(state, site, "system", [(NOON + HOUR, depth_event(8, 1))])
    assert isinstance(moving[QUEUE], AllClear)


@pytest.mark.parametrize(
    "rows",
    [
        depths(12, delivered=1),
        [(at, depth_event(7, delayed=7)) for at, _ in depths(12)],
        [(at, depth_event(0)) for at, _ in depths(12)],
    ],
    ids=["worked off", "delayed", "empty"],
)
def test_queue_is_not_stuck(rows: Rows) -> None:
    assert isinstance(judge(FleetState(), GatewayEvents(), "system", rows)[QUEUE], AllClear)


def test_gap_between_events_does_not_count() -> None:
    apart = int(DEPTH_GAP_S * 1000) + 1
    rows = [(NOON + at * apart, depth_event(7)) for at in range(12)]
    assert QUEUE not in judge(FleetState(), GatewayEvents(), "system", rows)


@pytest.mark.parametrize("more", [2, 12])
def test_stuck_queue_stays_stuck_while_its_gateway_is_off(more: int) -> None:
    rows = [*depths(7), *depths(more, NOON + 5 * HOUR)]
    found = judge(FleetState(), GatewayEvents(), "system", rows)[QUEUE]
    assert (found.since, found.until) == (NOON, NOON + 5 * HOUR + (more - 1) * STEP)


def test_delivery_or_clock_step_restarts_the_time() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "system", [*depths(7), (NOON + 7 * STEP, depth_event(6, delivered=1))])
    assert QUEUE not in judge(state, site, "system", depths(6, NOON + 8 * STEP))
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "system", depths(6))
    assert QUEUE not in judge(state, site, "system", depths(6, NOON - 2 * HOUR))
    found = judge(state, site, "system", depths(1, NOON - 2 * HOUR + 6 * STEP))[QUEUE]
    assert found.since == NOON - 2 * HOUR


def test_event_time_is_limited_to_its_arrival() -> None:
    found = judge(FleetState(), GatewayEvents(ahead=20 * DAY), "system", depths(12))[QUEUE]
    assert NOON <= found.since < found.until < NOON + HOUR


def test_refusals_surge_above_the_usual() -> None:
    state, site = FleetState(), GatewayEvents()
    week = [(NOON - day * DAY, refusal_event(3)) for day in range(7, 0, -1)]
    assert isinstance(judge(state, site, "system", week)[REFUSALS], AllClear)
    few = judge(state, site, "system", [(NOON, refusal_event(SURGE_MIN - 1))])[REFUSALS]
    assert isinstance(few, AllClear)
    last = (NOON + MINUTE, refusal_event(1, source="x@gw.example"))
    surge = judge(state, site, "system", [last])[REFUSALS]
    assert (surge.since, surge.until) == (NOON, NOON + MINUTE)
    assert "in an hour; the worst hour of a usual day has 3." in surge.text
    assert "x@gw.example" in surge.text
    quiet = judge(state, site, "system", [(NOON + 2 * HOUR, heartbeat_event())])[REFUSALS]
    assert isinstance(quiet, AllClear)


def test_surge_begins_with_its_first_hour() -> None:
    surge = [(NOON + at * HOUR, refusal_event(50)) for at in range(3)]
    rows = [(NOON - DAY, heartbeat_event()), *surge, (NOON + 3 * HOUR, heartbeat_event())]
    assert judge(FleetState(), GatewayEvents(), "system", rows)[REFUSALS].since == NOON


def test_surge_over_midnight_is_not_its_own_baseline() -> None:
    midnight = NOON + 12 * HOUR
    rows = [(midnight - MINUTE, refusal_event(50)), (midnight + MINUTE, refusal_event(50))]
    found = judge(FleetState(), GatewayEvents(), "system", rows)[REFUSALS]
    assert found.since == midnight - HOUR


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_refusals_are_kept_for_few_days(order: int) -> None:
    state, site = FleetState(), GatewayEvents()
    segments = [site.segment("system", [(NOON + at * DAY, refusal_event(3))]) for at in range(20)]
    for segment in segments[::order]:
        add_to_state(state, *segment)
    gateway = state.gateways[GATEWAY]
    assert len(gateway.days) == bounds.MAX_DAYS
    assert {hour // 24 for hour in gateway.refusals["rate"].hours} == set(gateway.days)
    assert gateway.days[-1] == (NOON + 19 * DAY) // DAY


@pytest.mark.parametrize(
    "rows",
    [
        [*((NOON - day * DAY, refusal_event(30)) for day in range(5, 0, -1)),
         (NOON, refusal_event(150))],
        [(NOON, refusal_event(500))],
    ],
    ids=["usual", "without a baseline"],
)  # fmt: skip
def test_refusals_are_no_surge(rows: Rows) -> None:
    assert isinstance(judge(FleetState(), GatewayEvents(), "system", rows)[REFUSALS], AllClear)


def readings(count: int, every: int = MINUTE, **what: str) -> Rows:
    return [(NOON + at * every, reading_event(**what)) for at in range(count)]


def test_sensor_is_silent_if_other_readings_continue() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(10))
    last, floor = NOON + 9 * MINUTE, int(MIN_SILENCE_S * 1000)
    found = judge(state, site, "readings", [(last + floor, reading_event("x"))])[SENSOR]
    assert isinstance(found, AllClear)
    found = judge(state, site, "readings", [(last + floor + 1, reading_event("x"))])[SENSOR]
    assert (found.since, found.until, found.late) == (last, last + floor + 1, False)
    assert f"the usual interval is {format_duration(MINUTE)}" in found.text


def test_only_sensor_is_silent_if_the_gateway_ships_nothing_else() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(10, every=10 * MINUTE))
    last = NOON + 90 * MINUTE
    enough = last + int(SILENT_INTERVALS * 10 * MINUTE + NEW_GATEWAY_TIMEOUT_S * 1000)
    for until, kind in ((enough, AllClear), (enough + 1, Problem)):
        found = judge(state, site, "system", [(until, heartbeat_event())])[SENSOR]
        assert isinstance(found, kind)


@pytest.mark.parametrize("name", ["start", "clock_stepped", "clock_synchronised"])
def test_silence_counts_from_a_start_or_clock_step(name: str) -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(10))
    judge(state, site, "system", [(NOON + 5 * HOUR, system_event(name))])
    rows = [(NOON + 5 * HOUR + MINUTE, reading_event("x"))]
    assert SENSOR not in judge(state, site, "readings", rows)


def test_no_verdict_while_readings_are_missing() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(10))
    site.last["readings"] += 500
    rows = [(NOON + 5 * HOUR, reading_event("x"))]
    assert SENSOR not in judge(state, site, "readings", rows)


def test_late_readings_limit_what_is_known() -> None:
    state, site = FleetState(), GatewayEvents()
    late = GatewayEvents(delay=5 * HOUR, last=site.last)
    judge(state, late, "readings", readings(10))
    found = judge(state, site, "system", [(NOON + 5 * HOUR, heartbeat_event())])
    assert isinstance(found[SENSOR], AllClear)


def test_sensor_without_usual_interval_is_not_judged() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(5))
    assert SENSOR not in judge(state, site, "readings", [(NOON + DAY, reading_event("x"))])


def test_silent_sensor_recovers_only_with_a_reading() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(10))
    last = NOON + 9 * MINUTE
    assert SENSOR not in {each.key for each in judge_events(state, {SENSOR: last})}
    judge(state, site, "readings", [(last + MINUTE, reading_event())])
    assert SENSOR in {each.key for each in judge_events(state, {SENSOR: last})}


def test_subjects_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_SENSORS", 3)
    monkeypatch.setattr(bounds, "MAX_QUEUES", 2)
    monkeypatch.setattr(bounds, "MAX_LIMITS", 1)
    state, site = FleetState(max_gateways=1), GatewayEvents()
    judge(state, site, "readings", [(NOON + at, reading_event(f"s{at}")) for at in range(5)])
    judge(state, site, "readings", [(NOON, reading_event("n" * 600))])
    judge(state, site, "system", [(NOON, depth_event(1, queue=f"q{at}")) for at in range(3)])
    judge(state, site, "system", [(NOON, refusal_event(1, rule=f"r{at}")) for at in range(3)])
    gateway = state.gateways[GATEWAY]
    sizes = (len(gateway.sensors), len(gateway.queues), len(gateway.refusals))
    assert (sizes, gateway.unmonitored, state.unmonitored) == ((3, 2, 1), 6, 0)
    assert bounds.add_arrival(state, "other.example", NOON) is None
    assert state.unmonitored == 1


def unmonitored(state: FleetState, now: int) -> Verdict:
    found = {each.key: each for each in judge_silence(state, {}, now, lambda _: False, {})}
    return found[UNMONITORED]


def test_gateways_that_are_not_monitored_are_told() -> None:
    state = FleetState(max_gateways=2)
    for name in ("a.example", "b.example"):
        bounds.add_arrival(state, name, NOON)
    assert isinstance(unmonitored(state, NOON), AllClear)
    bounds.add_arrival(state, "c.example", NOON + 1)
    bounds.add_arrival(state, "d.example", NOON + 2)
    told = unmonitored(state, NOON + 3)
    assert isinstance(told, Problem)
    assert (told.since, told.until) == (NOON + 1, NOON + 3)
    assert "More than 2 gateways" in told.text
    assert isinstance(unmonitored(state, NOON + 3 + bounds.DAY_MS), AllClear)
    state.max_gateways = 3
    assert isinstance(unmonitored(state, NOON + 3), AllClear)
    assert bounds.add_arrival(state, "c.example", NOON + 4) is not None


def test_invalid_values_count_as_zero() -> None:
    rows = depths(12)
    for _, row in rows:
        row["tags"] = {"delivered": "many", "delayed": "9" * 40}
    assert isinstance(judge(FleetState(), GatewayEvents(), "system", rows)[QUEUE], Problem)


def test_silent_subjects_are_forgotten_by_gateway_time() -> None:
    state, site = FleetState(), GatewayEvents()
    judge(state, site, "readings", readings(3))
    judge(state, site, "system", [*depths(1), (NOON, refusal_event(1))])
    judge(state, site, "readings", [(NOON + 2 * DAY, reading_event("x"))])
    forget(state, NOON + 3 * DAY, 3 * DAY)
    assert len(state.gateways[GATEWAY].sensors) == 2
    forget(state, NOON + 3 * DAY, DAY + 1)
    gateway = state.gateways[GATEWAY]
    assert (len(gateway.sensors), gateway.queues, gateway.refusals) == (1, {}, {})
    forget(state, NOON + 9 * DAY, 2 * DAY)
    assert state.gateways == {}


def test_fast_clock_hides_no_silent_sensor_after_a_gap() -> None:
    state, site = FleetState(), GatewayEvents(ahead=365 * DAY)
    for row in readings(10):
        judge(state, site, "readings", [row])
    site.last["readings"] += 500
    judge(state, site, "readings", [(NOON + HOUR, reading_event("x"))])
    found = judge(state, site, "readings", [(NOON + 5 * HOUR, reading_event("x"))])
    assert isinstance(found[SENSOR], Problem)
