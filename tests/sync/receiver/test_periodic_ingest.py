"""The ingest that the receiver starts: its times, its options and its failures."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver import periodic_ingest as module
from sync.receiver.periodic_ingest import COMMAND, IngestPlan, periodic_ingest
from sync.storage.local import LocalStorage
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import Lane, land, put, some_events, waiting_segments

LIMIT_S = 60.0

RECORDS = """
import json, sys
from pathlib import Path
print(json.dumps(sys.argv[1:]))
for path in Path(sys.argv[2]).glob("landing/*/*/*/*.seg"): path.unlink()
"""
FAILS = "import sys; sys.exit('Error: no space left')"
HANGS = """
import sys, signal
from pathlib import Path
Path(sys.argv[1]).write_bytes(b"ready")
while True: signal.pause()
"""
IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){HANGS}"


class Log:
    """The logged events with their fields."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lines: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        monkeypatch.setattr(module, "log_event", self._add)

    def _add(self, _level: int, event: str, **fields: Any) -> None:
        self._lines.put_nowait((event, fields))

    async def next(self) -> tuple[str, dict[str, Any]]:
        return await asyncio.wait_for(self._lines.get(), LIMIT_S)

    async def options(self) -> list[str]:
        """Return the options of the next ingest, which is expected to succeed."""
        event, fields = await self.next()
        assert event == "ingested", fields
        options: list[str] = json.loads(fields["text"])
        return options


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def ingesting(
    folder: FleetFolder, script: str, report: str | None = None
) -> AbstractAsyncContextManager[None]:
    """Run `script` in place of the ingest."""
    command = (sys.executable, "-c", script, "--dir", str(folder.root))
    return periodic_ingest(LocalStorage(folder.root), IngestPlan(command, 0.01, report))


async def test_waiting_segments_are_ingested(folder: FleetFolder, log: Log) -> None:
    dir_option = ["--dir", str(folder.root)]
    async with ingesting(folder, RECORDS):
        for _ in range(2):
            land(folder, Lane().seal(some_events(1)))
            assert await log.options() == dir_option
    assert waiting_segments(folder) == set()


async def test_a_report_is_made_at_the_start_and_then_at_intervals(
    folder: FleetFolder, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    dir_option, out = ["--dir", str(folder.root)], "s3://fleet/report"
    with_report = [*dir_option, "--report", out]
    async with ingesting(folder, RECORDS, out):
        assert await log.options() == with_report
        land(folder, Lane().seal(some_events(1)))
        assert await log.options() == dir_option, "a report was made less than 15 minutes ago"
    monkeypatch.setattr(module, "REPORT_EVERY_S", 0.0)
    async with ingesting(folder, RECORDS, out):
        assert await log.options() == with_report
        land(folder, Lane().seal(some_events(1)))
        assert await log.options() == with_report


async def test_a_failure_is_logged_and_retried(folder: FleetFolder, log: Log) -> None:
    land(folder, Lane().seal(some_events(1)))
    async with ingesting(folder, FAILS):
        for _ in range(2):
            assert await log.next() == ("ingest", {"text": "Error: no space left", "status": 1})


async def test_a_command_that_cannot_start_is_logged(folder: FleetFolder, log: Log) -> None:
    land(folder, Lane().seal(some_events(1)))
    plan = IngestPlan(("/nonexistent/python",), 0.01)
    async with periodic_ingest(LocalStorage(folder.root), plan):
        event, fields = await log.next()
    assert (event, "No such file" in fields["text"]) == ("ingest", True)


async def test_a_landing_that_cannot_be_listed_is_logged_and_retried(
    folder: FleetFolder, log: Log
) -> None:
    land(folder, Lane().seal(some_events(1)))
    folder.landing.rename(folder.root / "away")
    folder.landing.symlink_to(folder.landing)
    async with ingesting(folder, RECORDS):
        event, fields = await log.next()
        assert (event, fields["text"].startswith("cannot list the landing: ")) == ("ingest", True)
        assert str(folder.landing) in fields["text"]
        folder.landing.unlink()
        (folder.root / "away").rename(folder.landing)
        while event == "ingest":
            event, fields = await log.next()
    assert event == "ingested"


@pytest.mark.parametrize(("script", "status"), [(HANGS, -15), (IGNORES, -9)])
async def test_a_running_ingest_is_terminated_at_the_end(
    folder: FleetFolder, monkeypatch: pytest.MonkeyPatch, script: str, status: int, tmp_path: Path
) -> None:
    land(folder, Lane().seal(some_events(1)))
    os.mkfifo(tmp_path / "ready")
    started: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
    create = asyncio.create_subprocess_exec

    async def record_process(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*arguments, **options)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", record_process)
    if status == -9:
        monkeypatch.setattr(module, "STOP_S", 0.05)
    command = (sys.executable, "-c", script, str(tmp_path / "ready"))
    async with periodic_ingest(LocalStorage(folder.root), IngestPlan(command, 0.01)):
        process = await asyncio.wait_for(started.get(), LIMIT_S)
        await asyncio.wait_for(asyncio.to_thread((tmp_path / "ready").read_bytes), LIMIT_S)
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == status


async def test_the_real_ingest_command_is_started(folder: FleetFolder, log: Log) -> None:
    put(folder.landing / "x" / "empty.seg", b"")
    land(folder, Lane().seal(some_events(3)))
    plan = IngestPlan((*COMMAND, "--dir", str(folder.root)), 0.01)
    async with periodic_ingest(LocalStorage(folder.root), plan):
        event, fields = await log.next()
    assert (event, fields["text"]) == (
        "ingested",
        "ingested 1 segments with 3 events in 1 batch; 0 duplicates skipped, 1 quarantined",
    )


@pytest.mark.parametrize(
    ("option", "needed"),
    [("--report", "--ingest-every"), ("--tables", "--ingest-every"), ("--spool", "--landing")],
)
def test_options_that_need_another_one(folder: FleetFolder, option: str, needed: str) -> None:
    result = fleet_command("serve", "--dir", folder.root, option, "1")
    assert (result.returncode, f"{option} requires {needed}" in result.stderr) == (2, True)


def test_the_folder_of_the_report_is_checked_before_gateways_connect(
    folder: FleetFolder, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    words = ("--ingest-every", "60", "--report", tmp_path / "file" / "out")
    result = fleet_command("serve", "--dir", folder.root, "--listen", "127.0.0.1:0", *words)
    assert (result.returncode, result.stdout) == (1, "")
    assert str(tmp_path / "file" / "out") in result.stderr


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [("ftp://fleet/report", "cannot open ftp://fleet/report"), ("s3://fleet/report", "")],
)
def test_a_report_goes_into_a_bucket_which_may_be_away(
    folder: FleetFolder, monkeypatch: pytest.MonkeyPatch, uri: str, complaint: str
) -> None:
    plans: list[IngestPlan] = []

    async def serve(*arguments: Any) -> None:
        plans.extend(each for each in arguments if isinstance(each, IngestPlan))

    monkeypatch.setattr("sync.receiver.server.serve", serve)
    words = ("--behind-proxy", "--ingest-every", "60", "--report", uri)
    result = fleet_command("serve", "--dir", folder.root, *words)
    assert complaint in result.stderr
    assert [plan.report for plan in plans] == ([] if complaint else [uri])
