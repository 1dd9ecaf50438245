from __future__ import annotations

from collections.abc import Sequence
from math import pi, sin
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import anomalies
from sync.reports.anomalies import DAILY, HOURS, MIN_TYPE, PLOTTED_S, PLOTTED_SENSORS, UNUSUAL_Z
from sync.tables.tables import DAY
from tests.helpers.small_tables import (
    START,
    at,
    checked_rows,
    event,
    events,
    named_rows,
    report_rows,
    table,
)

pytestmark = pytest.mark.spark


def test_summary_of_an_hour(spark: SparkSession) -> None:
    def read(second: float, value: float | None, **columns: Any) -> dict[str, Any]:
        sensor = {"lane": "readings", "kind": "reading", "source": "a@gw/x", "name": "t"}
        place = {"epoch": "E", "seq": int(second), "time": at(second), "value": value}
        return event() | sensor | {"unit": "C"} | place | columns

    values = [5.0, 5.0, 6.0, 5.0, 7.0, 7.0, 7.0]
    rows = [read(60 * place, value) for place, value in enumerate(values)]
    rows += [read(3600, 7.0, source=None, unit=None), read(9, None, name="text")]
    hours = DAILY.compute(events(spark, rows))
    names = [name for name in HOURS.fieldNames() if name != "gateway"]
    assert sorted(report_rows(hours, *names), key=lambda row: row[4]) == [
        ("a@gw", "t", "C", "t", 0, 7, 42, 5, 7, 6, 0, 360, 5, 2, 60, 7, 3, 240),
        ("", "t", "", "t", 3600, 1, 7, 7, 7, 7, 3600, 3600, 7, 1, 3600, 7, 1, 3600),
    ]


def hourly(
    sensor: str,
    medians: Sequence[float],
    *,
    still: Sequence[int] = (),
    readings: int = 20,
    name: str = "",
) -> list[dict[str, Any]]:
    """Return hours of a sensor with these medians; it is constant in those in `still`."""
    rows = []
    for place, median in enumerate(medians):
        begin, is_still = at(place * 3600), place in still
        first, last = at(place * 3600 + 1), at(place * 3600 + 3599)
        low, high = (float(median + (0 if is_still else half)) for half in (-0.5, 0.5))
        same, head_until, tail_since = (readings, last, first) if is_still else (1, first, last)
        rows.append(
            {"gateway": "gw", "source": "", "sensor": sensor, "unit": "", "name": name or sensor}
            | {"hour": begin, "day": begin.date(), "readings": readings, "median": float(median)}
            | {"low": low, "high": high, "first": first, "last": last}
            | {"head": low, "head_readings": same, "head_until": head_until}
            | {"tail": high, "tail_readings": same, "tail_since": tail_since}
        )
    return rows


def diurnal(hours: int, *, middle: float = 20, odd: dict[int, float] | None = None) -> list[float]:
    """Return hourly temperatures: a daily cycle of 6 around the middle, with noise of 0.25."""
    return [
        middle + 6 * sin(2 * pi * at_ / 24) + (at_ * 7 % 11 - 5) / 20 + (odd or {}).get(at_, 0)
        for at_ in range(hours)
    ]


