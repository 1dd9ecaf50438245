"""The log of an ingest that goes on is bounded, while a process that has it open writes on."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, cast

import pytest
from pyspark.sql import SparkSession

from sync.cli.commands import ingest
from sync.common.errors import LeaseError
from sync.ingest import continuous
from sync.ingest.continuous import LOG_BYTES, run_continuously, truncate_log
from sync.ingest.ingest import IngestControl, IngestResult
from sync.tables.locations import FleetStorage
from sync.tables.manifest import Counts, LocalCommits
from sync.tables.spark_session import spark_errors
from tests.helpers.fleet_tables import fleet_folder

_JVM = """\
import os, sys
for line in sys.stdin:
    os.write(2, line.encode())
    print(flush=True)
"""


@contextlib.contextmanager
def jvm() -> Iterator[Callable[[str], None]]:
    """Have another process write on the stderr of now; gives what makes it write a line."""
    with subprocess.Popen(
        [sys.executable, "-c", _JVM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def say(line: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            print(line, file=process.stdin, flush=True)
            assert process.stdout.readline() == "\n"

        try:
            yield say
        finally:
            process.kill()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "ingest.log"


def test_the_last_part_is_kept_and_the_writer_goes_on_in_an_empty_file(log: Path) -> None:
    kept = log.with_name("ingest.log.1")
    with spark_errors(log), jvm() as say:
        say("12345")
        truncate_log(log, 6)
        assert (log.read_text(), kept.exists()) == ("12345\n", False)
        say("6789")
        truncate_log(log, 6)
        assert (log.read_bytes(), kept.read_text()) == (b"", "\n6789\n")
        assert kept.stat().st_mode & 0o777 == 0o600
        say("abc")
        os.write(2, b"of Python\n")
        assert log.read_text() == "abc\nof Python\n"
        truncate_log(log, 6)
        assert (log.read_bytes(), kept.read_text()) == (b"", "ython\n")


def test_the_log_that_another_run_began_meanwhile_is_left_alone(log: Path) -> None:
    with spark_errors(log), jvm() as say:
        mine = os.dup(2)
        try:
            with spark_errors(log):
                os.write(2, b"of another run\n")
            say("of this one")
            truncate_log(log, 6)
            assert os.fstat(mine).st_size == 0
        finally:
            os.close(mine)
    assert log.read_text() == "of another run\n"


def test_what_cannot_be_kept_is_cut_all_the_same_and_that_is_told(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, which the cut gives room; an ingest must not end for its log."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "ingest.log.1")

    monkeypatch.setattr(continuous, "replace_file", full)
    with spark_errors(log), jvm() as say:
        say("more than six")
        truncate_log(log, 6)
        say("and on")
    told = "what stood here is lost: ingest.log.1: No space left on device\n"
    assert log.read_text() == f"{told}and on\n"
    assert not log.with_name("ingest.log.1").exists()


class Busy(LocalCommits):
    """Tables that upkeep has; `asked` is called each time that an ingest asks for them."""

    asked: Callable[[], None]

    def lease(self) -> NoReturn:
        self.asked()
        raise LeaseError("upkeep is at work")


class Unpaused(threading.Event):
    """Lets who waits for it with a time-out go on at once."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        return self.is_set()


@pytest.mark.parametrize("diverted", [True, False])
def test_an_ingest_that_goes_on_bounds_its_log(tmp_path: Path, *, diverted: bool) -> None:
    fleet, watch = fleet_folder(tmp_path / "fleet"), IngestControl(stopping=Unpaused())
    log, commits = fleet.tables / "ingest.log", Busy(fleet.tables)
    sizes: list[int] = []

    def asked() -> None:
        sizes.append(os.fstat(2).st_size)
        os.write(2, b"x" * (LOG_BYTES // 2 + 1))
        if len(sizes) == 5:
            watch.stopping.set()

    commits.asked = asked
    spark = cast("SparkSession", None)
    with spark_errors(log):
        total = run_continuously(
            *(spark, FleetStorage.of(fleet), commits, watch),
            every_s=0,
            log=log if diverted else None,
        )
    half = LOG_BYTES // 2 + 1
    assert total == IngestResult(0, Counts())
    assert sizes == ([0, half, 0, half, 0] if diverted else [half * count for count in range(5)])


@pytest.mark.parametrize(
    "path",
    [
        "docs/how-to/maintain-the-tables.md",
        "docs/how-to/run-the-centre.md",
        "deploy/centre/README.md",
        ingest.__file__,
    ],
    ids=lambda path: Path(path).name,
)
def test_the_bound_is_as_told(path: str) -> None:
    text = (Path(__file__).parents[2] / path).read_text("utf-8")
    [told] = [line for line in text.split("\n\n") if "ingest.log.1" in line]
    assert f"{LOG_BYTES // 2**20} MiB" in told
