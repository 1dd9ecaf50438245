"""`fieldpost-fleet compact`, which needs no Java."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.tables.delta import local_tables
from tests.helpers.committed import Committer
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import fleet_folder


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetFolder:
    """Make tables with two files of each of three days: today, yesterday, and the day before."""
    monkeypatch.setattr("sync.tables.spark_session.spark_session", lambda name: pytest.fail(name))
    fleet = fleet_folder(tmp_path / "fleet")
    committer, now = Committer(fleet.tables), datetime.now(UTC)
    for _ in range(2):
        times = [now - timedelta(days=days) for days in range(3)]
        committer.commit([{"gateway": "gw", "time": time} for time in times], [{"path": "a"}])
    return fleet


def files_of_days(fleet: FleetFolder) -> list[int]:
    return [len(day.files) for day in local_tables(fleet.tables).snapshot().days.values()]


@pytest.mark.parametrize(
    ("options", "files", "text"),
    [
        ([], [1, 1, 2], "merged 6 files of 2 days into 3"),
        (["--before", "0"], [1, 1, 1], "merged 8 files of 3 days into 4"),
        (["--before", "3"], [2, 2, 2], "merged 2 files of 0 days into 1"),
        (["--day", "yesterday"], [2, 1, 2], "merged 2 files of 1 days into 1"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_days_to_merge(fleet: FleetFolder, options: list[str], files: list[int], text: str) -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    arguments = [yesterday if word == "yesterday" else word for word in options]
    completed = fleet_command("compact", *arguments, "--dir", str(fleet.root))
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout == f"{text}; removed 0 files that were replaced or abandoned\n"
    assert files_of_days(fleet) == files


def test_the_result_is_printed_as_json(fleet: FleetFolder) -> None:
    completed = fleet_command("compact", "--json", "--dir", str(fleet.root))
    assert json.loads(completed.stdout) == {"days": 2, "replaced": 6, "written": 3, "removed": 0}
    completed = fleet_command("compact", "--json", "--dir", str(fleet.root))
    assert json.loads(completed.stdout) == {"days": 0, "replaced": 0, "written": 0, "removed": 0}
