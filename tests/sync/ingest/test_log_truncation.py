"""The log of a continuous ingest is truncated while another process appends to it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from sync.cli.commands import ingest
from sync.common.errors import LeaseError
from sync.ingest import continuous
from sync.ingest.continuous import LOG_BYTES, run_continuously, truncate_log
from sync.ingest.ingest import IngestControl
from sync.tables.locations import FleetStorage
from sync.tables.spark_session import spark_errors
from sync.tables.storage import LocalStorage
from tests.helpers.fleet_tables import fleet_folder

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


def test_the_end_of_the_log_is_kept_and_the_writer_continues_in_an_empty_file(log: Path) -> None:
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


def test_a_log_that_another_run_began_is_not_truncated(log: Path) -> None:
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


def test_the_log_is_truncated_even_if_its_end_cannot_be_kept(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, truncating frees space; the ingest must not fail because of its log."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "ingest.log.1")

    monkeypatch.setattr(continuous, "replace_file", full)
    with spark_errors(log), jvm() as say:
        say("more than six")
        truncate_log(log, 6)
        say("and on")
    told = "earlier messages are lost: ingest.log.1: No space left on device\n"
    assert log.read_text() == f"{told}and on\n"
    assert not log.with_name("ingest.log.1").exists()


class Busy(LocalStorage):
    """A storage whose lease maintenance holds; `asked` is called at each attempt to take it."""

    asked: Callable[[], None]

    def lease(self, wait_s: float = 0.0) -> NoReturn:
        self.asked()
        raise LeaseError("maintenance is running")


class Unpaused(threading.Event):
    """An event whose `wait` returns at once."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        return self.is_set()


@pytest.mark.parametrize("diverted", [True, False])
def test_a_continuous_ingest_truncates_its_log(tmp_path: Path, *, diverted: bool) -> None:
    fleet, watch = fleet_folder(tmp_path / "fleet"), IngestControl(stopping=Unpaused())
    log, busy = fleet.tables / "ingest.log", Busy(fleet.tables)
    sizes: list[int] = []

    def asked() -> None:
        sizes.append(os.fstat(2).st_size)
        os.write(2, b"x" * (LOG_BYTES // 2 + 1))
        if len(sizes) == 5:
            watch.stopping.set()

    busy.asked = asked
    with spark_errors(log):
        run_continuously(
            *(
                lambda: pytest.fail("there is no lease"),
                FleetStorage(LocalStorage(fleet.root), busy),
                watch,
            ),
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
        ingest.__file__,
    ],
    ids=lambda path: Path(path).name,
)
def test_the_documented_size_of_the_log(path: str) -> None:
    text = (Path(__file__).parents[3] / path).read_text("utf-8")
    [told] = [line for line in text.split("\n\n") if "ingest.log.1" in line]
    assert f"{LOG_BYTES // 2**20} MiB" in told
