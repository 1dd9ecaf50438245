"""What is told to be wrong, how grave, and what to do: of each kind, and of many at once."""

from __future__ import annotations

import re
from typing import Any, get_args

import click
import pytest
from sync.pages.summary import problems, verdict

from edge.__main__ import main as edge_commands
from sync.cli.main import cli as fleet_commands
from sync.pages.page import fleet_page
from sync.reports.shared.problem import KINDS, Kind, Problem, grouped, ordered
from tests.helpers.pages import checked
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import GATEWAY, LANE, NOON, whole

FLEET = sample(8)
WRONG = {
    "unexplained",
    "fork",
    "bad_segment",
    "silent",
    "disk_full_soon",
    "queue_stuck",
    "queue_dead",
    "sensor_silent",
    "refusals",
    "version_errors",
}


@pytest.mark.parametrize(
    ("changes", "weight", "kind", "what"),
    [
        ({"unexplained": 7}, "wrong", "unexplained", "nothing says why: 7"),
        ({"duplicates": 1}, "wrong", "duplicate", "more than once: 1"),
        ({"forks": 2}, "wrong", "fork", "contradict what came before: 2"),
        ({"chain_breaks": 3}, "wrong", "chain_break", "do not follow on the one before them: 3"),
        ({"declared": 1_200}, "notice", "declared", "said so: 1\u2009200"),
    ],
)
def test_what_is_wrong_in_a_lane_is_told_with_what_to_do(
    changes: dict[str, Any], weight: str, kind: str, what: str
) -> None:
    [told] = problems(whole(completeness=[LANE | changes]))
    assert (told.weight, told.kind, told.gateway) == (weight, kind, "gw.example")
    assert told.where == "gw.example, logs, epoch 01A"
    assert what in told.what
    assert told.remedy


def test_of_a_fork_it_is_told_whether_a_new_epoch_began() -> None:
    lanes = [LANE | {"epoch": epoch, "forks": 1} for epoch in ("01A", "01B")]
    [first, last] = problems(whole(completeness=lanes))
    assert first.where == "gw.example, logs, epoch 01A"
    assert "has begun a new epoch since" in first.remedy
    assert "new epoch" not in last.remedy
    other = LANE | {"gateway": "other.example", "epoch": "01C"}
    [last] = problems(whole(completeness=[lanes[1], other]))
    assert "new epoch" not in last.remedy


def test_an_epoch_that_was_torn_is_told_of_once() -> None:
    lanes = [LANE | {"state": "torn"}, LANE | {"state": "torn", "lane": "system"}]
    [told] = problems(whole(completeness=lanes))
    assert (told.weight, told.kind, told.where) == ("notice", "torn", "gw.example, epoch 01A")
    assert "2025-11-21 12:00:00 UTC" in told.what


@pytest.mark.parametrize(
    ("changes", "weight", "kind", "what"),
    [
        ({"state": "silent"}, "wrong", "silent", "since 2025-11-21 12:00:00 UTC"),
        ({"state": "unknown"}, "notice", "unknown", "no heartbeat ever did"),
        ({"outages": 2, "outage_s": 3660.0}, "notice", "outage", "Outages: 2, 1 h 1 min in all"),
        ({"unclean_restarts": 1}, "notice", "unclean_restart", "without a clean stop before: 1"),
    ],
)
def test_what_is_wrong_with_a_gateway_is_told(
    changes: dict[str, Any], weight: str, kind: str, what: str
) -> None:
    [told] = problems(whole(availability=[GATEWAY | changes]))
    assert (told.weight, told.kind, told.where) == (weight, kind, "gw.example")
    assert what in told.what


def test_lost_messages_are_told_of_by_gateway_and_name() -> None:
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON}
    rows = [
        row | {"kind": "limit", "name": "rate", "times": 1_000},  # the table of refusals has it
        row | {"name": "dead", "times": 3},
        row | {"name": "odd", "times": 1},
        row | {"name": "queue_dead", "times": 9},  # the table of queues has it
    ]
    told = problems(whole(notices=rows))
    assert {(problem.weight, problem.kind) for problem in told} == {("notice", "message_lost")}
    assert [problem.what for problem in told] == [
        "Messages that are dead, delivered to nobody: 3.",
        "Messages, odd: 1.",
    ]
    assert "`fieldpost dead list`" in told[0].remedy


CLOCK = FLEET.clocks[0]
GROWTH = FLEET.growth[0]
QUEUE = FLEET.queues[0]
REFUSAL = FLEET.refusals[1]
SENSOR = FLEET.sensors[0]
ANOMALY = FLEET.anomalies[0]
VERSION = FLEET.versions[1]
OFFERS = {"gateway": "gw-001.example", "source": "d", "since": NOON, "until": NOON}


