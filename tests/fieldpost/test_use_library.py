from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fieldpost
from fieldpost import commands


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_a_checkout_changes_no_path() -> None:
    fieldpost.use_library()
    assert (sys.path, os.environ.get("PYTHONPATH")) == (["/elsewhere"], None)


def test_the_library_is_first_for_this_process_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fieldpost.use_library(tmp_path)
    assert (sys.path, os.environ["PYTHONPATH"]) == ([str(tmp_path), "/elsewhere"], str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/mine")
    fieldpost.use_library(tmp_path)
    assert os.environ["PYTHONPATH"] == f"{tmp_path}:/mine"


@pytest.mark.parametrize("command", [commands.gateway, commands.centre])
def test_entry_points_run_their_command(
    command: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fieldpost", "--help"])
    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage:")
