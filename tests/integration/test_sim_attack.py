"""Tests of the `fieldpost-sim run attack` command, and of the gateway process that it creates.

Response times are not judged, because other tests run on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from firmware_sim.__main__ import main
from firmware_sim.attackers.__main__ import ALL
from firmware_sim.errors import GatewayCommandFailed
from firmware_sim.scenarios.gateway_process import DOMAIN, GatewayProcess
from tests.helpers.simulator import simulate


def test_memory_is_bounded_and_every_refusal_is_logged(
    tmp_path: Path, scale: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    words = ["--devices", scale(3, 10), "--quiet", scale(0, 20), "--attacked", scale(3, 40)]
    words += ["--no-judge-times", "--state", tmp_path / "run"]
    status, found, said = simulate("attack", *words)
    assert status == 0, json.dumps(found, indent=1) + said
    assert found["faults"] == []
    assert found["honest"]["exact"] is True
    assert [row["name"] for row in found["attacks"]] == [attack.name for attack in ALL]
    record_property("memory_mib", found["memory_mib"])
    record_property("p99_ratio", found["p99_ratio"])


@pytest.mark.long
def test_exceeded_memory_ceiling_fails_the_run(tmp_path: Path) -> None:
    words = ["--devices", 1, "--quiet", 0, "--attacked", 1, "--attack", "malformed requests"]
    words += ["--ceiling-mb", 1, "--no-judge-times", "--state", tmp_path / "run"]
    status, found, _ = simulate("attack", *words)
    assert status == 1
    assert "the gateway used more memory than the ceiling" in found["faults"]


def test_unknown_attack_is_wrong_usage() -> None:
    done = CliRunner().invoke(main, ["run", "attack", "--attack", "dancing"])
    assert done.exit_code == 2
    assert "no such attacks: dancing" in done.output


async def test_failed_start_reports_its_cause(tmp_path: Path) -> None:
    gateway = await GatewayProcess.make(tmp_path / "gateway", [], {})
    (gateway.folder / "fieldpost.toml").write_text(f"[gateway]\ndomain = {DOMAIN!r}\nodd = 1\n")
    with pytest.raises(GatewayCommandFailed, match="odd"):
        await gateway.start()
    assert not gateway.running


async def test_unknown_option_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GatewayCommandFailed, match=r"unknown options .*: dancing"):
        await GatewayProcess.make(tmp_path / "gateway", [], {"dancing": 1})
