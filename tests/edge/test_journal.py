from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from edge.engine.store.events import NewEvent
from edge.journal import MAX_TEXT, Journal

REFUSED = NewEvent(
    "limit", source="192.0.2.7", name="authentication", value=3.0, level="Warning",
    text="wrong password", tags={"account": "pump1"},
)  # fmt: skip
FULL = NewEvent("store", name="full", level="Error", tags={"rule": "disk"})
READY = NewEvent("system", name="start", value=60.0, unit="s")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def without_time(text: str) -> list[str]:
    """Return the lines without their times, which are in UTC, to the second."""
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*)"
    matches = [re.fullmatch(stamp, line) for line in text.splitlines()]
    return [match[1] if match else f"without a time: {text}" for match in matches]


def test_events_from_level_warning_on_are_written(stream: io.StringIO) -> None:
    depth = NewEvent("queue", "a@gw", "plant/q", "depth", 2.5, "s", "Warning")
    Journal(stream=stream).log_events([READY, REFUSED, FULL, depth])
    assert without_time(stream.getvalue()) == [
        "Warning: limit authentication: wrong password (source=192.0.2.7, value=3, account=pump1)",
        "Error: store full (rule=disk)",
        "Warning: queue depth (source=a@gw, topic=plant/q, value=2.5 s)",
    ]


@pytest.mark.parametrize(("level", "count"), [("informational", 3), ("Error", 1), ("alert", 0)])
def test_the_level_filters_events(stream: io.StringIO, level: str, count: int) -> None:
    Journal(level, stream=stream).log_events([READY, REFUSED, FULL])
    assert stream.getvalue().count("\n") == count


def test_json_has_one_object_per_line(stream: io.StringIO) -> None:
    journal = Journal(form="json", stream=stream)
    journal.log_events([REFUSED])
    journal.warn("no control socket")
    journal.fail("the database: disk I/O error")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "Warning", "kind": "limit", "source": "192.0.2.7", "name": "authentication",
        "value": 3.0, "text": "wrong password", "tags": {"account": "pump1"},
    }  # fmt: skip
    assert (second["level"], second["text"]) == ("Warning", "no control socket")
    assert (third["level"], third["text"]) == ("Error", "the database: disk I/O error")


def test_a_failure_is_written_at_any_level(stream: io.StringIO) -> None:
    journal = Journal("emergency", stream=stream)
    journal.warn("no control socket")
    journal.fail("the database: disk I/O error")
    assert stream.getvalue() == "Error: the database: disk I/O error\n"


def test_foreign_text_forges_no_line(stream: io.StringIO) -> None:
    event = REFUSED._replace(text="a\nb\x1b[2J", tags={"account": "x\n<0>y"})
    Journal(stream=stream).log_events([event])
    (line,) = without_time(stream.getvalue())
    assert "a\\nb\\x1b[2J" in line
    assert "account=x\\n<0>y" in line


def test_a_fault_is_written_with_its_traceback(stream: io.StringIO) -> None:
    journal = Journal(stream=stream)
    try:
        raise ValueError("a bug")
    except ValueError as error:
        context = {"message": "a unit failed", "exception": error}
    journal.log_fault(context)
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(" Error: a unit failed")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: a bug"
    stream.truncate(0)
    Journal(form="json", stream=stream).log_fault(context)
    line = json.loads(stream.getvalue().lstrip("\0"))
    assert line["text"] == "a unit failed"
    assert line["trace"].endswith("ValueError: a bug\n")


@contextmanager
def pipe(monkeypatch: pytest.MonkeyPatch, *, named: bool = True) -> Iterator[tuple[int, TextIO]]:
    """Open a pipe, which $JOURNAL_STREAM names if `named`, as systemd does with its socket."""
    reader, writer = os.pipe()
    file_status = os.fstat(writer)
    inode = file_status.st_ino if named else file_status.st_ino + 1
    monkeypatch.setenv("JOURNAL_STREAM", f"{file_status.st_dev}:{inode}")
    try:
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            yield reader, stream
    finally:
        os.close(reader)


def test_systemd_reads_the_priority_of_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe(monkeypatch) as (reader, stream):
        journal = Journal("debug", stream=stream)
        journal.log_events([READY, REFUSED, FULL])
        journal.warn("no control socket")
        journal.fail("the database: disk I/O error")
        journal.log_fault({"message": "a\nb"})
        lines = os.read(reader, 4096).decode().splitlines()
    assert lines == [
        "<6>system start (value=60 s)",
        "<4>limit authentication: wrong password (source=192.0.2.7, value=3, account=pump1)",
        "<3>store full (rule=disk)",
        "<4>no control socket",
        "<3>the database: disk I/O error",
        "<3>a\\nb",
    ]


@pytest.mark.parametrize("value", ["", "x", "1:2:3", "8:"])
def test_another_stream_gets_no_priorities(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pipe(monkeypatch, named=False) as (reader, stream):
        Journal(stream=stream).warn("a")
        monkeypatch.setenv("JOURNAL_STREAM", value)
        Journal(stream=stream).warn("b")
        assert without_time(os.read(reader, 4096).decode()) == ["Warning: a", "Warning: b"]


def test_a_reader_that_does_not_read_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe(monkeypatch) as (reader, stream):
        journal = Journal(stream=stream)
        for _ in range(1000):
            journal.warn("x" * 1000)
        text = os.read(reader, 1 << 20).decode()
        written = text.splitlines()
        assert set(written) == {f"<4>{'x' * MAX_TEXT}..."}
        journal.warn("again")
        lines = os.read(reader, 4096).decode().splitlines()
    assert 0 < len(written) < 1000
    assert lines == [
        f"<4>{1000 - len(written)} lines could not be written: standard error was full",
        "<4>again",
    ]


def test_a_closed_stream_is_tolerated(tmp_path: Path) -> None:
    stream = (tmp_path / "log").open("w")
    stream.close()
    Journal(stream=stream).warn("a")
