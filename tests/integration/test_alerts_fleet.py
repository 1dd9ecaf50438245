"""Alerts of a simulated fleet with planted problems."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from firmware_sim.fleet.faults import FAULTS
from firmware_sim.fleet.plan import make_plans
from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.shipping import Delivery
from firmware_sim.fleet.simulate import Fleet
from sync.alerts.incidents import Alert
from sync.alerts.json_lines import JsonLinesOutput
from sync.alerts.monitor import AlertMonitor
from sync.alerts.persistence import StateStore
from sync.common.fleet_folder import FleetFolder
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from tests.helpers.fleet_tables import fleet_folder, put
from tests.helpers.local_ingest import ingest

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
START: Final = 1_772_409_600_000
"""2026-03-02 00:00:00 UTC."""

KINDS: Final = {"queue_stuck", "refusals", "sensor_silent"}
OFF: Final = {"silent", "outage"}
"""Faults after which nothing arrives for hours or ever."""

SETTINGS: Final = FleetSettings(
    gateways=24 if LONG else 4,
    days=2,
    seed=1,
    start=START,
    readings=800 if LONG else 200,
    heartbeat=60.0 if LONG else 900.0,
    seal=300.0 if LONG else 1_800.0,
    faults=frozenset(FAULTS)
    if LONG
    else frozenset({"silent", "queue-stuck", "refusals", "sensor-silent"}),
)
STEP_MS: Final = 900_000 if LONG else 1_800_000
AFTER_S: Final = 4 * SETTINGS.seal
"""Seconds after a link came back, or a fault began, within which every alert about it is sent."""


def collect_alerts(folder: FleetFolder, deliveries: list[Delivery]) -> list[Alert]:
    """Let segments arrive in order of time; ingest and check every `STEP_MS`."""
    now = SETTINGS.start
    monitor = AlertMonitor(
        FleetStorage.of(folder),
        StateStore(LocalStorage(folder.tables / "alerts")),
        JsonLinesOutput(),
        clock=lambda: now / 1000,
    )
    alerts: list[Alert] = []
    position = 0
    while now < SETTINGS.end:
        now += STEP_MS
        while position < len(deliveries) and deliveries[position].arrived <= now:
            delivery = deliveries[position]
            put(folder.landing / delivery.path, delivery.data, delivery.arrived / 1000)
            position += 1
        ingest(folder)
        alerts += monitor.check()
    return alerts


@pytest.mark.long
def test_planted_problems_are_reported_once_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deliveries: list[Delivery] = []
    fleet = Fleet(SETTINGS)
    fleet.simulate(deliveries.append)
    deliveries.sort(key=lambda delivery: (delivery.arrived, delivery.path))
    alerts = collect_alerts(fleet_folder(tmp_path / "fleet"), deliveries)
    raised = [message for message in alerts if message.state == "raised"]
    found = Counter((each.kind, each.gateway) for each in raised if each.kind in KINDS)
    planted = [(each["kind"], each["gateway"]) for each in fleet.truth()["planted"]]
    assert found == Counter(each for each in planted if each[0] in KINDS)
    assert {each.kind for each in raised} == KINDS | {"silent"}
    recovered = {each.id for each in alerts if each.state == "recovered"}
    on = {(each.kind, each.gateway) for each in raised if each.id not in recovered}
    assert on == {each for each in planted if each[0] in ("silent", "queue_stuck", "sensor_silent")}
    for plan in make_plans(SETTINGS):
        silent = [each for each in raised if (each.kind, each.gateway) == ("silent", plan.name)]
        windows = [window for fault in OFF if (window := plan.window(fault))]
        outages = sorted([*plan.link_down, *windows])
        assert len(silent) <= len(outages)
        for each in silent:
            since = datetime.fromisoformat(each.since).timestamp() - SETTINGS.start / 1000
            assert any(begin - AFTER_S <= since <= end for begin, end in outages)
    assert len(capsys.readouterr().out.splitlines()) == len(alerts)