@pytest.mark.parametrize(
    ("table", "row", "kind", "where", "what"),
    [
        (
            "clocks",
            CLOCK | {"state": "stepping", "odd_steps": 3, "step_max_s": -61.0},
            "clock_step",
            "gw-001.example",
            "Set 3 times without need, by -1 min 1 s at most.",
        ),
        (
            "clocks",
            CLOCK | {"state": "skewed", "skew_s": -7.0},
            "clock_drift",
            "gw-001.example",
            "It is 7 s behind the centre's clock.",
        ),
        (
            "clocks",
            CLOCK | {"state": "skewed", "skew_s": 7.0},
            "clock_drift",
            "gw-001.example",
            "It is 7 s ahead of the centre's clock.",
        ),
        (
            "clocks",
            CLOCK | {"state": "drifting", "drift_ppm": None, "gain_ppm": -100.0},
            "clock_drift",
            "gw-001.example",
            "It drifts by -100.0 ppm, 8.64 s a day.",
        ),
        (
            "clocks",
            CLOCK | {"state": "drifting", "drift_ppm": None, "gain_ppm": None},
            "clock_drift",
            "gw-001.example",
            "It drifts by –.",  # noqa: RUF001
        ),
        (
            "growth",
            GROWTH | {"state": "full", "disk_used": 1024, "cap": 1024, "evicted": 2},
            "disk_full_soon",
            "gw-001.example",
            "1.0 KiB of 1.0 KiB used, 2 events given up for want of room.",
        ),
        (
            "growth",
            GROWTH
            | {"state": "soon", "disk_used": 512, "cap": 1024, "evicted": 0}
            | {"days_left": 9.0, "days_low": 7.5, "days_high": None},
            "disk_full_soon",
            "gw-001.example",
            "512 B of 1.0 KiB used; full in 9 d (7 d to –).",  # noqa: RUF001
        ),
        (
            "queues",
            QUEUE | {"state": "stuck", "since": NOON, "depth": 1, "members": None, "dead": None},
            "queue_stuck",
            "gw-001.example, queue jobs/print",
            "No delivery since 2025-11-21 12:00:00 UTC; 1 item there, 0 members.",
        ),
        (
            "queues",
            QUEUE | {"dead": 2},
            "queue_dead",
            "gw-001.example, queue jobs/print",
            "Dead items: 2.",
        ),
        (
            "refusals",
            REFUSAL,
            "refusals",
            "a source that is not told at 2 gateways",
            "Refused by login: 14.",
        ),
        (
            "refusals",
            REFUSAL | {"gateways": 1, "which": "gw-2", "surge": True, "source": "d"},
            "refusals",
            "gw-2, d",
            "Refused by login: 14, 2 of them on the latest day; 2 are usual.",
        ),
        (
            "sensors",
            SENSOR | {"state": "silent", "last": NOON, "silence_s": 900.0, "source": None},
            "sensor_silent",
            "gw-001.example, –, pumps/1 temperature",  # noqa: RUF001
            "Last reading 2025-11-21 12:00:00 UTC, silent for 15 min; every 10 s is usual.",
        ),
        (
            "anomalies",
            ANOMALY | {"state": "flat", "flat_value": 0.0, "flat_since": NOON, "flat_readings": 40},
            "sensor_flat",
            "gw-001.example, pump1@gw-001.example, pumps/1 temperature",
            "0 °C since 2025-11-21 12:00:00 UTC, 40 readings.",
        ),
        (
            "anomalies",
            ANOMALY
            | {"state": "anomalous", "worst_at": NOON, "worst_value": 1.0, "usual": None}
            | {"z": 9.0, "unit": None},
            "sensor_anomaly",
            "gw-001.example, pump1@gw-001.example, pumps/1 temperature",
            "1 in the hour from 2025-11-21 12:00:00 UTC, where – is usual (robust z 9).",  # noqa: RUF001
        ),
        (
            "versions",
            VERSION | {"ratio": None},
            "version_errors",
            "version 0.2.0",
            "many times as many errors a day as 0.1.0, more on 3 of 3 gateways that ran both.",
        ),
        (
            "lag",
            FLEET.lag[0] | {"p50_s": 7_260.0},
            "backlog",
            "gw-001.example",
            "Half of its events come 2 h 1 min after they happened, or later.",
        ),
        (
            "duplicates",
            OFFERS | {"what": "offers", "times": 100},
            "repeats",
            "gw-001.example, d",
            "Messages that it offered again: 100, the last one 2025-11-21 12:00:00 UTC.",
        ),
    ],
)
def test_a_row_that_is_judged_wrong_is_put_into_words(
    table: str, row: dict[str, Any], kind: str, where: str, what: str
) -> None:
    [told] = problems(whole(**{table: [row]}))
    assert (told.kind, told.where, told.what) == (kind, where, what)
    assert not told.gateway or told.where.startswith(told.gateway)


