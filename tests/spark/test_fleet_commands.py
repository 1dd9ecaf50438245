"""The ingest and report commands."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.committed import Committer
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import NOON, Lane, land, put, some_events, waiting
from tests.helpers.jvm import FAST_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

LIMIT_S = 180

FAST = {"JDK_JAVA_OPTIONS": FAST_JVM}


class Command(Protocol):
    """A function that runs `fieldpost-fleet`."""

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]: ...


def as_a_process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sync.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | FAST | environ,
    )


@pytest.fixture
def lent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run commands in this process with the tests' running Spark session."""

    @contextlib.contextmanager
    def session(name: str, **_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("sync.tables.spark_session.spark_session", session)
    return fleet_command


@pytest.fixture(params=["lent", pytest.param("as a process", marks=pytest.mark.long)])
def command(request: pytest.FixtureRequest) -> Command:
    if request.param == "lent":
        return cast("Command", request.getfixturevalue("lent"))
    return as_a_process


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

    ingested = command("ingest", "--dir", str(fleet.root))
    assert (ingested.returncode, ingested.stderr) == (0, "")
    assert ingested.stdout == (
        "ingested 3 segments with 22 events in 1 batch; 0 duplicates skipped, 1 quarantined\n"
    )

    out = tmp_path / "out"
    reported = command("report", "--dir", str(fleet.root), "--out", str(out))
    assert (reported.returncode, reported.stderr) == (0, "")
    shown = dict(line.rsplit(None, 1) for line in reported.stdout.splitlines())
    assert shown["events"] == "22"
    assert (shown["unexplained"], shown["duplicates"]) == ("0", "0")
    assert (shown["logs/log"], shown["bad segments"]) == ("20", "1")
    assert shown["page"] == str(out / "index.html")

    document = json.loads((out / "report.json").read_text())
    assert document["totals"]["lanes"] == {"logs": {"log": 20}, "system": {"system": 2}}
    assert document["totals"]["received"] == document["totals"]["expected"] == 22
    [gateway] = document["tables"]["availability"]
    assert (gateway["state"], gateway["running_s"]) == ("stopped", 1.0)
    assert {row["state"] for row in document["tables"]["completeness"]} == {"closed"}
    assert document["tables"]["delivery"][0]["max_ms"] == 9
    assert "<svg" in (out / "index.html").read_text()


def test_ingest_also_makes_the_report(fleet: FleetFolder, tmp_path: Path, lent: Command) -> None:
    land(fleet, Lane().seal(some_events(3)))
    out = tmp_path / "out"
    for counts in ("ingested 1 segments with 3 events", "ingested 0 segments with 0 events"):
        done = lent("ingest", "--dir", str(fleet.root), "--report", str(out))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(counts)
        assert json.loads((out / "report.json").read_text())["totals"]["received"] == 3


@pytest.mark.parametrize("words", [["ingest"], ["report", "--out", "out"]])
def test_failure_is_reported_in_one_line(tmp_path: Path, words: list[str]) -> None:
    done = fleet_command(*words, "--dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert "not a fleet folder" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_java_is_reported_in_one_line(fleet: FleetFolder, tmp_path: Path) -> None:
    words = ("report", "--out", str(tmp_path / "out"), "--dir", str(fleet.root))
    done = as_a_process(*words, PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "openjdk-17-jre-headless" in done.stderr


def test_spark_failure_is_one_line_with_its_trace_in_the_log(
    fleet: FleetFolder, command: Command
) -> None:
    land(fleet, Lane().seal(some_events(2)))
    blocked = put(fleet.tables / "events" / "day=2025-11-21", b"a file where a folder has to be")
    done = command("ingest", "--dir", str(fleet.root))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error: the ingest failed: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" in (fleet.tables / "ingest.log").read_text()
    assert len(waiting(fleet)) == 1

    blocked.unlink()
    again = command("ingest", "--dir", str(fleet.root), "--json", "--verbose")
    assert again.returncode == 0
    assert json.loads(again.stdout) == {
        "batches": 1,
        "segments": 1,
        "events": 2,
        "duplicates": 0,
        "quarantined": 0,
        "reread": 0,
    }
    assert "step committed" in again.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert fleet_command("report", "--dir", "x").returncode == 2
    assert fleet_command("ingest", "--dir", "x", "--batch-files", "0").returncode == 2
    reporting = ("ingest", "--dir", "x", "--report", "out")
    assert fleet_command(*reporting, "--continuous").returncode == 2
    assert fleet_command(*reporting, "--tables", "file:/x").returncode == 2


def test_retain_command(fleet: FleetFolder, command: Command) -> None:
    committer = Committer(fleet.tables)
    committer.commit([{"gateway": "gw", "lane": "logs", "time": datetime.now(UTC)}])
    refused = put(fleet.quarantine / "x.seg", b"spoiled", at=1)
    words = ("retain", "--events", "1", "--quarantine", "1", "--dir", str(fleet.root))
    assert command(*words, "--dry-run").stdout == (
        "would delete 0 days of events with 0 rows; 0 archived and 1 quarantined files, 7 bytes; "
        "0 replaced or abandoned files and folders\n"
    )
    assert refused.exists()
    done = command(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "days": {},
        "event_files": 0,
        "archive": [],
        "quarantine": ["quarantine/x.seg"],
        "replaced": 0,
        "checkpoints": [],
    }
    assert not refused.exists()