CASES = [
    *hourly("stuck", diurnal(30) + [7] * 18, still=range(30, 48)),
    *hourly("ends", diurnal(30) + [7] * 10 + diurnal(32), still=range(30, 40)),
    *hourly("brief", diurnal(30) + [7] * 5 + diurnal(37), still=range(30, 35)),
    *hourly("few", diurnal(30) + [7] * 20, still=range(30, 50), readings=1),
    *hourly("constant", [5] * 48, still=range(48)),
    *hourly("rests", [place // 8 % 3 for place in range(96)], still=range(96)),
    *hourly("night", [max(0, 90 * sin(2 * pi * place / 24)) for place in range(96)],
            still=[place for place in range(96) if place % 24 >= 12]),
    *hourly("dusk", [max(0, 90 * sin(2 * pi * place / 24)) for place in range(20)],
            still=range(12, 20)),
    *hourly("odd", diurnal(96, odd={50: 60, 51: -30})),
    *hourly("slightly", diurnal(96, odd={50: 0.4})),
    *hourly("young", diurnal(30, odd={20: 60})),
    *hourly("counter", [place * 1.7 for place in range(96)]),
    *hourly("door", [float(place % 37 == 0) for place in range(96)], still=range(96)),
    *hourly("steps", [20.0 + 0.1 * (place % 29 == 0) for place in range(96)], still=range(96)),
    *hourly("jumps", [20.0 + 0.1 * (place % 29 == 0) + 9 * (place == 70) for place in range(96)],
            still=range(96)),
]  # fmt: skip

for sensor in range(4):
    weather = dict.fromkeys(range(60, 84), 9.0)
    odd_one = {70: 45.0} if sensor == 3 else {}
    CASES += hourly(
        f"w{sensor}", diurnal(168, middle=sensor, odd=weather | odd_one), name="weather"
    )
CASES += hourly("indoors", [21.0] * 168, name="weather")
for sensor in range(2):
    CASES += hourly(f"c{sensor}", [place * (1 + sensor) for place in range(49)], name="count")
for sensor in range(2, 4):
    CASES += hourly(f"c{sensor}", [place * (1 + sensor) for place in range(48)], name="count")
for sensor in range(MIN_TYPE + 1):
    values = [85.0 if sensor == 0 else 20 + sensor / 10]
    CASES += hourly(f"n{sensor:02}", values, name="new")
    values = [-18.0 if sensor < 2 else 20 + sensor / 10]
    CASES += hourly(f"f{sensor:02}", values, name="mixed")


def test_flat_lines_and_unusual_hours_are_found_and_no_others(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    hours = table(spark, StructType([*HOURS.fields, DAY]), CASES)
    rows = named_rows(anomalies.anomalies(hours), anomalies.TABLE.schema)
    found = {row["sensor"]: row for row in rows if row["state"] != "ok"}
    assert {sensor: row["state"] for sensor, row in found.items()} == {
        "stuck": "flat",
        "ends": "flat",
        "odd": "anomalous",
        "young": "anomalous",
        "jumps": "anomalous",
        "w3": "anomalous",
        "n00": "anomalous",
    }
    flat = ("flat_since", "flat_until", "flat_readings", "flat_value")
    assert [found["stuck"][name] for name in flat] == [30 * 3600 + 1, 48 * 3600 - 1, 360, 7]
    assert [found["ends"][name] for name in flat] == [30 * 3600 + 1, 40 * 3600 - 1, 200, 7]
    odd = ("anomalous_hours", "worst_at", "basis")
    assert [found["odd"][name] for name in odd] == [2, 50 * 3600, "hour"]
    assert [found["young"][name] for name in odd] == [1, 20 * 3600, "all"]
    assert [found["w3"][name] for name in odd] == [1, 70 * 3600, "hour"]
    assert [found["n00"][name] for name in odd] == [1, 0, "type"]
    assert found["odd"]["worst_value"] - found["odd"]["usual"] == pytest.approx(60, abs=1)
    assert all(abs(row["z"]) > UNUSUAL_Z for row in found.values() if row["state"] == "anomalous")
    assert [row["sensor"] for row in rows if row["constant"]][:1] == ["constant"]


def test_few_sensors_and_the_latest_hours_are_plotted(spark: SparkSession) -> None:
    def hour(sensor: str, when: float, mean: float) -> dict[str, Any]:
        place = {"gateway": "gw", "source": "", "sensor": sensor, "hour": at(when)}
        return place | {"readings": 2, "total": 2 * mean, "low": mean - 1, "high": mean + 1}

    hours = [hour("a", 0, 5.0), hour("a", 0, 9.0), hour("a", -PLOTTED_S, 5.0)]
    hours += [hour(f"b{place:02}", 0, 1.0) for place in range(PLOTTED_SENSORS)]
    series = checked_rows(anomalies.sensor_series(table(spark, HOURS, hours)), anomalies.SERIES)
    assert series[0] == ("gw", None, "a", START.timestamp(), 7, 4, 10)
    others = (f"b{place:02}" for place in range(PLOTTED_SENSORS - 1))
    assert [row[2] for row in series] == ["a", *others]
