"""Progress of commands that take long, on a terminal and without one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync.common.progress import progress_line
from tests.helpers.fleet_tables import Lane, fleet_folder, land, some_events


@contextlib.contextmanager
def on_terminal() -> Iterator[int]:
    """Make standard error a terminal within the block; yield the side on which it is read."""
    reader, writer = pty.openpty()
    os.set_blocking(reader, False)
    kept = os.dup(2)
    os.dup2(writer, 2)
    try:
        yield reader
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, reader, writer):
            os.close(descriptor)


def read(descriptor: int) -> str:
    return os.read(descriptor, 65_536).decode()


def test_each_step_replaces_the_line_and_the_end_clears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with on_terminal() as terminal:
        with progress_line() as progress:
            progress("summarising days", 64, 400)
            assert read(terminal) == "\r\x1b[Ksummarising days: 64 of 400"
            progress("starting \x1b[31mSpark", 0, 0)
            assert read(terminal) == "\r\x1b[Kstarting \\x1b[31mSpark"
            progress("x" * 100, 0, 0)
            assert read(terminal) == "\r\x1b[K" + "x" * 39
        assert read(terminal) == "\r\x1b[K"


def test_the_terminal_is_used_while_standard_error_is_redirected(tmp_path: Path) -> None:
    with on_terminal() as terminal, (tmp_path / "log").open("wb") as log:
        kept = os.dup(2)
        with progress_line() as progress:
            os.dup2(log.fileno(), 2)
            progress("computing reports", 1, 2)
            os.dup2(kept, 2)
        os.close(kept)
        assert "computing reports: 1 of 2" in read(terminal)
    assert (tmp_path / "log").read_bytes() == b""


def test_nothing_is_shown_if_not_wanted() -> None:
    with on_terminal() as terminal:
        with progress_line(shown=False) as progress:
            progress("summarising days", 64, 400)
        with pytest.raises(BlockingIOError):
            read(terminal)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_ingest_shows_progress_on_a_terminal_only(tmp_path: Path, *, is_terminal: bool) -> None:
    fleet = fleet_folder(tmp_path / "fleet")
    lane = Lane()
    for _ in range(3):
        land(fleet, lane.seal(some_events(2)))
    reader, writer = pty.openpty()
    os.set_blocking(reader, False)
    done = subprocess.run(
        [sys.executable, "-m", "sync.cli", "ingest", "--batch-files", "2", "--dir", fleet.root],
        stdout=subprocess.PIPE,
        stderr=writer if is_terminal else subprocess.PIPE,
        timeout=120,
        check=True,
    )
    os.close(writer)
    assert done.stdout.startswith(b"ingested 3 segments with 6 events in 2 batches")
    if is_terminal:
        steps = re.split("\r\x1b\\[K", read(reader))
        assert [step for step in steps if step] == [
            "ingesting files: 0 of 3",
            "ingesting files: 2 of 3",
        ]
    else:
        assert done.stderr == b""
    os.close(reader)
