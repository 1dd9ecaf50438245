from __future__ import annotations

import math
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import clocks
from sync.reports.clocks import AHEAD_S, BEHIND_S, DAILY, DRIFT_PPM, PLOTTED_S, SETTLE_S
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import START, at, event, events, named_rows, report_rows, table

pytestmark = pytest.mark.spark

HOURS = 26


def life_events(gateway: str, *rows: tuple[float, str, float, bool]) -> list[dict[str, Any]]:
    """Return system events of rows: time, name, value, and whether the clock is synchronised."""
    lane = {"epoch": "E1", "lane": "system", "kind": "system"}
    return [
        event(gateway, **lane, seq=seq, time=at(when), name=name, value=float(value), clock=clock)
        for seq, (when, name, value, clock) in enumerate(rows)
    ]


def beats(begin: float, count: int, *, clock: bool) -> list[tuple[float, str, float, bool]]:
    return [(begin + 60 * place, "heartbeat", 60.0, clock) for place in range(count)]


def segment_rows(
    gateway: str,
    ppm: float = 0,
    ahead: float = 0,
    lag: float = 1,
    hours: int = HOURS,
    batch: float = 1,
    **columns: Any,
) -> list[dict[str, Any]]:
    """Return segments, one every 15 minutes; every second one arrives 3 s later.

    The first three quarters arrive only every `batch` seconds."""
    rows = []
    for place in range(4 * hours):
        when = 900.0 * place
        sealed, service = at(when * (1 + ppm / 1e6) + ahead), when + 1e6
        arrived = when + lag + (3 if place % 2 else 0)
        if place < 3 * hours or gateway == "stick":
            arrived = math.ceil(arrived / batch) * batch
        row = {"gateway": gateway, "boot": "b1", "clock": True, "fate": "accepted", **columns}
        rows.append(row | {"service_seconds": service, "sealed_at": sealed, "arrived": at(arrived)})
    return rows


EVENTS = [
    *life_events("ordinary", *beats(0, 59, clock=False), (3540, "clock_stepped", 9e8, False),
           (3540 + SETTLE_S, "clock_synchronised", 0, True), *beats(4200, 60, clock=True)),
    *life_events("set", (0, "clock_stepped", -3600.0, True), (1, "heartbeat", 60.0, True),
           (SETTLE_S + 1, "clock_synchronised", 0, True)),
    *life_events("nervous", *((60 * one, "clock_stepped", 1.5, True) for one in range(3))),
    *life_events("once", (0, "clock_stepped", -1.5, True)),
    *life_events("alone", *beats(43_200 - 1800, 61, clock=False), *beats(50_000, 60, clock=False)),
]  # fmt: skip

SEGMENT_ROWS = [
    *segment_rows("ordinary"),
    *segment_rows("quartz", ppm=DRIFT_PPM / 2),
    *segment_rows("fast", ppm=DRIFT_PPM + 50),
    *segment_rows("slow", ppm=-DRIFT_PPM - 50, clock=False),
    *segment_rows("ahead", ahead=AHEAD_S + 2),
    *segment_rows("behind", ahead=-BEHIND_S),
    *segment_rows("backlog", batch=7200),
    *segment_rows("stick", lag=9e5, batch=2e4),
    *segment_rows("short", ppm=900, hours=2),
    *segment_rows("fork", ppm=900, fate="fork"),
]


def test_wrong_clocks_are_found_and_no_others(spark: SparkSession) -> None:
    days = DAILY.compute(events(spark, EVENTS))
    report = clocks.clocks(days, table(spark, SEGMENTS, SEGMENT_ROWS))
    found = {row["gateway"]: row for row in named_rows(report, clocks.TABLE.schema)}
    assert {gateway: row["state"] for gateway, row in found.items()} == {
        "ordinary": "ok",
        "quartz": "ok",
        "fast": "drifting",
        "slow": "drifting",
        "ahead": "skewed",
        "behind": "skewed",
        "backlog": "ok",
        "stick": "ok",
        "short": "ok",
        "set": "stepping",
        "nervous": "stepping",
        "once": "ok",
        "alone": "unsynchronised",
    }
    known = {name: (row["drift_ppm"], row["gain_ppm"]) for name, row in found.items()}
    assert known["fast"] == (DRIFT_PPM + 50, DRIFT_PPM + 50)
    assert known["slow"] == (-DRIFT_PPM - 50, -DRIFT_PPM - 50)
    assert known["ordinary"] == known["ahead"] == (0, 0)
    assert known["stick"] == (0, None)
    assert known["short"] == known["set"] == (None, None)
    skew = {name: row["skew_s"] for name, row in found.items()}
    assert (skew["ordinary"], skew["ahead"], skew["behind"]) == (-1, AHEAD_S + 1, -BEHIND_S - 1)
    assert skew["stick"] is skew["short"] is None
    steps = ("steps", "odd_steps", "step_sum_s", "step_max_s", "last_step")
    assert [found["ordinary"][name] for name in steps] == [1, 0, 9e8, 9e8, 3540]
    assert [found["set"][name] for name in steps] == [1, 1, 3600, -3600, 0]
    assert [found["nervous"][name] for name in steps] == [3, 3, 4.5, 1.5, 120]
    free = ("synchronised", "unsynchronised_share", "unsynchronised_s", "worst_day_s")
    assert [found["ordinary"][name] for name in free] == [True, 59 / 119, 3540, 3540]
    assert [found["alone"][name] for name in free] == [False, 1, 7260, 5460]


def test_the_fastest_segment_of_each_hour_is_plotted(spark: SparkSession) -> None:
    def segment(sealed: float, arrived: float, fate: str = "accepted") -> dict[str, Any]:
        return {"gateway": "gw", "sealed_at": at(sealed), "arrived": at(arrived), "fate": fate}

    segments = [segment(0, 9), segment(10, 12), segment(3600, 3599), segment(20, 20, "fork")]
    segments.append(segment(0, -PLOTTED_S))
    offsets = report_rows(clocks.clock_offsets(table(spark, SEGMENTS, segments)), "at", "skew_s")
    assert offsets == [(START.timestamp(), 1)]
