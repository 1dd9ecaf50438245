from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import __main__ as runner
from tests.fuzz import targets


@pytest.mark.parametrize(("program", "clean"), [("true", True), ("false", False)])
def test_a_search_is_judged_by_its_exit_status(
    program: str, clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("SCRATCH", "FINDINGS"):
        monkeypatch.setattr(targets, folder, tmp_path / folder)
    monkeypatch.setattr(sys, "executable", shutil.which(program))
    assert runner.search(targets.load("escape"), 1.0) is clean
    assert len(list((tmp_path / "SCRATCH" / "escape").iterdir())) > 1, "the corpus"


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
def test_a_short_search_shows_its_executions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "escape"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "stat::number_of_executed_units" in done.stdout
    assert "nothing was found\n" in done.stdout
