"""Errors of the `fieldpost-fleet` commands, and the ingest without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.fleet_command import Command, fleet_command
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting

LIMIT_S = 180

WITHOUT_EXTRA = """
import sys
for name in ("deltalake", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"):
    sys.modules[name] = None
from sync.cli.main import main
main()
"""


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")


def as_a_process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sync.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | environ,
    )


@pytest.mark.parametrize(
    ("command", "package"), [("ingest", "pyspark"), ("alerts", "pyarrow"), ("compact", "pyarrow")]
)
def test_a_missing_extra_is_named_with_the_way_to_install_it(
    tmp_path: Path, command: str, package: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, command, "--dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {package} is not installed; run `pip install 'fieldpost[fleet]'` with the pip of"
        f" {sys.prefix}\n"
    )


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


@pytest.mark.parametrize(
    "command", [fleet_command, pytest.param(as_a_process, marks=pytest.mark.long)]
)
def test_a_failure_of_the_ingest_is_one_line_with_its_trace_in_the_log(
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
    }
    assert "step committed" in again.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert fleet_command("report", "--dir", "x").returncode == 2
    assert fleet_command("ingest", "--dir", "x", "--batch-files", "0").returncode == 2
    reporting = ("ingest", "--dir", "x", "--report", "out")
    assert fleet_command(*reporting, "--continuous").returncode == 2
    assert fleet_command(*reporting, "--tables", "file:/x").returncode == 2
