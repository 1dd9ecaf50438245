"""Tests of the `fieldpost-sim run workers` command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.simulator import simulate


def test_each_item_is_done_and_deleted_once(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    workers, items, kills = scale(3, 20), scale(40, 5_000), scale(1, 3)
    words = ["--workers", workers, "--items", items, "--kills", kills, "--members", scale(2, 3)]
    words += ["--seconds", scale(1, 60), "--faults", 0.2 if items < 1_000 else 0.05]
    status, found, said = simulate("workers", *words, "--seed", seed, "--state", tmp_path / "run")
    assert status == 0, json.dumps(found, indent=1) + said
    assert found["exact"] is True
    assert found["kills"] == kills
    queue = found["queue"]
    assert queue["planned"] == queue["published"] == items
    assert queue["deleted"] + queue["dead"] >= items
    assert queue["dead"] >= 1, "one that no worker can do is planned"
    assert found["fairness"]["least"] * workers * 1.2 >= items / 2
    shares = found["shares"]
    assert shares["taken"][1:] == shares["planned"][1:]
    assert shares["again"][2] >= shares["lost"][2] == 0


@pytest.mark.long
def test_unfinished_items_are_reported(tmp_path: Path) -> None:
    words = ["--workers", 1, "--items", 4, "--members", 0, "--kills", 0, "--faults", 0.0]
    words += ["--seconds", 0.0, "--patience", 0.0]
    status, found, _ = simulate("workers", *words, "--state", tmp_path / "run")
    assert status == 1
    assert found["exact"] is False
    assert found["faults"]
