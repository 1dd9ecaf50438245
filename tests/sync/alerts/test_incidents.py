"""Incidents: one alert at the start, one at the end, growing intervals."""

from __future__ import annotations

from itertools import pairwise

from sync.alerts.incidents import (
    CALM_MS,
    FORGET_MS,
    FORGOTTEN_TEXT,
    HOLD_MS,
    REPEAT_MS,
    Alert,
    IncidentTracker,
    alert_id,
)
from sync.alerts.rules import REMEDIES, AllClear, Subject, Verdict, problem
from tests.helpers.alerting import DAY, HOUR, MINUTE, NOON

KEY = Subject("queue_stuck", "gw.example", "jobs")


def bad(since: int = NOON, *, late: bool = False) -> Verdict:
    return problem(KEY, since, since + MINUTE, "It stands still.", late=late)


def good(until: int) -> Verdict:
    return AllClear(KEY, until, "It moves.")


def test_incident_is_alerted_at_start_and_end_with_one_id() -> None:
    tracker = IncidentTracker()
    [raised] = tracker.update([bad()], NOON + HOUR)
    assert raised == Alert(
        id=alert_id(KEY, NOON),
        state="raised",
        kind="queue_stuck",
        gateway="gw.example",
        subject="jobs",
        since="2025-11-21T12:00:00.000+00:00",
        until="2025-11-21T12:01:00.000+00:00",
        at="2025-11-21T13:00:00.000+00:00",
        text="It stands still.",
        remedy=REMEDIES["queue_stuck"],
        held=0,
    )
    assert tracker.update([bad(NOON + MINUTE)], NOON + 2 * HOUR) == []
    assert tracker.update([], NOON + 2 * HOUR) == []
    assert tracker.active() == {KEY: NOON}
    [recovered] = tracker.update([good(NOON + 2 * HOUR)], NOON + 3 * HOUR)
    assert (recovered.id, recovered.state, recovered.since) == (
        raised.id,
        "recovered",
        raised.since,
    )
    assert (recovered.until[11:13], recovered.at[11:13], recovered.remedy) == ("14", "15", "")
    assert tracker.update([good(NOON + 2 * HOUR)], NOON + 4 * HOUR) == []
    assert tracker.active() == {}


def test_late_problem_is_held_back() -> None:
    tracker = IncidentTracker()
    assert tracker.update([bad(late=True)], NOON + DAY) == []
    assert tracker.update([good(NOON + HOUR)], NOON + DAY + MINUTE) == []
    assert tracker.update([bad(late=True)], NOON + DAY + 2 * MINUTE) == []
    assert tracker.update([bad(late=True)], NOON + DAY + HOLD_MS) == []
    [message] = tracker.update([bad(late=True)], NOON + DAY + HOLD_MS + 2 * MINUTE)
    assert (message.since[:13], message.at[:13]) == ("2025-11-21T12", "2025-11-22T13")
    [message] = IncidentTracker().update([bad()], NOON + DAY)
    assert message.state == "raised"


def test_repeated_incidents_are_alerted_at_growing_intervals() -> None:
    tracker, now = IncidentTracker(), NOON
    raised: list[tuple[int, int]] = []
    for _ in range(4 * 24 * 12):
        raised += [(now, message.held) for message in tracker.update([bad(now)], now)]
        now += 2 * MINUTE
        tracker.update([good(now)], now)
        now += 3 * MINUTE
    pauses = [after - before for (before, _), (after, _) in pairwise(raised)]
    hours = [pause // HOUR for pause in pauses]
    assert hours == [1, 2, 4, 8, 16, 24, 24]
    assert [held for _, held in raised[:4]] == [0, 11, 23, 47]
    now += CALM_MS
    assert tracker.update([bad(now)], now) != []
    tracker.update([good(now)], now)
    assert tracker.update([bad(now + HOUR)], now + HOUR) != []


def test_problem_that_outlasts_the_interval_is_alerted() -> None:
    tracker = IncidentTracker()
    tracker.update([bad()], NOON)
    tracker.update([good(NOON + MINUTE)], NOON + MINUTE)
    again = NOON + 2 * MINUTE
    assert tracker.update([bad(again)], again) == []
    assert tracker.update([bad(again)], NOON + REPEAT_MS - 1) == []
    [message] = tracker.update([bad(again)], NOON + REPEAT_MS)
    assert (message.id, message.held) == (alert_id(KEY, again), 0)


def test_new_incident_begins_after_the_last_one() -> None:
    tracker = IncidentTracker()
    [first] = tracker.update([bad()], NOON)
    tracker.update([good(NOON + 5 * MINUTE)], NOON + HOUR)
    [second] = tracker.update([bad()], NOON + 2 * HOUR)
    assert second.since == "2025-11-21T12:05:00.000+00:00"
    assert second.id != first.id


def test_forgotten_incident_ends_after_a_month() -> None:
    tracker = IncidentTracker()
    tracker.update([bad()], NOON)
    assert tracker.update([], NOON + FORGET_MS - DAY) == []
    [message] = tracker.update([], NOON + FORGET_MS + DAY)
    assert (message.state, message.text) == ("recovered", FORGOTTEN_TEXT)
    assert tracker.incidents() == []


def test_alert_raised_while_the_clock_was_ahead_keeps_its_id() -> None:
    key = Subject("silent", "gw.example", "gw.example")
    tracker = IncidentTracker()
    [raised] = tracker.update(
        [problem(key, NOON + 30 * HOUR, NOON + 30 * HOUR, "")], NOON + 31 * HOUR
    )
    tracker.cap_times(NOON)
    tracker = IncidentTracker(tracker.incidents())
    assert tracker.active() == {key: NOON}
    [recovered] = tracker.update([AllClear(key, NOON + HOUR, "")], NOON + HOUR)
    assert (recovered.id, recovered.state) == (raised.id, "recovered")
    [again] = tracker.update([problem(key, NOON + HOUR, NOON + HOUR, "")], NOON + 2 * HOUR)
    assert again.id != raised.id


def test_pending_alert_does_not_wait_for_a_clock_that_was_ahead() -> None:
    verdict, tracker = bad(late=True), IncidentTracker()
    assert tracker.update([verdict], NOON + 30 * HOUR) == []
    tracker.cap_times(NOON)
    assert tracker.update([verdict], NOON) == []
    assert len(tracker.update([verdict], NOON + HOLD_MS)) == 1
