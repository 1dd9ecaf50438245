from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firmware_sim.__main__ import main
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import Level, Message, State
from firmware_sim.scenarios.record import RunRecord, outbox


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return the folder of a run with two messages, one delivered and one in doubt."""
    record = RunRecord.begin(tmp_path / "run", "gw", ("a",), 2)
    state = tmp_path / "run"
    jid = record.jid("a")
    with Outbox.open(outbox(state, jid), jid, record.limits) as opened:
        for number, end in enumerate([State.DONE, State.IN_DOUBT], 1):
            with opened.transaction():
                opened.add("gw", Level.ASSURED, "<m/>", str(number))
                opened.save(State.QUEUED, Message(number, Level.ASSURED, 4, end))
    row = {"kind": "log", "name": "Counted", "source": "a@gw/fw"}
    lines = [{**row, "tags": {"run": record.run, "n": str(n)}} for n in (1, 2)]
    (tmp_path / "events").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_verdict_is_printed_after_the_run(run_folder: Path) -> None:
    arguments = ["verdict", "--state", run_folder / "run", "--events", run_folder / "events"]
    done = run(*arguments)
    assert done.exit_code == 1
    assert "in doubt             1  of which logged: 1" in done.output
    assert "NOT exact" in done.output
    found = json.loads(run(*arguments, "--json").output)
    assert (found["planned"], found["delivered"], found["logged"]) == (2, 1, 2)
    assert found["examples"] == {"in doubt": ["a@gw/fw n=2"]}


def test_unreadable_log_is_a_failure(run_folder: Path) -> None:
    (run_folder / "events").write_text("nonsense\n")
    done = run("verdict", "--state", run_folder / "run", "--events", run_folder / "events")
    assert done.exit_code == 1
    assert "line 1 is not JSON" in done.output
    done = run("verdict", "--state", run_folder / "run", "--gateway-dir", run_folder)
    assert done.exit_code == 1
    assert "fieldpost events" in done.output


def test_verdict_needs_a_run_and_a_log(run_folder: Path) -> None:
    assert run("verdict", "--state", run_folder / "run").exit_code == 2
    done = run("verdict", "--state", run_folder, "--events", run_folder / "events")
    assert done.exit_code == 2
    assert "contains no run" in done.output


@pytest.mark.parametrize(
    ("accounts", "arguments", "error"),
    [
        ("{}", ["--devices", 1], "has 0 accounts, fewer than --devices 1"),
        ("[]", ["--devices", 1], "not a JSON object"),
        ('{"a": 1}', ["--devices", 1], "not a JSON object"),
        ("{", ["--devices", 1], "is not JSON"),
        ('{"a": "b"}', ["--devices", 0], "not in the range"),
        ('{"a": "b"}', ["--devices", 1, "--messages", 3], "different run"),
    ],
)
def test_wrong_usage(run_folder: Path, accounts: str, arguments: list[object], error: str) -> None:
    (run_folder / "accounts").write_text(accounts)
    (run_folder / "ca").write_text("")
    files = ["--ca", run_folder / "ca", "--accounts", run_folder / "accounts"]
    options = ["--port", 5222, "--domain", "gw", "--state", run_folder / "run"]
    done = run("run", "count", *files, *options, *arguments)
    assert done.exit_code == 2
    assert error in done.output


def test_unknown_attack_is_wrong_usage() -> None:
    done = run("run", "attack", "--attack", "dancing")
    assert done.exit_code == 2
    assert "no such attacks: dancing" in done.output


@pytest.mark.parametrize("scenario", ["custody", "attack", "workers"])
def test_folder_that_is_not_empty_is_refused(tmp_path: Path, scenario: str) -> None:
    (tmp_path / "something").write_text("")
    done = run("run", scenario, "--state", tmp_path)
    assert done.exit_code == 2
    assert "is not empty" in done.output
