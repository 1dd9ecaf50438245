from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.committed import Committer
from tests.helpers.fleet_command import Command
from tests.helpers.fleet_tables import NOON, Lane, land, put, some_events
from tests.helpers.jvm import FAST_JVM

pytestmark = pytest.mark.spark

LIMIT_S = 180


def run_in_subprocess(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sync.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | {"JDK_JAVA_OPTIONS": FAST_JVM},
    )


@pytest.fixture(params=["in this process", pytest.param("in a subprocess", marks=pytest.mark.long)])
def command(request: pytest.FixtureRequest) -> Command:
    if request.param == "in this process":
        return cast("Command", request.getfixturevalue("command_in_process"))
    return run_in_subprocess


def test_ingest_and_report_commands(fleet: FleetFolder, tmp_path: Path, command: Command) -> None:
    lane, system = Lane(), Lane(lane="system")
    for _ in range(2):
        land(fleet, lane.seal(some_events(10)), at=NOON / 1000 + 60)
    beats = [
        event._replace(kind="system", name=name, qos=None, latency_ms=None)
        for event, name in zip(some_events(2), ("start", "stop"), strict=True)
    ]
    land(fleet, system.seal(beats), at=NOON / 1000 + 61)
    put(fleet.landing / "gw.example" / "x.seg", b"spoiled")

    first = tmp_path / "first"
    ingested = command("ingest", "--dir", str(fleet.root), "--report", str(first))
    assert (ingested.returncode, ingested.stderr) == (0, "")
    assert ingested.stdout == (
        "ingested 3 segments with 22 events in 1 batch; 0 duplicates skipped, 1 quarantined\n"
    )

    out = tmp_path / "out"
    reported = command("report", "--dir", str(fleet.root), "--out", str(out))
    assert (reported.returncode, reported.stderr) == (0, "")
    summary = dict(line.rsplit(None, 1) for line in reported.stdout.splitlines())
    assert summary["events"] == "22"
    assert (summary["unexplained"], summary["duplicates"]) == ("0", "0")
    assert (summary["logs/log"], summary["bad segments"]) == ("20", "1")
    assert summary["page"] == str(out / "index.html")

    document, ingest_document = (
        json.loads((folder / "report.json").read_text()) for folder in (out, first)
    )
    assert document["totals"] == ingest_document["totals"]
    assert document["totals"]["lanes"] == {"logs": {"log": 20}, "system": {"system": 2}}
    assert document["totals"]["received"] == document["totals"]["expected"] == 22
    [gateway] = document["tables"]["availability"]
    assert (gateway["state"], gateway["running_s"]) == ("stopped", 1.0)
    assert {row["state"] for row in document["tables"]["completeness"]} == {"closed"}
    assert document["tables"]["delivery"][0]["max_ms"] == 9
    assert "<svg" in (out / "index.html").read_text()


@pytest.mark.long
def test_an_ingest_of_nothing_makes_the_report(
    fleet: FleetFolder, tmp_path: Path, command_in_process: Command
) -> None:
    done = command_in_process("ingest", "--dir", str(fleet.root), "--report", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ingested 0 segments with 0 events")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["totals"]["received"] == 0


def test_retain_command(fleet: FleetFolder, command: Command) -> None:
    committer = Committer(fleet.tables)
    committer.commit([{"gateway": "gw", "lane": "logs", "time": datetime.now(UTC)}])
    refused = put(fleet.quarantine / "x.seg", b"spoiled", at=1)
    arguments = ("retain", "--events", "1", "--quarantine", "1", "--dir", str(fleet.root))
    assert command(*arguments, "--dry-run").stdout == (
        "would delete 0 days of events with 0 rows; 0 archived and 1 quarantined files, 7 bytes; "
        "0 replaced or abandoned files\n"
    )
    assert refused.exists()
    done = command(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "days": {},
        "event_files": 0,
        "archive": [],
        "quarantine": ["quarantine/x.seg"],
        "replaced": 0,
    }
    assert not refused.exists()
