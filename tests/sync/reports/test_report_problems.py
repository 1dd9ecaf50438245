"""The problems that the reports find, their weight, and their remedies."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from edge.cli.commands import main as edge_commands
from sync.cli.main import cli as fleet_commands
from sync.pages.overview import find_problems, verdict
from sync.pages.page import fleet_page, grouped
from sync.reports.shared.frames import GATEWAY_ROWS
from sync.reports.shared.registry import PROBLEM_KINDS
from sync.reports.shared.report import Problem
from tests.helpers.pages import checked
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import GATEWAY, LANE, NOON, sound_findings

FLEET = sample(8)
WRONG = {
    "unexplained", "fork", "bad_segment", "silent", "disk_full_soon", "queue_stuck", "queue_dead",
    "sensor_silent", "version_errors", "duplicate", "chain_break",
}  # fmt: skip
"""Kinds of weight `wrong`, besides `refusals`, whose weight depends on their number."""


def test_a_fork_says_whether_a_new_epoch_has_begun() -> None:
    lanes = [LANE | {"epoch": epoch, "forks": 1} for epoch in ("01A", "01B")]
    [first, last] = find_problems(sound_findings(completeness=lanes))
    assert first.where == LANE_PLACE
    assert "has begun a new epoch" in first.remedy
    assert "new epoch" not in last.remedy
    other = LANE | {"gateway": "other.example", "epoch": "01C"}
    [last] = find_problems(sound_findings(completeness=[lanes[1], other]))
    assert "new epoch" not in last.remedy


def test_a_torn_epoch_is_one_problem() -> None:
    lanes = [LANE | {"state": "torn"}, LANE | {"state": "torn", "lane": "system"}]
    [torn] = find_problems(sound_findings(completeness=lanes))
    assert (torn.weight, torn.kind, torn.where) == ("notice", "torn", "gw.example, epoch 01A")
    assert "2025-11-21 12:00:00 UTC" in torn.what


def test_undelivered_messages_are_reported_by_gateway_and_event() -> None:
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON}
    rows = [
        row | {"kind": "limit", "name": "rate", "times": 1_000},  # in the report of refusals
        row | {"name": "dead", "times": 3},
        row | {"name": "odd", "times": 1},
        row | {"name": "queue_dead", "times": 9},  # in the report of queues
    ]
    problems = find_problems(sound_findings(notices=rows))
    assert {(problem.weight, problem.kind) for problem in problems} == {("notice", "message_lost")}
    assert [problem.what.partition(": ")[2] for problem in problems] == ["3.", "1."]
    assert "`fieldpost dead list`" in problems[0].remedy
    assert "odd" in problems[1].what


CLOCK = FLEET["clocks"][0]
GROWTH = FLEET["growth"][0]
QUEUE = FLEET["queues"][0]
REFUSAL = FLEET["refusals"][1]
SENSOR = FLEET["sensors"][0]
ANOMALY = FLEET["anomalies"][0]
VERSION = FLEET["versions"][1]
LAG = FLEET["lag"][0]
OFFERS = {"gateway": "gw-001.example", "source": "d", "since": NOON, "until": NOON}
LANE_PLACE = "gw.example, logs lane, epoch 01A"
SENSOR_PLACE = "gw-001.example, pump1@gw-001.example, pumps/1 temperature"


@pytest.mark.parametrize(
    ("table", "row", "kind", "where", "values"),
    [
        ("completeness", LANE | {"unexplained": 7}, "unexplained", LANE_PLACE, ": 7."),
        ("completeness", LANE | {"duplicates": 1}, "duplicate", LANE_PLACE, ": 1."),
        ("completeness", LANE | {"forks": 2}, "fork", LANE_PLACE, ": 2."),
        ("completeness", LANE | {"chain_breaks": 3}, "chain_break", LANE_PLACE, ": 3."),
        ("completeness", LANE | {"declared": 1_200}, "declared", LANE_PLACE, ": 1\u202f200."),
        ("availability", GATEWAY | {"state": "silent"}, "silent", "gw.example",
         "since 2025-11-21 12:00:00 UTC"),
        ("availability", GATEWAY | {"state": "unknown"}, "unknown", "gw.example", "no heartbeat"),
        ("availability", GATEWAY | {"outages": 2, "outage_s": 3660.0}, "outage", "gw.example",
         ": 2, 1 h 1 min in total"),
        ("availability", GATEWAY | {"unclean_restarts": 1}, "unclean_restart", "gw.example",
         "clean stop before: 1"),
        ("clocks", CLOCK | {"state": "stepping", "odd_steps": 3, "step_max_s": -61.0}, "clock_step",
         "gw-001.example", "3 times -1 min 1 s"),
        ("clocks", CLOCK | {"state": "skewed", "skew_s": -7.0}, "clock_drift", "gw-001.example",
         "7 s behind"),
        ("clocks", CLOCK | {"state": "skewed", "skew_s": 7.0}, "clock_drift", "gw-001.example",
         "7 s ahead"),
        ("clocks", CLOCK | {"state": "drifting", "drift_ppm": None, "gain_ppm": -100.0},
         "clock_drift", "gw-001.example", "-100.0 ppm 8.64 s a day"),
        ("clocks", CLOCK | {"state": "drifting", "drift_ppm": None, "gain_ppm": None},
         "clock_drift", "gw-001.example", "drifts."),
        ("growth", GROWTH | {"state": "full", "disk_used": 1024, "cap": 1024, "evicted": 2},
         "disk_full_soon", "gw-001.example", "1.0 KiB of 1.0 KiB 2 events"),
        (
            "growth",
            GROWTH
            | {"state": "soon", "disk_used": 512, "cap": 1024, "evicted": 0}
            | {"days_left": 9.0, "days_low": 7.5, "days_high": None},
            "disk_full_soon",
            "gw-001.example",
            "512 B of 1.0 KiB 9 d 7 d to –",  # noqa: RUF001
        ),
        ("queues",
         QUEUE | {"state": "stuck", "since": NOON, "depth": 1, "members": None, "dead": None},
         "queue_stuck", "gw-001.example, queue jobs/print",
         "2025-11-21 12:00:00 UTC 1 item 0 workers"),
        ("queues", QUEUE | {"dead": 2}, "queue_dead", "gw-001.example, queue jobs/print", ": 2."),
        ("refusals", REFUSAL, "refusals", "an unknown source at 2 gateways", "login: 14."),
        ("refusals", REFUSAL | {"gateways": 1, "which": "gw-2", "surge": True, "source": "d"},
         "refusals", "gw-2, d", "login: 14, 2 of 2 a day"),
        (
            "sensors",
            SENSOR | {"state": "silent", "last": NOON, "silence_s": 900.0, "source": None},
            "sensor_silent",
            "gw-001.example, –, pumps/1 temperature",  # noqa: RUF001
            "2025-11-21 12:00:00 UTC 15 min 10 s",
        ),
        ("anomalies",
         ANOMALY | {"state": "flat", "flat_value": 0.0, "flat_since": NOON, "flat_readings": 40},
         "sensor_flat", SENSOR_PLACE, "0 °C 2025-11-21 12:00:00 UTC 40 readings"),
        (
            "anomalies",
            ANOMALY
            | {"state": "anomalous", "worst_at": NOON, "worst_value": 1.0, "usual": None}
            | {"z": 9.0, "unit": None},
            "sensor_anomaly",
            SENSOR_PLACE,
            "1 2025-11-21 12:00:00 UTC – z 9",  # noqa: RUF001
        ),
        ("versions", VERSION | {"ratio": None}, "version_errors", "version 0.2.0",
         "many times 0.1.0 3 of 3 gateways"),
        ("lag", LAG | {"p50_s": 7_260.0}, "backlog", "gw-001.example", "2 h 1 min"),
        ("dates", {"gateway": "gw.example", "times": 2, "since": NOON, "until": NOON}, "misdated",
         "gw.example", "2 events dated more than 366 days"),
        ("duplicates", OFFERS | {"what": "offers", "times": 100}, "repeats", "gw-001.example, d",
         "100 2025-11-21 12:00:00 UTC"),
    ],
)  # fmt: skip
def test_a_problem_names_its_place_and_its_values(
    table: str, row: dict[str, Any], kind: str, where: str, values: str
) -> None:
    """`values` are parts of the sentence, in their order."""
    [problem] = find_problems(sound_findings(**{table: [row]}))
    assert (problem.kind, problem.where) == (kind, where)
    assert kind == "refusals" or (problem.weight == "wrong") is (kind in WRONG)
    assert problem.remedy
    assert re.search(".*".join(map(re.escape, values.split())), problem.what), problem.what
    assert not problem.gateway or problem.where.startswith(problem.gateway)


def test_normal_rows_have_no_problems() -> None:
    fine = {
        "clocks": [CLOCK],
        "growth": [GROWTH],
        "queues": [QUEUE, QUEUE | {"state": "idle"}, QUEUE | {"state": "unknown", "dead": None}],
        "sensors": [SENSOR, SENSOR | {"state": "unknown"}],
        "anomalies": [ANOMALY],
        "versions": [FLEET["versions"][0], VERSION | {"worse": None, "caution": True}],
        "lag": [LAG | {"p50_s": 7_200.0}, LAG | {"p50_s": 90_000.0, "clock": False}],
        "duplicates": [
            OFFERS | {"what": "offers", "times": 99},
            OFFERS | {"what": "segments", "times": 5_000},
        ],
        "files_by_fate": [{"fate": "accepted", "files": 9}, {"fate": "fork", "files": 1}],
    }
    assert find_problems(sound_findings(**fine)) == []


def test_problems_are_sorted_by_weight_and_rank() -> None:
    assert len({kind.rank for kind in PROBLEM_KINDS}) == len(PROBLEM_KINDS)
    problems = find_problems(FLEET)
    wrong = {problem.kind for problem in problems if problem.weight == "wrong"}
    assert wrong == {*WRONG, "refusals"} - {"duplicate", "chain_break"}
    ranks = {kind.name: kind.rank for kind in PROBLEM_KINDS}
    order = [(problem.weight != "wrong", ranks[problem.kind]) for problem in problems]
    assert order == sorted(order)


def test_commands_in_remedies_exist() -> None:
    remedies = " ".join({problem.remedy for problem in _problems_of_every_kind()})
    named = re.findall(r"`(fieldpost(?:-fleet)?) ([a-z ]+)`", remedies)
    assert len(named) > 8
    for program, names in named:
        command: click.Command = edge_commands if program == "fieldpost" else fleet_commands
        for name in names.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), name)
            assert found is not None, (program, names)
            command = found


def _problems_of_every_kind() -> list[Problem]:
    lane = LANE | {"duplicates": 1, "chain_breaks": 1, "state": "torn"}
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON, "times": 1}
    names = ("dead", "dead_evicted", "expired", "evicted", "odd")
    clocks = [CLOCK | {"state": state} for state in ("stepping", "skewed", "drifting")]
    others = sound_findings(
        completeness=[lane],
        availability=[GATEWAY | {"state": "unknown"}],
        notices=[row | {"name": name} for name in names],
        clocks=[each | {"odd_steps": 1, "step_max_s": 1.0} for each in clocks],
        duplicates=[OFFERS | {"what": "offers", "times": 100}],
        lag=[LAG | {"p50_s": 7_201.0}],
        queues=[QUEUE | {"queue": str(each), "dead": 0} for each in range(GATEWAY_ROWS)],
        dates=[{"gateway": "gw.example", "times": 6_400, "since": NOON, "until": NOON}],
    )
    return [*find_problems(FLEET), *find_problems(others)]


def test_every_kind_of_problem_is_found() -> None:
    kinds = {problem.kind for problem in _problems_of_every_kind()}
    assert kinds == {kind.name for kind in PROBLEM_KINDS}


@pytest.mark.parametrize(
    ("weights", "events", "kind"),
    [([], 0, "empty"), ([], 1, "good"), (["notice"], 1, "notice"), (["wrong"], 1, "wrong")],
)
def test_the_verdict_is_the_worst_weight(weights: list[str], events: int, kind: str) -> None:
    found = find_problems(
        sound_findings(completeness=[LANE | {"unexplained": 1}, LANE | {"declared": 1}])
    )
    chosen = [problem for problem in found if problem.weight in weights]
    assert verdict(chosen, events)[0] == kind


def test_problems_with_one_remedy_are_grouped() -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:02d}", "state": "silent"} for at in range(12)]
    lanes = [LANE | {"gateway": f"gw-{at:02d}", "unexplained": at + 1} for at in range(2)]
    found = sound_findings(availability=known, completeness=lanes)
    groups = grouped(find_problems(found))
    assert [(group.title, len(group.shown), len(group.rest)) for group in groups] == [
        ("2 gateways: events are missing without explanation", 2, 0),
        ("12 gateways: nothing arrives", 6, 6),
    ]
    page = checked(fleet_page(found))
    assert "12 gateways: nothing arrives" in page
    assert page.count("Check the gateway&#39;s power and network link.") == 1
    assert page.index('href="gateways/gw-00.html"') < page.index("<summary>6 more</summary>")


def test_problems_of_one_gateway_have_a_title_without_a_count() -> None:
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON, "times": 1}
    names = ("expired", "dead", "evicted")
    groups = grouped(
        find_problems(sound_findings(notices=[row | {"name": name} for name in names]))
    )
    assert [len(group.shown) for group in groups] == [2, 1]
    assert {group.title for group in groups} == {"Messages were not delivered"}
