from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from sync.central.rendering import words
from sync.central.rendering.layout import LAYOUTS
from sync.central.rendering.page import (
    render_page,
    report_document,
    table_csv,
    write_report,
)
from sync.central.rendering.plots import activity_plot, latency_plot, running_plot
from sync.central.rendering.summary import problems, totals, verdict
from sync.central.reports.gather import Findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
BEGIN = NOON.timestamp()
VOID = {"img", "link", "meta", "br", "hr", "input"}

LANE: dict[str, Any] = {
    "gateway": "gw.example",
    "epoch": "01A",
    "lane": "logs",
    "state": "open",
    "since": NOON,
    "first_seq": 1,
    "last_seq": 20_000,
    "expected": 20_000,
    "received": 20_000,
    "missing": 0,
    "declared": 0,
    "unexplained": 0,
    "duplicates": 0,
    "repeated_segments": 0,
    "forks": 0,
    "chain_breaks": 0,
}
GATEWAY: dict[str, Any] = {
    "gateway": "gw.example",
    "state": "running",
    "first_seen": NOON,
    "last_seen": NOON,
    "running_share": 0.99999,
    "running_s": 3600.0,
    "stopped_s": 0.0,
    "outage_s": 0.0,
    "unknown_s": 0.0,
    "outages": 0,
    "longest_gap_s": None,
    "restarts": 0,
    "unclean_restarts": 0,
    "clock_steps": 0,
    "reachable_share": 1.0,
    "silences": 0,
    "longest_silence_s": None,
    "last_arrival": NOON,
}
DELIVERY = {
    "gateway": "gw.example",
    "qos": 2,
    "events": 20_000,
    "p50_ms": 12,
    "p95_ms": 80,
    "p99_ms": 500,
    "max_ms": 61_000,
}


def whole(**changes: Any) -> Findings:
    """Make the findings of a fleet with which all is well, but for `changes`."""
    sound: dict[str, Any] = {
        "as_of": NOON,
        "segments": 10,
        "availability": [GATEWAY],
        "completeness": [LANE],
        "delivery": [DELIVERY],
        "totals": [{"lane": "logs", "kind": "log", "events": 20_000}],
        "stretches": [
            {"gateway": "gw.example", "begin": BEGIN, "end": BEGIN + 3600, "state": "running"}
        ],
        "activity": [{"begin": int(BEGIN), "lane": "logs", "events": 20_000}],
        "step_s": 3600,
    }
    return Findings(**(sound | changes))


