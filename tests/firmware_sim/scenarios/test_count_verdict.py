from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmware_sim.device.sender_rules import State
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import gateway_log
from firmware_sim.scenarios.count_verdict import SHOWN, judge
from firmware_sim.scenarios.record import RunMismatch, RunRecord

A, B = ("a@gw/fw", 1), ("a@gw/fw", 2)


def test_each_message_delivered_and_logged_once_is_exact() -> None:
    found = judge(2, {A: State.DONE, B: State.DONE}, [B, A])
    assert found.exact
    assert found.passed
    assert (found.sent, found.delivered, found.logged) == (2, 2, 2)
    assert found.lines()[-1] == "verdict          exact"


@pytest.mark.parametrize(
    ("planned", "believed", "logged", "differs"),
    [
        (3, {A: State.DONE, B: State.DONE}, [A, B], {}),
        (2, {A: State.DONE, B: State.DONE}, [A, B, B], {"duplicates": 1}),
        (2, {A: State.DONE, B: State.DONE}, [A], {"missing": 1}),
        (2, {A: State.DONE, B: State.FAILED}, [A, B], {"unexpected": 1, "failed": 1}),
        (1, {A: State.DONE}, [A, B], {"unexpected": 1}),
        (2, {A: State.DONE, B: State.IN_DOUBT}, [A, B], {"in_doubt": 1, "in_doubt_logged": 1}),
        (2, {A: State.DONE, B: State.IN_DOUBT}, [A], {"in_doubt": 1}),
        (2, {A: State.DONE, B: State.RELEASED}, [A, B], {"pending": 1}),
        (2, {A: State.DONE, B: State.QUEUED}, [A], {"pending": 1}),
    ],
)
def test_each_difference_is_counted(
    planned: int,
    believed: dict[tuple[str, int], State],
    logged: list[tuple[str, int]],
    differs: dict[str, int],
) -> None:
    found = judge(planned, believed, logged)
    assert not found.exact
    assert not found.passed
    names = [
        "duplicates", "missing", "unexpected", "in_doubt", "in_doubt_logged", "failed", "pending",
    ]  # fmt: skip
    assert {name: getattr(found, name) for name in names if getattr(found, name)} == differs
    assert found.lines()[-1].endswith("NOT exact")
    assert found.as_json()["exact"] is False


def test_without_a_log_there_is_no_verdict() -> None:
    found = judge(1, {A: State.DONE}, None)
    assert not found.exact
    assert found.passed
    assert found.missing == 0
    assert found.lines()[-1] == "verdict           none"
    assert not judge(2, {A: State.DONE}, None).passed


def test_number_of_examples_is_bounded() -> None:
    found = judge(100, {("a", n): State.DONE for n in range(100)}, [])
    assert found.missing == 100
    assert found.examples == {"missing": [f"a n={n}" for n in range(SHOWN)]}
    assert "  missing: a n=3" in found.lines()


def _event(**changes: object) -> str:
    row = {"kind": "log", "name": "Counted", "source": "a@gw/fw", "tags": {"run": "r", "n": "7"}}
    return json.dumps({**row, **changes})


def test_only_events_of_the_run_are_read() -> None:
    lines = [
        _event(),
        "",
        _event(tags={"run": "other", "n": "8"}),
        _event(tags=None),
        _event(name="Other"),
        _event(kind="system"),
        _event(source="b@gw/fw"),
    ]
    assert list(gateway_log.of_run(lines, "r")) == [("a@gw/fw", 7), ("b@gw/fw", 7)]


@pytest.mark.parametrize(
    "fields", [{"source": None}, {"tags": {"run": "r"}}, {"tags": {"run": "r", "n": "x"}}]
)
def test_an_incomplete_event_of_the_run_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="has no source, or no number"):
        list(gateway_log.of_run([_event(**fields)], "r"))


@pytest.mark.parametrize("line", ["{", "[1]", "no"])
def test_invalid_line_is_reported_by_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(gateway_log.events([_event(), line]))


def test_failed_events_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SimulationFailed, match="fieldpost events"):
        gateway_log.from_gateway(tmp_path / "nothing")


def test_run_continues_in_its_folder_and_another_is_refused(tmp_path: Path) -> None:
    run = RunRecord.begin(tmp_path / "s", "gw", ("a", "b"), 5)
    assert run.planned == 10
    assert RunRecord.begin(tmp_path / "s", "gw", ("a", "b"), 5) == run
    with pytest.raises(RunMismatch, match="different run"):
        RunRecord.begin(tmp_path / "s", "gw", ("a", "b"), 6)
    assert run.believed(tmp_path / "s") == {}
    assert RunRecord.begin(tmp_path / "t", "gw", ("a", "b"), 5).run != run.run


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"version": 9}', '{"version": 1}'])
def test_folder_without_a_run_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunMismatch):
        RunRecord.load(tmp_path)
