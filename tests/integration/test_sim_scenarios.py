"""Runs of `fieldpost-sim run attack`, `custody` and `workers`, and the gateways of such runs.

Response times are not judged, because other tests run on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from firmware_sim.attackers.__main__ import ALL
from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios.gateway_process import DOMAIN, GatewayProcess
from tests.helpers.simulator import simulate

PATIENCE_S = 900
"""Maximum seconds for deliveries after the time of a run; a busy machine needs many."""


def test_attack_leaves_memory_bounded_and_every_refusal_is_logged(
    tmp_path: Path, scale: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    words = ["--devices", scale(3, 10), "--quiet", scale(0, 20), "--attacked", scale(3, 40)]
    words += ["--no-judge-times", "--state", tmp_path / "run"]
    status, found, stderr = simulate("attack", *words)
    assert status == 0, json.dumps(found, indent=1) + stderr
    assert found["faults"] == {}
    assert found["honest"]["exact"] is True
    assert [row["name"] for row in found["attacks"]] == [attack.name for attack in ALL]
    record_property("memory_mib", found["memory_mib"])
    record_property("p99_ratio", found["p99_ratio"])


def test_custody_delivers_each_message_as_its_level_promises(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    devices, messages, kills = scale(6, 100), scale(60, 20_000), scale(1, 10)
    words = ["--devices", devices, "--messages", messages, "--kills", kills]
    words += ["--seconds", scale(2, 180), "--faults", 0.2 if messages < 1_000 else 0.05]
    words += ["--patience", PATIENCE_S]
    status, found, stderr = simulate("custody", *words, "--seed", seed, "--state", tmp_path / "run")
    assert status == 0, json.dumps(found, indent=1) + stderr
    assert (found["exact"], found["kills"]) == (True, kills)
    levels = found["levels"]
    assert sum(levels["planned"]) == messages
    assert all(levels["ran"][level] > 0 for level in (1, 2)), levels
    assert levels["waiting"][1] + levels["waiting"][2] == found["waiting_expected"] > 0


def test_workers_do_and_delete_each_item_once(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    workers, items, kills = scale(3, 20), scale(40, 5_000), scale(1, 3)
    words = ["--workers", workers, "--items", items, "--kills", kills, "--members", scale(2, 3)]
    words += ["--seconds", scale(1, 60), "--faults", 0.2 if items < 1_000 else 0.05]
    words += ["--patience", PATIENCE_S]
    status, found, stderr = simulate("workers", *words, "--seed", seed, "--state", tmp_path / "run")
    assert status == 0, json.dumps(found, indent=1) + stderr
    assert (found["exact"], found["kills"]) == (True, kills)
    queue = found["queue"]
    assert queue["planned"] == queue["published"] == items
    assert queue["deleted"] + queue["dead"] >= items
    assert queue["dead"] >= 1, "one planned item cannot be done"
    assert found["fairness"]["least"] * workers * 1.2 >= items / 2
    shares = found["shares"]
    assert shares["taken"][1:] == shares["planned"][1:]
    assert shares["again"][2] >= shares["lost"][2] == 0


@pytest.mark.long
def test_exceeded_memory_ceiling_fails_the_run(tmp_path: Path) -> None:
    words = ["--devices", 1, "--quiet", 0, "--attacked", 1, "--attack", "malformed requests"]
    words += ["--ceiling-mb", 1, "--no-judge-times", "--state", tmp_path / "run"]
    status, found, _ = simulate("attack", *words)
    assert status == 1
    assert "the gateway used more memory than the ceiling" in found["faults"]


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["custody --devices 2 --messages 4", "workers --workers 1 --items 4 --members 0"]
)
def test_unfinished_work_fails_the_run(tmp_path: Path, words: str) -> None:
    options = "--kills 0 --faults 0 --seconds 0 --patience 0 --state"
    status, found, _ = simulate(*words.split(), *options.split(), tmp_path / "run")
    assert (status, found["exact"]) == (1, False)
    assert found["faults"]


async def test_failed_start_reports_its_cause(tmp_path: Path) -> None:
    gateway = await GatewayProcess.make(tmp_path / "gateway", [], {})
    (gateway.folder / "fieldpost.toml").write_text(f"[gateway]\ndomain = {DOMAIN!r}\nodd = 1\n")
    with pytest.raises(SimulationFailed, match="odd"):
        await gateway.start()
    assert not gateway.is_running


async def test_unknown_option_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SimulationFailed, match=r"unknown options .*: dancing"):
        await GatewayProcess.make(tmp_path / "gateway", [], {"dancing": 1})