class Checker(HTMLParser):
    """Sees that every element is closed, and collects what would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in {"script", "link", "img", "iframe", "object", "embed"}
        for name, value in attrs:
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href"} and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> str:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.fetched == []
    assert "url(http" not in page
    assert "@import" not in page
    return page


def test_a_fleet_with_which_all_is_well() -> None:
    page = checked(render_page(whole()))
    assert "All events are accounted for." in page
    assert "20\u2009000" in page
    assert "99.99 %" in page
    assert page.count("<svg") == 3
    assert page == render_page(whole())


def test_before_anything_has_arrived() -> None:
    page = checked(render_page(Findings(as_of=NOON)))
    assert "Nothing has arrived yet." in page
    assert "<svg" not in page
    assert report_document(Findings(as_of=NOON))["totals"]["events"] == 0


@pytest.mark.parametrize(
    ("changes", "weight", "where", "what"),
    [
        ({"unexplained": 7}, "wrong", "gw.example, logs, epoch 01A", "nothing says why: 7"),
        ({"duplicates": 1}, "wrong", "gw.example", "more than once: 1"),
        ({"forks": 2}, "wrong", "gw.example", "contradict what came before: 2"),
        ({"chain_breaks": 3}, "wrong", "gw.example", "do not follow on the one before them: 3"),
        ({"declared": 1_200}, "notice", "gw.example", "said so: 1\u2009200"),
    ],
)
def test_what_is_wrong_in_a_lane_is_told_with_what_to_do(
    changes: dict[str, Any], weight: str, where: str, what: str
) -> None:
    [told] = problems(whole(completeness=[LANE | changes]))
    assert told.weight == weight
    assert where in told.where
    assert what in told.what
    assert told.remedy


@pytest.mark.parametrize(
    ("changes", "weight", "what"),
    [
        ({"state": "silent"}, "wrong", "Nothing arrives"),
        ({"state": "unknown"}, "notice", "no heartbeat ever did"),
        ({"outages": 2, "outage_s": 3660.0}, "notice", "Outages: 2, 1 h 1 min in all"),
        ({"unclean_restarts": 1}, "notice", "Starts without a clean stop before: 1"),
    ],
)
def test_what_is_wrong_with_a_gateway_is_told(
    changes: dict[str, Any], weight: str, what: str
) -> None:
    [told] = problems(whole(availability=[GATEWAY | changes]))
    assert (told.weight, told.where) == (weight, "gw.example")
    assert what in told.what


def test_lost_messages_and_refusals_are_pointed_out_by_gateway() -> None:
    row = {"gateway": "gw.example", "kind": "message", "since": NOON, "until": NOON}
    limit = row | {"kind": "limit"}
    rows = [
        limit | {"name": "rate", "times": 1_000},
        limit | {"name": "size", "times": 200},
        row | {"name": "dead", "times": 3},
        row | {"name": "odd", "times": 1},
    ]
    told = problems(whole(notices=rows))
    assert {(problem.weight, problem.where) for problem in told} == {("notice", "gw.example")}
    assert [problem.what for problem in told] == [
        "Messages that are dead, delivered to nobody: 3.",
        "Messages, odd: 1.",
        "Refusals by its limits: 1\u2009200.",
    ]
    assert "table dead of the gateway" in told[0].remedy


def test_what_is_wrong_comes_first_on_the_page() -> None:
    lanes = [LANE | {"declared": 5}, LANE | {"lane": "system", "unexplained": 3}]
    found = whole(completeness=lanes, refused={"bad": 4, "fork": 1})
    page = checked(render_page(found))
    assert "2 things are wrong." in page
    assert page.index("nothing says why: 3") < page.index("said so: 5") < page.index("<svg")
    assert page.index("no valid segments: 4") < page.index("said so: 5")


@pytest.mark.parametrize(
    ("weights", "events", "kind"),
    [([], 0, "empty"), ([], 1, "good"), (["notice"], 1, "notice"), (["wrong"], 1, "wrong")],
)
def test_the_verdict(weights: list[str], events: int, kind: str) -> None:
    told = problems(whole(completeness=[LANE | {"unexplained": 1}, LANE | {"declared": 1}]))
    chosen = [problem for problem in told if problem.weight in weights]
    assert verdict(chosen, events)[0] == kind


def test_a_fleet_with_many_problems_has_a_page_still() -> None:
    lanes = [LANE | {"epoch": f"{at:026d}", "unexplained": 1} for at in range(130)]
    page = checked(render_page(whole(completeness=lanes)))
    assert "130 things are wrong." in page
    assert "And 30 more" in page


def test_totals_are_sums_over_the_fleet() -> None:
    lanes = [LANE | {"unexplained": 1}, LANE | {"unexplained": 2, "lane": "system"}]
    volume = [
        {"lane": "logs", "kind": "log", "events": 5},
        {"lane": "system", "kind": "limit", "events": 2},
        {"lane": "system", "kind": "system", "events": 3},
    ]
    sums = totals(whole(completeness=lanes, totals=volume, refused={"bad": 4}))
    assert sums["events"] == 10
    assert sums["lanes"] == {"logs": {"log": 5}, "system": {"limit": 2, "system": 3}}
    assert (sums["unexplained"], sums["expected"], sums["bad_segments"]) == (3, 40_000, 4)


def test_text_from_outside_is_text_on_the_page() -> None:
    evil = '<script>alert("1")</script>'
    row = {"arrived": NOON, "path": evil, "size": 1, "reason": "magic", "detail": evil}
    lanes = [LANE | {"gateway": evil, "unexplained": 1}]
    stretch = {"gateway": f"$a_b$ {evil}", "begin": BEGIN, "end": BEGIN + 1, "state": "outage"}
    found = whole(
        quarantine=[row],
        completeness=lanes,
        delivery=[DELIVERY | {"gateway": evil}],
        stretches=[stretch],
    )
    page = checked(render_page(found))
    assert page.count("&lt;script&gt;") >= 4


def test_the_files_of_a_report(tmp_path: Path) -> None:
    page = write_report(whole(), tmp_path / "out" / "here")
    write_report(whole(), tmp_path / "out" / "here")
    assert {path.name for path in page.parent.iterdir()} == {
        "index.html",
        "report.json",
        *(f"{layout.name}.csv" for layout in LAYOUTS),
    }
    document = json.loads((page.parent / "report.json").read_text())
    assert document["version"] == 1
    assert document["totals"]["events"] == 20_000
    assert document["tables"]["completeness"][0]["since"] == "2025-11-21T12:00:00+00:00"
    with (page.parent / "completeness.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert row["unexplained"] == "0"
    assert row["since"] == "2025-11-21T12:00:00+00:00"
    assert list(row) == [column.name for layout in LAYOUTS[1:2] for column in layout.columns]
    with (page.parent / "quarantine.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == []


def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    row = {"lane": "logs", "kind": "log", "events": 1, "extra": {1}}
    with pytest.raises(TypeError, match="set has no place in a report"):
        write_report(whole(totals=[row]), tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_plots_are_repeatable_and_follow_the_colours_of_the_page() -> None:
    found = whole()
    draws: list[Callable[[], str]] = [
        lambda: running_plot(found.stretches),
        lambda: activity_plot(found.activity, found.step_s),
        lambda: latency_plot(found.delivery),
    ]
    for draw in draws:
        svg = draw()
        assert svg == draw()
        assert svg.startswith("<svg")
        assert "var(--" in svg
        assert set(re.findall(r"#0[1-3]0[1-3]0[1-9]", svg)) == set()
        assert re.search(r"20\d\d-\d\d-\d\dT", svg) is None
    assert running_plot([]) == activity_plot([], 1) == latency_plot([DELIVERY | {"qos": 1}]) == ""


@pytest.mark.parametrize(
    ("span", "tick", "days"),
    [
        (0.5, r"12:00:0\d", "2025-11-21, UTC"),
        (45, r"12:00:\d\d", "2025-11-21, UTC"),
        (3_600, r"12:\d\d", "2025-11-21, UTC"),
        (20 * 3_600, r"11-22 \d\d:00", "2025-11-21 to 2025-11-22, UTC"),
        (3 * 86_400, r"11-23 \d\d:00", "2025-11-21 to 2025-11-24, UTC"),
        (30 * 86_400, r"2025-12-\d\d", "2025-11-20 to 2025-12-23, UTC"),
    ],
)
def test_each_tick_of_a_time_axis_can_be_read_alone(span: float, tick: str, days: str) -> None:
    row = {"gateway": "gw.example", "begin": BEGIN, "end": BEGIN + span, "state": "running"}
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", running_plot([row]))
    assert days in texts
    ticks = [text for text in texts if re.fullmatch(r"[-\d: ]+", text)]
    assert 3 <= len(ticks) == len(set(ticks))
    assert any(re.fullmatch(tick, text) for text in ticks)
    assert len({len(text) for text in ticks}) == 1


def test_a_legend_begins_at_the_left() -> None:
    svg = latency_plot([DELIVERY | {"gateway": "a-gateway-with-a-long-name.example"}])
    places = re.findall(r'<text[^>]*?(?:translate\(|x=")([\d.]+)[^>]*>p50</text>', svg)
    assert [float(place) < 60 for place in places] == [True]


def test_a_clock_is_told_in_words_in_csv() -> None:
    [layout] = [each for each in LAYOUTS if each.name == "lag"]
    row = {column.name: 1 for column in layout.columns} | {"gateway": "gw", "clock": False}
    assert "gw,not synchronised,1" in table_csv(layout, [row])


def test_a_plot_of_many_gateways_shows_the_worst() -> None:
    stretches = [
        {"gateway": f"gw{at:03d}", "begin": BEGIN, "end": BEGIN + 100 + at, "state": state}
        for at in range(60)
        for state in ("outage" if at == 59 else "running",)
    ]
    svg = running_plot(stretches)
    assert "gw059" in svg
    assert "gw058" not in svg


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (words.count(None), "–"),  # noqa: RUF001
        (words.count(1_234_567), "1\u2009234\u2009567"),
        (words.share(None), "–"),  # noqa: RUF001
        (words.share(1.0), "100.00 %"),
        (words.share(0.999999), "99.99 %"),
        (words.share(0.29), "29.00 %"),
        (words.milliseconds(None), "–"),  # noqa: RUF001
        (words.milliseconds(9_999), "9\u2009999 ms"),
        (words.milliseconds(61_000), "1 min 1 s"),
        (words.duration(None), "–"),  # noqa: RUF001
        (words.duration(0), "0 s"),
        (words.duration(1.5), "1.5 s"),
        (words.duration(-61), "-1 min 1 s"),
        (words.duration(90_061), "1 d 1 h"),
        (words.duration(3_600), "1 h"),
        (words.size(None), "–"),  # noqa: RUF001
        (words.size(1_023), "1023 B"),
        (words.size(1_536), "1.5 KiB"),
        (words.size(3 * 2**30), "3.0 GiB"),
        (words.moment(None), "–"),  # noqa: RUF001
        (words.moment(NOON), "2025-11-21 12:00:00"),
        (words.plain(None), "–"),  # noqa: RUF001
        (words.plain("x"), "x"),
        (words.level(None), "–"),  # noqa: RUF001
        (words.level(2), "2 assured"),
        (words.level(7), "7"),
        (words.synchronised(True), "synchronised"),
        (words.synchronised(False), "not synchronised"),
    ],
)
def test_figures_in_words(written: str, text: str) -> None:
    assert written == text
