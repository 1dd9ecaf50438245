"""The systemd unit is valid, hardened, and permits what the gateway needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "raspberrypi" / "fieldpost.service"
VERIFY = ROOT / ".ci" / "verify-unit"
EXPOSURE = 1.5
"""The highest exposure that `systemd-analyze security` may give the unit (0 is none, 10 all)."""

SECONDS = 60

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze (make interop-packages)"
)


def settings() -> dict[str, list[str]]:
    """Return each setting with all its values, in order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@needs_systemd
def test_unit_is_valid_without_warnings() -> None:
    done = subprocess.run(
        [VERIFY, UNIT], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ProtectSystem=strict", "ProtectSystem=very"),
        ("NoNewPrivileges=yes", "NoNewPrivilege=yes"),
        ("Type=notify", "Type=notified"),
    ],
)
def test_mistake_in_the_unit_is_found(tmp_path: Path, line: str, complaint: str) -> None:
    wrong = tmp_path / UNIT.name
    text = UNIT.read_text("utf-8")
    assert line in text
    wrong.write_text(text.replace(line, complaint), "utf-8")
    done = subprocess.run(
        [VERIFY, wrong], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 1
    assert UNIT.name in done.stderr


@needs_systemd
def test_exposure_is_low() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze (older than 250) rates no files")
    verdict = re.search(r"Overall exposure level for fieldpost.service: ([\d.]+)", done.stdout)
    assert verdict, done.stdout + done.stderr
    assert float(verdict[1]) <= EXPOSURE


@needs_systemd
def test_clock_synchronisation_can_be_read() -> None:
    """A filter without these calls would stamp every event as of an unsynchronised clock."""
    assert "ProtectClock" not in settings()
    added = settings()["SystemCallFilter"][-1].split()
    assert {"adjtimex", "clock_adjtime"} <= set(added)


def test_service_restarts_after_any_exit_and_when_it_hangs() -> None:
    unit = settings()
    assert unit["WatchdogSec"] == ["60s"]
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]


def test_install_script_and_unit_use_the_same_paths() -> None:
    script = (UNIT.parent / "install.sh").read_text("utf-8")
    places = dict(re.findall(r"^readonly ([A-Z]+)=(/\S+|fieldpost)$", script, re.MULTILINE))
    unit = settings()
    assert unit["ExecStart"] == [
        f"{places['OPT']}/current/bin/fieldpost run --dir {places['STATE']}"
    ]
    assert unit["ExecReload"] == [
        f"{places['OPT']}/current/bin/fieldpost reload --dir {places['STATE']}"
    ]
    assert unit["User"] == [places["ACCOUNT"]]
    assert places["STATE"] == f"/var/lib/{unit['StateDirectory'][0]}"
    assert places["UNIT"] == f"/etc/systemd/system/{UNIT.name}"
