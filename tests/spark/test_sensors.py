from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import sensors
from sync.reports.sensors import DAILY, DAILY_LIVES
from sync.reports.shared.thresholds import BACKLOG_S, MIN_SILENCE_S, SILENT_INTERVALS
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, event, events, report_rows, table

pytestmark = pytest.mark.spark

NOW = 54_000
"""Time of the last event of every gateway: fifteen hours after START, on the next day."""


def read(sensor: str, times: Iterable[float], gateway: str = "gw") -> list[dict[str, Any]]:
    row = event(gateway, epoch="E1", lane="readings", kind="reading", topic="hall", name=sensor)
    row |= {"source": f"{sensor}@gw/fw"}
    return [row | {"seq": int(when), "time": at(when)} for when in times]


def system(gateway: str, when: float, name: str = "heartbeat") -> dict[str, Any]:
    place = {"epoch": "E1", "lane": "system", "seq": int(when), "time": at(when)}
    return event(gateway, kind="system", name=name, **place)


def segment(gateway: str, first: int, last: int, sealed: float, lag: float = 1) -> dict[str, Any]:
    lane = {"gateway": gateway, "epoch": "E1", "lane": "readings", "fate": "accepted"}
    times = {"sealed_at": at(sealed), "arrived": at(sealed + lag)}
    return lane | {"first_seq": first, "last_seq": last} | times


GATEWAYS = ("gw", "restarted", "set", "hole", "old-hole", "late", "caught-up", "rarely")

EVENTS = [
    *(system(gateway, NOW) for gateway in GATEWAYS),
    *read("falls", range(0, 600, 60)),
    *read("beyond", range(NOW - 600 * 20, NOW - 599, 600)),
    *read("jitter", [when + 20 * (when % 3) for when in range(0, NOW - 60, 61)]),
    *read("slow", [0, 10800, 21600, 32400, 43200, 43200.5, NOW]),
    *read("edge", range(int(NOW - MIN_SILENCE_S) - 600, int(NOW - MIN_SILENCE_S) + 1, 60)),
    *read("new", [0, 60, 120, 180, 240]),
    *(row for each in GATEWAYS[1:-1] for row in read("falls", range(0, 600, 60), each)),
    system("restarted", NOW - 800, "start"),
    system("set", NOW - 800, "clock_stepped"),
    system("old-hole", 3000, "start"),
    {**read("late", [900], "late")[0], "seq": 901},
    *read("behind", range(NOW - 8600, NOW - 7999, 60), "rarely"),
]

SEGMENT_ROWS = [
    segment("hole", 1, 5, 400),
    segment("hole", 7, 9, NOW - 800),
    segment("old-hole", 1, 5, 400),
    segment("old-hole", 7, 9, NOW - 1000),
    segment("late", 1, 5, 900, NOW - 900),
    segment("caught-up", 1, 5, 900, NOW - 900 - 3 * BACKLOG_S),
    {**segment("caught-up", 1, 5, NOW), "lane": "system"},
    {**segment("caught-up", 9, 9, NOW), "fate": "fork"},
    *(
        {**segment("rarely", at, at, NOW), "lane": "system", "service_seconds": 3600.0 * at}
        for at in range(1, 8)
    ),
]


def test_silent_sensors_are_found_and_no_others(spark: SparkSession) -> None:
    rows = events(spark, EVENTS)
    segments = table(spark, SEGMENTS, SEGMENT_ROWS)
    report = sensors.sensors(DAILY.compute(rows), DAILY_LIVES.compute(rows), segments)
    assert report.schema.simpleString() == sensors.TABLE.schema.simpleString()
    names = ("gateway", "sensor", "state", "readings", "interval_s", "limit_s", "silence_s")
    found = {row[:2]: row[2:] for row in report_rows(report, *names)}
    silence = NOW - 540

    def about(number: float, error: float) -> Any:
        return pytest.approx(number, abs=error)

    assert found == {
        ("gw", "hall falls"): ("silent", 10, 60, MIN_SILENCE_S, silence),
        ("caught-up", "hall falls"): ("silent", 10, 60, MIN_SILENCE_S, silence),
        ("old-hole", "hall falls"): ("silent", 10, 60, MIN_SILENCE_S, silence),
        ("gw", "hall new"): ("unknown", 5, None, None, NOW - 240),
        ("restarted", "hall falls"): ("unknown", 10, 60, MIN_SILENCE_S, silence),
        ("set", "hall falls"): ("unknown", 10, 60, MIN_SILENCE_S, silence),
        ("hole", "hall falls"): ("unknown", 10, 60, MIN_SILENCE_S, silence),
        ("gw", "hall beyond"): ("ok", 20, 600, 600 * SILENT_INTERVALS, 600),
        ("gw", "hall jitter"): ("ok", 885, about(61, 20), MIN_SILENCE_S, about(60, 60)),
        ("gw", "hall slow"): ("ok", 7, 10799.9, 10799.9 * SILENT_INTERVALS, 0),
        ("gw", "hall edge"): ("ok", 11, 60, MIN_SILENCE_S, MIN_SILENCE_S),
        ("rarely", "hall behind"): ("ok", 11, 60, 9000, 8000),
        ("late", "hall falls"): ("ok", 10, 60, MIN_SILENCE_S, 360),
        ("late", "hall late"): ("unknown", 1, None, None, 0),
    }
