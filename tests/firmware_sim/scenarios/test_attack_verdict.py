from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.attackers.__main__ import ALL, named
from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios.attack_verdict import (
    MIB,
    AttackEvidence,
    AttackResult,
    ResponseTimes,
    ceiling,
    count_refusals,
    judge,
)
from firmware_sim.scenarios.count_verdict import judge as judge_count

HONEST = judge_count(1, {("a", 1): State.DONE}, [("a", 1)])
FLOOD = AttackResult("flood", 100, 90, 1, {"rate": 95}, 95)
GOOD = AttackEvidence(
    idle=30 * MIB,
    peak=60 * MIB,
    ceiling=100 * MIB,
    quiet=(ResponseTimes(100, 0.005, 0.010, 0.020), ResponseTimes(100, 0.005, 0.011, 0.020)),
    busy=ResponseTimes(100, 0.010, 0.030, 0.050),
    times=3.0,
    honest=HONEST,
    attacks=(FLOOD,),
    survived=True,
)


def test_run_without_faults_passes() -> None:
    verdict = judge(GOOD)
    assert verdict.faults == {}
    assert verdict.passed
    assert verdict.lines()[-1] == "verdict         passed"
    assert "p99 under attack is 3.00 times the quiet p99, of 3 allowed" in verdict.lines()
    found = verdict.as_json()
    assert found["memory_mib"] == {"idle": 30.0, "peak": 60.0, "ceiling": 100.0}
    assert found["attack_ms"] == {"answers": 100, "p50": 10.0, "p99": 30.0, "most": 50.0}
    assert found["attacks"][0]["told"] is True


SLOW = "p99 under attack is more than 3 times the quiet p99"
UNLOGGED = "refusals are missing in the event log"
NONE = ResponseTimes.of([])
CALM = (ResponseTimes(100, 0.005, 0.09, 0.1), ResponseTimes(100, 0.005, 0.009, 0.01))
LOST = judge_count(1, {("a", 1): State.DONE}, [])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"peak": 101 * MIB}, "the gateway used more memory than the ceiling"),
        ({"busy": ResponseTimes(100, 0.0, 0.031, 0.1)}, SLOW),
        ({"quiet": (NONE, NONE)}, SLOW),
        ({"quiet": CALM}, SLOW),
        ({"honest": LOST}, "an honest device lost or repeated a message"),
        ({"survived": False}, "the gateway ended early, failed to stop, or printed a traceback"),
        ({"attacks": (FLOOD._replace(logged={}),)}, UNLOGGED),
        ({"attacks": (FLOOD._replace(total=90),)}, UNLOGGED),
    ],
)
def test_each_fault_is_reported(changes: dict[str, Any], fault: str) -> None:
    found = judge(dataclasses.replace(GOOD, **changes))
    assert list(found.faults) == [fault]
    assert fault != UNLOGGED or found.faults[fault] == ["flood"]
    assert not found.passed
    assert found.as_json()["passed"] is False
    assert f"{fault}: 1" in found.lines()
    assert found.lines()[-1].endswith("NOT passed")


def test_infinite_ratio_means_that_times_are_not_judged() -> None:
    slow = dataclasses.replace(GOOD, busy=ResponseTimes(100, 0.0, 9.0, 9.0), times=math.inf)
    verdict = judge(slow)
    assert verdict.passed
    assert "p99 under attack is 900.00 times the quiet p99, not judged" in verdict.lines()
    unmeasured = judge(dataclasses.replace(slow, quiet=(NONE, NONE)))
    assert unmeasured.passed
    assert unmeasured.as_json()["p99_ratio"] is None


def test_refusals_are_counted_by_source_and_rule() -> None:
    event = {"kind": "limit", "source": "a@gw", "name": "rate", "value": 3.0}
    others = [{**event, "name": "other"}, {**event, "source": None}, {**event, "kind": "log"}]
    refusals = count_refusals([event, {**event, "value": 1.0}, *others])
    assert refusals == {"a@gw": {"rate": 4, "other": 3}, "": {"rate": 3}}


def test_percentiles_use_the_nearest_rank() -> None:
    times = ResponseTimes.of(n / 100 for n in range(100, 0, -1))
    assert times == ResponseTimes(100, 0.5, 0.99, 1.0)
    assert ResponseTimes.of([2.0]) == ResponseTimes(1, 2.0, 2.0, 2.0)


def test_memory_ceiling_follows_the_configuration() -> None:
    limits = {
        "sessions": 1000,
        "sessions_per_account": 8,
        "unauthenticated": 200,
        "unacknowledged_total_bytes": 16 * MIB,
        "waiting_bytes": 8 * MIB,
    }
    few, many = ceiling(limits, 40 * MIB, 1), ceiling(limits, 40 * MIB, 1_000_000)
    assert 72 * MIB < few < many < 72 * MIB + 1200 * 128 * 1024
    assert ceiling({**limits, "waiting_bytes": 9 * MIB}, 40 * MIB, 1) == few + 2 * MIB


def test_each_attack_has_its_own_source() -> None:
    sources = [attack.source("gw") for attack in ALL]
    assert len(set(sources)) == len(ALL)
    assert "tiny-stanzas@gw" in sources
    assert "127.0.0.3" in sources
    assert named(("tiny stanzas",)) == tuple(a for a in ALL if a.name == "tiny stanzas")
    with pytest.raises(ValueError, match="no such attacks: dancing"):
        named(("dancing",))


def test_guide_lists_each_attack_with_its_description() -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "simulate.md"
    section = guide.read_text("utf-8").split("\n## Attack\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| .+ \|$", section, re.MULTILINE)
    assert rows == [(attack.name, attack.about) for attack in ALL]
