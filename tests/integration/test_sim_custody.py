"""Tests of the `fieldpost-sim run custody` command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from firmware_sim.__main__ import main
from tests.helpers.simulator import simulate


def test_each_message_is_delivered_as_its_level_promises(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    devices, messages, kills = scale(6, 100), scale(60, 20_000), scale(1, 10)
    words = ["--devices", devices, "--messages", messages, "--kills", kills]
    words += ["--seconds", scale(2, 180), "--faults", 0.2 if messages < 1_000 else 0.05]
    status, found, said = simulate("custody", *words, "--seed", seed, "--state", tmp_path / "run")
    assert status == 0, json.dumps(found, indent=1) + said
    assert found["exact"] is True
    assert found["kills"] == kills
    levels = found["levels"]
    assert sum(levels["planned"]) == messages
    assert all(levels["ran"][level] > 0 for level in (1, 2)), levels
    assert levels["waiting"][1] + levels["waiting"][2] == found["waiting_expected"] > 0


@pytest.mark.long
def test_undelivered_messages_are_reported(tmp_path: Path) -> None:
    words = ["--devices", 2, "--messages", 4, "--kills", 0, "--faults", 0.0]
    words += ["--seconds", 0.0, "--patience", 0.0]
    status, found, _ = simulate("custody", *words, "--state", tmp_path / "run")
    assert status == 1
    assert found["exact"] is False
    assert found["faults"]


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    for scenario in ("custody", "attack", "workers"):
        done = CliRunner().invoke(main, ["run", scenario, "--state", str(tmp_path)])
        assert done.exit_code == 2
        assert "is not empty" in done.output
