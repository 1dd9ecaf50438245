"""The systemd unit of the gateway permits what it needs; `test_deploy_centre` checks all units."""

from __future__ import annotations

import re
from pathlib import Path

from tests.deploy.test_deploy_centre import settings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "raspberrypi" / "fieldpost.service"


def test_clock_synchronisation_can_be_read() -> None:
    """A filter without these calls would stamp every event as of an unsynchronised clock."""
    assert "ProtectClock" not in settings(UNIT)
    added = settings(UNIT)["SystemCallFilter"][-1].split()
    assert {"adjtimex", "clock_adjtime"} <= set(added)


def test_service_restarts_after_any_exit_and_when_it_hangs() -> None:
    unit = settings(UNIT)
    assert unit["WatchdogSec"] == ["60s"]
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]


def test_install_script_and_unit_use_the_same_paths() -> None:
    script = (UNIT.parent / "install.sh").read_text("utf-8")
    places = dict(re.findall(r"^readonly ([A-Z]+)=(/\S+|fieldpost)$", script, re.MULTILINE))
    unit = settings(UNIT)
    assert unit["ExecStart"] == [
        f"{places['OPT']}/current/bin/fieldpost run --dir {places['STATE']}"
    ]
    assert unit["ExecReload"] == [
        f"{places['OPT']}/current/bin/fieldpost reload --dir {places['STATE']}"
    ]
    assert unit["User"] == [places["ACCOUNT"]]
    assert places["STATE"] == f"/var/lib/{unit['StateDirectory'][0]}"
    assert places["UNIT"] == f"/etc/systemd/system/{UNIT.name}"
