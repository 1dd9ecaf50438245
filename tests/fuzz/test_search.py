from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import __main__ as runner
from tests.fuzz import targets
from tests.fuzz.__main__ import Outcome

ROOT = Path(__file__).parents[2]
COMMAND_S = 60.0
GOOD = "stat::number_of_executed_units: 1000\nstat::peak_rss_mb: 42\n"


def run(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("outcome", "clean"),
    [
        (Outcome(1000, 1.0, 42, [], GOOD), True),
        (Outcome(1000, 1.0, 42, ["crash-1"], GOOD), False),
        (Outcome(1000, 1.0, 42, [], GOOD + "\nexit status 77\n"), False),
        (Outcome(0, 1.0, 0, [], "Traceback"), False),
    ],
    ids=["clean", "finding", "bad exit status", "not started"],
)
def test_report_prints_findings_and_judges_the_outcome(
    outcome: Outcome, clean: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.report(targets.load("escape"), outcome) is clean
    printed = capsys.readouterr().out
    assert f"{outcome.executions} executions" in printed
    assert all(name in printed for name in outcome.findings)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
def test_a_short_search_reports_its_executions() -> None:
    done = run("--seconds", "1", "escape")
    assert done.returncode == 0, done.stdout
    assert "executions" in done.stdout
    assert done.stdout.endswith("nothing was found\n")
