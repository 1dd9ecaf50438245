"""Continuous ingest, stopping it, and truncating its log while another process appends to it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from sync.cli.commands import ingest as ingest_command
from sync.common.errors import LeaseError
from sync.ingest import continuous
from sync.ingest.continuous import LOG_BYTES, run_continuously, stopped_by_signals, truncate_log
from sync.ingest.ingest import IngestControl, IngestResult
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage
from sync.tables.delta import Counts, local_tables
from sync.tables.spark_session import spark_errors
from tests.helpers.fleet_tables import Lane, fleet_folder, land, some_events, waiting_segments
from tests.helpers.local_ingest import ingest, no_spark


class InitiallyLeasedStorage(LocalStorage):
    """A storage whose lease is held by maintenance at the first attempt."""

    attempts = 0

    @contextlib.contextmanager
    def lease(self, wait_s: float = 0.0) -> Iterator[None]:
        self.attempts += 1
        if self.attempts == 1:
            raise LeaseError("maintenance is running")
        with super().lease(wait_s):
            yield


def test_a_continuous_ingest_repeats_and_stops_after_the_current_batch(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / "fleet")
    lane, storage = Lane(), InitiallyLeasedStorage(fleet.tables)
    land(fleet, lane.seal(some_events(2)))
    results: list[IngestResult] = []
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if steps.count("committed") == 2:
            control.stopping.set()

    def on_run(result: IngestResult) -> None:
        results.append(result)
        if len(results) == 1:
            for _ in range(3):
                land(fleet, lane.seal(some_events(2)))

    control = IngestControl(on_step)
    run_continuously(
        *(no_spark, FleetStorage(LocalStorage(fleet.root), storage), control, on_run),
        every_s=0,
        batch_files=1,
    )
    assert storage.attempts == 3
    assert results == [IngestResult(1, Counts(1, 2)), IngestResult(1, Counts(1, 2))]
    assert local_tables(fleet.tables).snapshot().batch == 2
    assert len(waiting_segments(fleet)) == 2
    assert ingest(fleet).counts == Counts(2, 4)


def test_signals_stop_the_ingest_and_their_handlers_are_restored() -> None:
    stopping = threading.Event()
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals(stopping):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(30)
    assert signal.getsignal(signal.SIGTERM) == before


_JVM = """\
import os, sys
for line in sys.stdin:
    os.write(2, line.encode())
    print(flush=True)
"""


@contextlib.contextmanager
def jvm() -> Iterator[Callable[[str], None]]:
    """Run a process that inherits stderr; yield a function that makes it write a line."""
    with subprocess.Popen(
        [sys.executable, "-c", _JVM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def write(line: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            print(line, file=process.stdin, flush=True)
            assert process.stdout.readline() == "\n"

        try:
            yield write
        finally:
            process.kill()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "ingest.log"


def test_the_end_of_the_log_is_kept_and_the_writer_continues_in_an_empty_file(log: Path) -> None:
    kept = log.with_name("ingest.log.1")
    with spark_errors(log), jvm() as write:
        write("12345")
        truncate_log(log, 6)
        assert (log.read_text(), kept.exists()) == ("12345\n", False)
        write("6789")
        truncate_log(log, 6)
        assert (log.read_bytes(), kept.read_text()) == (b"", "\n6789\n")
        assert kept.stat().st_mode & 0o777 == 0o600
        write("abc")
        os.write(2, b"of Python\n")
        assert log.read_text() == "abc\nof Python\n"
        truncate_log(log, 6)
        assert (log.read_bytes(), kept.read_text()) == (b"", "ython\n")


def test_a_log_that_another_run_began_is_not_truncated(log: Path) -> None:
    with spark_errors(log), jvm() as write:
        stderr_copy = os.dup(2)
        try:
            with spark_errors(log):
                os.write(2, b"of another run\n")
            write("of this one")
            truncate_log(log, 6)
            assert os.fstat(stderr_copy).st_size == 0
        finally:
            os.close(stderr_copy)
    assert log.read_text() == "of another run\n"


def test_the_log_is_truncated_even_if_its_end_cannot_be_kept(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, truncating frees space; the ingest must not fail because of its log."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "ingest.log.1")

    monkeypatch.setattr(continuous, "replace_file", full)
    with spark_errors(log), jvm() as write:
        write("more than six")
        truncate_log(log, 6)
        write("and on")
    notice = "earlier messages are lost: ingest.log.1: No space left on device\n"
    assert log.read_text() == f"{notice}and on\n"
    assert not log.with_name("ingest.log.1").exists()


class LeasedStorage(LocalStorage):
    """A storage whose lease maintenance holds; `on_attempt` is called when it is requested."""

    on_attempt: Callable[[], None]

    def lease(self, wait_s: float = 0.0) -> NoReturn:
        self.on_attempt()
        raise LeaseError("maintenance is running")


class ImmediateEvent(threading.Event):
    """An event whose `wait` returns at once."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        return self.is_set()


@pytest.mark.parametrize("diverted", [True, False])
def test_a_continuous_ingest_truncates_its_log(tmp_path: Path, *, diverted: bool) -> None:
    fleet, watch = fleet_folder(tmp_path / "fleet"), IngestControl(stopping=ImmediateEvent())
    log, leased = fleet.tables / "ingest.log", LeasedStorage(fleet.tables)
    sizes: list[int] = []

    def on_attempt() -> None:
        sizes.append(os.fstat(2).st_size)
        os.write(2, b"x" * (LOG_BYTES // 2 + 1))
        if len(sizes) == 5:
            watch.stopping.set()

    leased.on_attempt = on_attempt
    with spark_errors(log):
        run_continuously(
            *(no_spark, FleetStorage(LocalStorage(fleet.root), leased), watch),
            every_s=0,
            log=log if diverted else None,
        )
    half = LOG_BYTES // 2 + 1
    assert sizes == ([0, half, 0, half, 0] if diverted else [half * count for count in range(5)])


@pytest.mark.parametrize(
    "path",
    [
        "docs/how-to/maintain-the-tables.md",
        "docs/how-to/run-the-centre.md",
        "deploy/centre/README.md",
        ingest_command.__file__,
    ],
    ids=lambda path: Path(path).name,
)
def test_the_size_of_the_log_is_documented(path: str) -> None:
    text = (Path(__file__).parents[3] / path).read_text("utf-8")
    [paragraph] = [part for part in text.split("\n\n") if "ingest.log.1" in part]
    assert f"{LOG_BYTES // 2**20} MiB" in paragraph
