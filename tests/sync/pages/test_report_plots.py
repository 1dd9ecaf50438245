"""The plots are repeatable, use the page's colours, have a text alternative and are valid SVG."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from sync.pages import plots
from sync.pages.drawing import shortened
from sync.reports.shared.findings import Rows
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import BEGIN, DELIVERY

FLEET = sample(8)
NOW = FLEET.as_of.timestamp()


def running(rows: Rows, now: float) -> str:
    return plots.running_plot(rows, plots.period(rows, "begin", "end", now))


def depths(rows: Rows, now: float) -> str:
    return plots.depth_plot(rows, plots.period(rows, "at", "at", now))


PLOTS: dict[str, Callable[[], str]] = {
    "running": lambda: running(FLEET["stretches"], NOW),
    "activity": lambda: plots.activity_plot(plots.fleet_activity(FLEET["activity"])),
    "latency": lambda: plots.latency_plot(FLEET["delivery"]),
    "lag": lambda: plots.lag_plot(FLEET["lag"]),
    "queues": lambda: plots.queues_plot(FLEET["queues"]),
    "silence": lambda: plots.silence_plot(FLEET["sensors"]),
    "skew": lambda: plots.skew_plot(FLEET["clocks"]),
    "drift": lambda: plots.drift_plot(FLEET["clocks"]),
    "versions": lambda: plots.versions_plot(FLEET["versions"]),
    "forecast": lambda: plots.forecast_plot(FLEET["growth"]),
    "depth": lambda: depths(FLEET["queue_depths"], NOW),
    "growth": lambda: plots.growth_plot(FLEET["growth"][0]),
    "offset": lambda: plots.offset_plot(FLEET["clock_offsets"][:20]),
    "small": lambda: plots.sparkline(FLEET["sensor_series"][:40], "small-1", "a sensor"),
}


@pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS)
def test_a_plot_is_repeatable_described_and_uses_the_colours_of_the_page(
    draw: Callable[[], str],
) -> None:
    svg = draw()
    assert svg == draw()
    assert svg.startswith("<svg")
    assert 'role="img"' in svg
    match = re.search(r"<title id=[^>]*>(.+?)</title><desc id=[^>]*>(.+?)</desc>", svg)
    assert match is not None
    assert len(match[2]) > 10
    assert "var(--" in svg or 'class="band"' in svg
    assert re.findall(r"#0[1-3]0[1-3]0[1-9]", svg) == []
    assert re.search(r"20\d\d-\d\d-\d\dT", svg) is None
    ElementTree.fromstring(svg)  # noqa: S314 - drawn a moment ago
    ids = re.findall(r' id="([^"]+)"', svg)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([\w-]+)', svg)) <= set(ids)


def test_without_rows_nothing_is_drawn() -> None:
    assert running([], NOW) == plots.activity_plot([]) == depths([], NOW) == ""
    assert plots.latency_plot([DELIVERY | {"qos": 1}]) == plots.lag_plot([]) == ""
    assert plots.latency_plot([DELIVERY | {"p99_ms": None}]) == ""
    assert plots.queues_plot([]) == plots.silence_plot([]) == plots.versions_plot([]) == ""
    assert plots.skew_plot([]) == plots.drift_plot([]) == plots.forecast_plot([]) == ""
    assert plots.offset_plot(FLEET["clock_offsets"][:1]) == ""
    assert plots.sparkline(FLEET["sensor_series"][:1], "small-1", "a sensor") == ""
    unknown = FLEET["growth"][0] | {"trend_day": None}
    assert plots.growth_plot(unknown) == ""


def test_constant_readings_are_a_line_in_the_middle() -> None:
    row = FLEET["sensor_series"][0] | {"mean": 4.0, "low": None, "high": None}
    svg = plots.sparkline([row, row | {"at": row["at"] + 60}], "small-1", "flat")
    assert 'd="M0.00,20.00 100.00,20.00"' in svg


HOSTILE = '"/><script>alert(1)</script> id="axes_1" #010101 $x_1$ --> ]]> &amp; \u202e'


@pytest.mark.parametrize(
    "draw",
    [
        lambda name: running(
            [FLEET["stretches"][0], FLEET["stretches"][-1] | {"gateway": name, "state": "outage"}],
            NOW,
        ),
        lambda name: plots.latency_plot([DELIVERY | {"gateway": name}]),
        lambda name: plots.queues_plot([FLEET["queues"][0] | {"queue": name}]),
        lambda name: plots.silence_plot([FLEET["sensors"][0] | {"sensor": name}]),
        lambda name: plots.versions_plot([FLEET["versions"][0] | {"version": name}]),
        lambda name: depths([each | {"queue": name} for each in FLEET["queue_depths"][:3]], NOW),
        lambda name: plots.sparkline(FLEET["sensor_series"][:9], "small-1", name),
    ],
)
def test_a_hostile_name_is_escaped_in_a_plot(draw: Callable[[str], str]) -> None:
    svg = draw(HOSTILE)
    tree = ElementTree.fromstring(svg)  # noqa: S314 - drawn a moment ago
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not kinds & {"script", "foreignObject", "a", "image"}
    assert not [name for each in tree.iter() for name in each.attrib if name.startswith("on")]
    texts = [element.text or "" for element in tree.iter()]
    short = shortened(HOSTILE)
    assert any(HOSTILE in text or short in text or short[:8] in text for text in texts)


@pytest.mark.parametrize(
    ("span", "tick", "days"),
    [
        (0.5, r"12:00:0\d", "2025-11-21, UTC"),
        (45, r"12:00:\d\d", "2025-11-21, UTC"),
        (3_600, r"12:\d\d", "2025-11-21, UTC"),
        (20 * 3_600, r"\d\d:00", "2025-11-21 to 2025-11-22, UTC"),
        (37 * 3_600, r"11-22", "2025-11-21 to 2025-11-23, UTC"),
        (3 * 86_400, r"11-2\d", "2025-11-21 to 2025-11-24, UTC"),
        (30 * 86_400, r"12-\d\d", "2025-11-21 to 2025-12-21, UTC"),
        (40 * 365 * 86_400, r"20\d\d-\d\d-\d\d", "2025-06-28 to 2066-04-06, UTC"),
    ],
)
def test_time_axes_have_two_to_four_ticks(span: float, tick: str, days: str) -> None:
    row = {"gateway": "gw.example", "begin": BEGIN, "end": BEGIN + span, "state": "running"}
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", running([row], BEGIN + span))
    assert any(re.fullmatch(r"[-\d]+( to [-\d]+)?, UTC", text) for text in texts)
    ticks = [text for text in texts if re.fullmatch(r"[-\d: ]+", text)]
    assert 2 <= len(ticks) <= 4
    assert all(before != after for before, after in pairwise(ticks))
    assert any(re.fullmatch(tick, text) for text in ticks)
    assert len({len(text) for text in ticks}) == 1
    assert days in texts


def test_a_plot_leaves_out_times_of_wrong_clocks() -> None:
    years = 20 * 365 * 86_400
    stretch = {"gateway": "gw.example", "begin": BEGIN, "end": BEGIN + 9_000, "state": "running"}
    outage = stretch | {"state": "outage"}
    begins = (BEGIN - years, BEGIN + years)
    wrong = [outage | {"begin": begin, "end": begin + 60} for begin in begins]
    svg = running([*wrong, stretch], BEGIN + 9_000)
    assert "2025-11-21, UTC" in svg
    assert "because a wrong clock dates them outside this period: 2." in svg
    depth = FLEET["queue_depths"][0]
    svg = depths([depth, depth | {"at": depth["at"] - years}], NOW)
    assert "dates them outside this period: 1." in svg


def test_the_plot_of_many_gateways_shows_the_worst() -> None:
    stretches = [
        {"gateway": f"gw{at:03d}", "begin": BEGIN, "end": BEGIN + 100 + at, "state": "running"}
        for at in range(60)
    ]
    stretches[59]["state"] = "outage"
    svg = running(stretches, BEGIN + 200)
    assert "gw059" in svg
    assert "gw058" not in svg
    assert "30 of 60 gateways; 59 of them without" in svg
    assert "Most outages and unknown time: gw059, 2 min 39 s." in svg


@pytest.mark.parametrize(
    ("draw", "row", "column", "worse"),
    [
        (plots.latency_plot, DELIVERY, "gateway", "p99_ms"),
        (plots.lag_plot, FLEET["lag"][0], "gateway", "p99_s"),
        (plots.queues_plot, FLEET["queues"][0], "queue", "depth"),
        (plots.silence_plot, FLEET["sensors"][0] | {"limit_s": 1.0}, "sensor", "silence_s"),
        (plots.skew_plot, FLEET["clocks"][0], "gateway", "skew_s"),
        (plots.versions_plot, FLEET["versions"][0], "version", "current"),
    ],
)
def test_a_plot_of_many_rows_shows_the_worst(
    draw: Callable[[list[dict[str, Any]]], str], row: dict[str, Any], column: str, worse: str
) -> None:
    svg = draw([row | {column: f"row-{at:02d}", worse: at} for at in range(40)])
    assert "row-39" in svg
    assert "row-01" not in svg


def test_some_sensors_are_drawn_even_if_none_is_silent() -> None:
    rows = [FLEET["sensors"][0] | {"sensor": f"row-{at:02d}", "silence_s": at} for at in range(40)]
    svg = plots.silence_plot(rows)
    assert "row-34" in svg
    assert "row-33" not in svg


def ticks(svg: str) -> list[str]:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return [text for text in texts if re.fullmatch(r"-?[\d.\u202f]+", text)]


def test_axes_of_few_or_small_values_have_plain_ticks() -> None:
    still = [row | {"drift_ppm": 0.0} for row in FLEET["clocks"]]
    assert {"-10", "0", "10"} <= set(ticks(plots.drift_plot(still)))
    soon = FLEET["growth"][0] | {"days_left": 4.0, "days_low": 3.9, "days_high": 4.1}
    assert {"0", "10"} <= set(ticks(plots.forecast_plot([soon])))


def test_the_farthest_clock_is_within_the_plot() -> None:
    svg = plots.skew_plot([FLEET["clocks"][0] | {"skew_s": 899.0}])
    [clip] = re.findall(r'<clipPath[^>]*>\s*<rect x="([\d.]+)"[^>]*width="([\d.]+)"', svg)
    positions = [float(at) for at in re.findall(r'<use [^>]*x="([\d.]+)"', svg)]
    assert max(positions) < sum(map(float, clip)) - 4


def test_negative_lag_is_drawn() -> None:
    row = FLEET["lag"][0] | {"p50_s": -3.0, "p95_s": -1.0, "p99_s": 0.0, "max_s": 2.0}
    assert "<svg" in plots.lag_plot([row])


def test_a_legend_starts_at_the_left() -> None:
    svg = plots.latency_plot([DELIVERY | {"gateway": "a-gateway-with-a-long-name.example"}])
    positions = re.findall(r'<text[^>]*?(?:translate\(|x=")([\d.]+)[^>]*>p50</text>', svg)
    assert [float(position) < 60 for position in positions] == [True]
    assert shortened("a-gateway-with-a-long-name.example") in svg


@pytest.mark.parametrize(
    ("moments", "days"),
    [
        ((-62_135_596_800, -62_135_596_800), "0*1-01-01[^<]*, UTC"),
        ((253_402_300_799, 253_402_300_799), "[^>]*9999-12-31, UTC"),
        ((-62_135_596_800, 253_402_300_799), "0*1-01-01 to 9999-12-31, UTC"),
    ],
    ids=["first year", "last year", "all years"],
)
def test_any_time_can_be_drawn(moments: tuple[float, float], days: str) -> None:
    offsets = [{"gateway": "gw", "at": at, "skew_s": 3e11} for at in moments]
    svg = plots.offset_plot(offsets)
    assert re.search(rf">{days}<", svg)
    assert len(re.findall("<text", svg)) < 30
    stretch = {"gateway": "gw", "begin": moments[0], "end": moments[1], "state": "running"}
    assert re.search("-[0-9]{2}, UTC<", running([stretch], moments[1]))
    assert depths([{"gateway": "gw", "queue": "q", "at": at, "depth": 1e12} for at in moments], NOW)


def test_the_largest_numbers_are_drawn() -> None:
    rows = [{"at": at, "mean": value} for at, value in enumerate((-1.7e308, 0.0, 1.7e308))]
    svg = plots.sparkline(rows, "small-1", "a sensor")
    assert '<path d="M0.00,38.00 50.00,20.00 100.00,2.00"/>' in svg
