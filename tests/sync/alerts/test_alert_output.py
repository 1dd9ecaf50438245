"""Alerts as JSON lines: complete, durable and rotated."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sync.alerts.incidents import Alert, IncidentTracker
from sync.alerts.json_lines import ROTATED_FILES, JsonLinesOutput
from sync.alerts.rules import Subject, problem
from tests.helpers.alerting import NOON


def message(number: int) -> Alert:
    key = Subject("queue_stuck", "gw.example", f"jobs-{number}\n")
    [alert] = IncidentTracker().update([problem(key, NOON, NOON, "It stands still.")], NOON)
    return alert


def subjects(path: Path) -> list[str]:
    return [json.loads(line)["subject"] for line in path.read_text("utf-8").splitlines()]


def test_each_alert_is_a_line_in_output_and_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "alerts.jsonl"
    lines = JsonLinesOutput(out)
    lines.write([])
    assert not out.exists()
    lines.write([message(1), message(2)])
    lines.write([message(3)])
    assert subjects(out) == ["jobs-1\n", "jobs-2\n", "jobs-3\n"]
    assert capsys.readouterr().out == out.read_text("utf-8")
    assert out.stat().st_mode & 0o777 == 0o600
    row = json.loads(out.read_text("utf-8").splitlines()[0])
    assert list(row) == [
        *("id", "state", "kind", "gateway", "subject", "since", "until", "at"),
        *("text", "remedy", "held"),
    ]


def test_full_file_is_rotated(tmp_path: Path) -> None:
    out = tmp_path / "alerts.jsonl"
    lines = JsonLinesOutput(out, max_file_bytes=1_000)
    for number in range(20):
        lines.write([message(number)])
    files = [out, *(tmp_path / f"alerts.jsonl.{number}" for number in range(1, ROTATED_FILES + 1))]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in files}
    assert all(path.stat().st_size <= 1_000 for path in files)
    kept = [subject for path in reversed(files) for subject in subjects(path)]
    assert kept == [f"jobs-{number}\n" for number in range(20)][-len(kept) :]


def test_truncated_line_is_ended(tmp_path: Path) -> None:
    out = tmp_path / "alerts.jsonl"
    out.write_text('{"id": "cut', "utf-8")
    JsonLinesOutput(out).write([message(1)])
    first, second = out.read_text("utf-8").splitlines()
    assert (first, json.loads(second)["subject"]) == ('{"id": "cut', "jobs-1\n")


def test_names_are_escaped_in_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Жук \u2028\u0085\u009b2J\u202e\U000e0001"
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "latin-1"))
    key = Subject("queue_stuck", "gw.example", name)
    alerts = IncidentTracker().update([problem(key, NOON, NOON, "It stands still.")], NOON)
    JsonLinesOutput(tmp_path / "alerts.jsonl").write(alerts)
    data = out.getvalue()
    assert (tmp_path / "alerts.jsonl").read_bytes() == data
    [line] = data.decode().splitlines()
    assert line.isprintable()
    assert "Жук" in line
    assert json.loads(line)["subject"] == name