def test_of_a_row_in_order_nothing_is_told() -> None:
    fine = {
        "clocks": [CLOCK],
        "growth": [GROWTH],
        "queues": [QUEUE, QUEUE | {"state": "idle"}, QUEUE | {"state": "unknown", "dead": None}],
        "sensors": [SENSOR, SENSOR | {"state": "unknown"}],
        "anomalies": [ANOMALY],
        "versions": [FLEET.versions[0], VERSION | {"worse": None, "caution": True}],
        "lag": [
            FLEET.lag[0] | {"p50_s": 7_200.0},
            FLEET.lag[0] | {"p50_s": 90_000.0, "clock": False},
        ],
        "duplicates": [
            OFFERS | {"what": "offers", "times": 99},
            OFFERS | {"what": "segments", "times": 5_000},
        ],
    }
    assert problems(whole(**fine)) == []


def test_every_kind_has_words_and_a_rank() -> None:
    assert set(KINDS) == set(get_args(Kind))
    told = problems(FLEET)
    assert {problem.kind for problem in told if problem.weight == "wrong"} == WRONG
    assert ordered(told[::-1])[0].kind == told[0].kind
    ranks = list(KINDS)
    order = [(problem.weight != "wrong", ranks.index(problem.kind)) for problem in told]
    assert order == sorted(order)


def test_commands_that_a_remedy_names_exist() -> None:
    """A remedy that is typed as it stands must not be an error."""
    remedies = " ".join({problem.remedy for problem in _of_every_kind()})
    named = re.findall(r"`(fieldpost(?:-fleet)?) ([a-z ]+)`", remedies)
    assert len(named) > 8
    for program, words in named:
        command: click.Command = edge_commands if program == "fieldpost" else fleet_commands
        for word in words.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None, (program, words)
            command = found


def _of_every_kind() -> list[Problem]:
    lane = LANE | {"duplicates": 1, "chain_breaks": 1, "state": "torn"}
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON, "times": 1}
    names = ("dead", "dead_evicted", "expired", "evicted", "odd")
    clocks = [CLOCK | {"state": state} for state in ("stepping", "skewed", "drifting")]
    found = whole(
        completeness=[lane],
        availability=[GATEWAY | {"state": "unknown"}],
        notices=[row | {"name": name} for name in names],
        clocks=[each | {"odd_steps": 1, "step_max_s": 1.0} for each in clocks],
        duplicates=[OFFERS | {"what": "offers", "times": 100}],
        lag=[FLEET.lag[0] | {"p50_s": 7_201.0}],
    )
    return [*problems(FLEET), *problems(found)]


def test_every_kind_can_be_told_of() -> None:
    assert {problem.kind for problem in _of_every_kind()} == set(KINDS)


@pytest.mark.parametrize(
    ("weights", "events", "kind"),
    [([], 0, "empty"), ([], 1, "good"), (["notice"], 1, "notice"), (["wrong"], 1, "wrong")],
)
def test_the_verdict(weights: list[str], events: int, kind: str) -> None:
    told = problems(whole(completeness=[LANE | {"unexplained": 1}, LANE | {"declared": 1}]))
    chosen = [problem for problem in told if problem.weight in weights]
    assert verdict(chosen, events)[0] == kind


def test_problems_of_one_kind_are_told_together() -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:02d}", "state": "silent"} for at in range(12)]
    lanes = [LANE | {"gateway": f"gw-{at:02d}", "unexplained": at + 1} for at in range(2)]
    found = whole(availability=known, completeness=lanes)
    groups = grouped(problems(found))
    assert [(group.title, len(group.problems)) for group in groups] == [
        ("2 gateways: events are missing, and nothing says why", 2),
        ("12 gateways: nothing arrives", 12),
    ]
    page = checked(fleet_page(found))
    assert "12 gateways: nothing arrives" in page
    assert page.count("See whether it has power and a link.") == 1
    assert page.index('href="gateways/gw-00.html"') < page.index("<summary>6 more</summary>")


def test_one_remedy_makes_one_group_and_one_gateway_no_count() -> None:
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON, "times": 1}
    names = ("expired", "dead", "evicted")
    groups = grouped(problems(whole(notices=[row | {"name": name} for name in names])))
    assert [len(group.problems) for group in groups] == [2, 1]
    assert {group.title for group in groups} == {"Messages went nowhere"}
    assert {group.headline for group in groups} == {"Messages went nowhere"}
