"""Alerts with invalid gateway data and after clock changes of the centre."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sync.alerts.incidents import HOLD_MS, IncidentTracker
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.persistence import MAX_WEBHOOK_QUEUE
from sync.alerts.rules import MAX_TIMEOUT_S, AllClear, Subject, problem, silence_timeout_ms
from sync.alerts.state import GatewayState, Segment
from sync.alerts.webhook import Webhook
from tests.helpers.alerting import HOUR, NOON
from tests.helpers.fleet_tables import EPOCH
from tests.sync.alerts.test_alert_monitor import ONE, TWO, Fleet, event, two_gateways
from tests.sync.alerts.test_alert_output import message

YEAR_S = 365 * 86_400


@pytest.mark.parametrize("segments", [3, 18], ids=["new", "known"])
def test_huge_service_seconds_give_the_longest_timeout(segments: int) -> None:
    rows = [Segment(EPOCH, at, at, 0, at * 1e307, 0) for at in range(1, segments)]
    assert silence_timeout_ms(GatewayState(system_segments=rows)) == 1000 * MAX_TIMEOUT_S


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e19], ids=str)
@pytest.mark.parametrize(("kind", "name"), [("limit", "rate"), ("queue", "depth")])
def test_extreme_numbers_do_not_stop_the_monitor(
    fleet: Fleet, value: float, kind: str, name: str
) -> None:
    fleet.arrive(ONE, event(fleet.now, kind=kind, name=name, topic="jobs", value=value))
    fleet.ingest.run()
    fleet.look()
    assert fleet.watch.store.load_state() is not None


@pytest.mark.parametrize("moment", [-62_135_596_800, 253_402_300_799], ids=["1", "9999"])
def test_extreme_years_do_not_stop_the_monitor(fleet: Fleet, moment: int) -> None:
    rows = [
        event(moment, kind="limit", name="rate", value=100.0),
        event(moment, kind="queue", name="depth", topic="jobs", value=9.0),
    ]
    fleet.arrive(ONE, *rows, at=fleet.now)
    fleet.ingest.run()
    fleet.look()
    assert fleet.watch.store.load_state() is not None


@pytest.mark.parametrize(
    ("ahead_s", "heard"),
    [
        (7_200, True),
        (20 * YEAR_S, False),
        *(pytest.param(*others, marks=pytest.mark.long)
          for others in ((1_800, True), (1_800, False), (7_200, False), (20 * YEAR_S, True))),
    ],
)  # fmt: skip
def test_alerts_continue_after_the_centre_clock_was_ahead(
    fleet: Fleet, ahead_s: int, heard: bool
) -> None:
    two_gateways(fleet)
    assert fleet.look() == [("raised", "silent", TWO)]
    raised = fleet.watch.store.load_journal().incidents
    fleet.now += ahead_s
    fleet.arrive(ONE)
    if heard:
        fleet.arrive(TWO)
    fleet.ingest.run()
    fleet.look()
    fleet.now -= ahead_s - 300
    for _ in range(15):
        fleet.arrive(ONE)
        fleet.look()
        fleet.ingest.run()
        fleet.now += 300
    fleet.look()
    assert fleet.told()[-1] == ("raised", "silent", TWO)
    assert raised[0].since is not None
    fleet.arrive(TWO)
    assert ("recovered", "silent", TWO) in fleet.look()


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
    key = Subject("queue_stuck", "gw.example", "jobs")
    verdict = problem(key, NOON, NOON, "", late=True)
    tracker = IncidentTracker()
    assert tracker.update([verdict], NOON + 30 * HOUR) == []
    tracker.cap_times(NOON)
    assert tracker.update([verdict], NOON) == []
    assert len(tracker.update([verdict], NOON + HOLD_MS)) == 1


def test_names_are_escaped_in_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Жук \u2028\u0085\u009b2J\u202e\U000e0001"
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "latin-1"))
    key = Subject("queue_stuck", "gw.example", name)
    told = IncidentTracker().update([problem(key, NOON, NOON, "It stands still.")], NOON)
    JsonLinesOutput(tmp_path / "alerts.jsonl").write(told)
    data = out.getvalue()
    assert (tmp_path / "alerts.jsonl").read_bytes() == data
    [line] = data.decode().splitlines()
    assert line.isprintable()
    assert "Жук" in line
    assert json.loads(line)["subject"] == name


def test_discarded_alerts_are_logged(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    two_gateways(fleet)
    waiting = fleet.watch.store.load_journal()
    waiting.enqueue([message(0)] * MAX_WEBHOOK_QUEUE, webhook=True)
    waiting.output_queue.clear()
    fleet.watch.store.save_journal(waiting)
    fleet.watch = fleet.start()
    fleet.watch.webhook = Webhook("http://127.0.0.1:1/")
    fleet.look()
    assert "discarded" in [each.getMessage() for each in caplog.records]
    assert fleet.watch.undelivered == MAX_WEBHOOK_QUEUE
