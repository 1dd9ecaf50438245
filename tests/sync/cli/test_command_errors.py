"""What an operator sees when names, times, numbers or the disk are unusable: one line."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow as pa
import pytest

from sync.common.fleet_folder import FleetFolder
from sync.ingest.decoding import decode_files
from sync.tables.storage import time_of
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import Lane, fleet_folder, land, put, some_events, waiting

FAR = 260_000_000_000
"""Seconds from 1970 to the year 10209."""


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")


def ingest(fleet: FleetFolder) -> CompletedProcess[str]:
    return fleet_command("ingest", "--dir", fleet.root)


def one_line(done: CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Make the kernel refuse larger files, as a full disk refuses any."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", [b"a\xff.seg", b"\xff/1-2.seg"])
def test_a_file_name_that_is_not_utf_8_is_named(fleet: FleetFolder, name: bytes) -> None:
    path = put(fleet.landing / os.fsdecode(name), b"some bytes")
    assert r"\udcff" in (text := one_line(ingest(fleet)))
    assert "is not UTF-8; rename the file, or remove it" in text
    path.unlink()
    assert ingest(fleet).returncode == 0


def test_a_fleet_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / os.fsdecode(b"fl\xff"))
    assert "cannot have tables" in one_line(ingest(fleet))


def test_a_disk_that_refuses_a_file_is_named(fleet: FleetFolder) -> None:
    land(fleet, Lane().seal(some_events(3)))
    with largest_file(200):
        done = ingest(fleet)
    assert f"the tables in {fleet.tables} cannot be used: " in one_line(done)
    assert ingest(fleet).returncode == 0
    land(fleet, Lane(gateway="other.example").seal(some_events(3)))
    with largest_file(1_000):
        done = ingest(fleet)
    assert f"{fleet.tables}/events/day=2025-11-21/" in one_line(done)
    assert len(waiting(fleet)) == 1
    assert ingest(fleet).returncode == 0


@pytest.mark.parametrize(("seconds", "year"), [(FAR, 9999), (-FAR, 1)])
def test_times_of_files_that_python_cannot_hold_are_limited(seconds: int, year: int) -> None:
    assert time_of(seconds).year == year
    assert time_of(0.5) == datetime.fromtimestamp(0.5, UTC)
    kind = pa.timestamp("us", tz="UTC")
    columns = {"path": ["a"], "length": [1], "content": [Lane().seal(some_events(1))[1]]}
    times = pa.array([seconds * 1_000_000]).view(kind)
    files = pa.RecordBatch.from_pydict(columns | {"modificationTime": times})
    [row] = [each for batch in decode_files([files]) for each in batch.to_pylist() if each["path"]]
    assert row["arrived"].year == year


@pytest.mark.parametrize(
    "words", [("compact", "--before"), ("retain", "--events"), ("retain", "--archive")]
)
def test_more_days_than_the_calendar_has_are_wrong_usage(
    fleet: FleetFolder, words: tuple[str, str]
) -> None:
    done = fleet_command(*words, "999999999", "--dir", fleet.root)
    assert (done.returncode, "is not in the range" in done.stderr) == (2, True)
