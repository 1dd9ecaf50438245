from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmware_sim.device.sender_rules import State
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios import gateway_command
from firmware_sim.scenarios.count_verdict import judge
from firmware_sim.scenarios.record import RunMismatch, RunRecord
from firmware_sim.scenarios.verdict import SHOWN

A, B = ("a@gw/fw", 1), ("a@gw/fw", 2)


def test_each_message_delivered_and_logged_once_is_exact() -> None:
    found = judge(2, {A: State.DONE, B: State.DONE}, [B, A])
    assert found.exact
    assert found.passed
    assert [found.numbers[name] for name in ("sent", "delivered", "logged")] == [2, 2, 2]
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
    assert {name: found.numbers[name] for name in names if found.numbers[name]} == differs
    assert found.lines()[-1].endswith("NOT exact")
    assert found.as_json()["exact"] is False


def test_without_a_log_there_is_no_verdict() -> None:
    found = judge(1, {A: State.DONE}, None)
    assert not found.exact
    assert found.passed
    assert found.numbers["missing"] == 0
    assert found.lines()[-1] == "verdict           none"
    assert not judge(2, {A: State.DONE}, None).passed


def test_number_of_examples_is_bounded() -> None:
    found = judge(100, {("a", n): State.DONE for n in range(100)}, [])
    assert found.numbers["missing"] == found.as_json()["faults"]["missing"] == 100
    assert found.as_json()["examples"] == {"missing": [f"a n={n}" for n in range(SHOWN)]}
    assert found.lines()[-2:] == [f"  a n={SHOWN - 1}", "verdict      NOT exact"]


def _event(**changes: object) -> dict[str, object]:
    row = {"kind": "log", "name": "Counted", "source": "a@gw/fw", "tags": {"run": "r", "n": "7"}}
    return {**row, **changes}


def test_only_events_of_the_run_are_read() -> None:
    events = [
        _event(),
        _event(tags={"run": "other", "n": "8"}),
        _event(tags=None),
        _event(name="Other"),
        _event(kind="system"),
        _event(source="b@gw/fw"),
    ]
    assert list(gateway_command.of_run(events, "r")) == [("a@gw/fw", 7), ("b@gw/fw", 7)]


@pytest.mark.parametrize(
    "fields", [{"source": None}, {"tags": {"run": "r"}}, {"tags": {"run": "r", "n": "x"}}]
)
def test_an_incomplete_event_of_the_run_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="has no source, or no number"):
        list(gateway_command.of_run([_event(**fields)], "r"))


def test_empty_lines_are_skipped() -> None:
    assert list(gateway_command.objects(["", '{"a": 1}', " "])) == [{"a": 1}]


@pytest.mark.parametrize("line", ["{", "[1]", "no"])
def test_invalid_line_is_reported_by_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(gateway_command.objects([json.dumps(_event()), line]))


def test_failed_events_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SimulationFailed, match="fieldpost events"):
        gateway_command.read(tmp_path / "nothing", "events")


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
