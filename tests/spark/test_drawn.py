from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import drawn
from sync.reports.drawn import DRAWN_S, SENSORS
from sync.reports.hours import HOURS
from sync.reports.queues import RUNS
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import START, at, table, told

pytestmark = pytest.mark.spark

ZERO = START.timestamp()


def test_depths_sensors_and_clocks_are_drawn_by_few_points(spark: SparkSession) -> None:
    run = {"gateway": "gw", "queue": "q"}
    rows = [
        run | {"begin": at(0), "end": at(900), "depth": 2, "depth_max": 5},
        run | {"begin": at(1200), "end": at(1200), "depth": 0, "depth_max": 0},
    ]
    depths = told(drawn.queue_depths(table(spark, RUNS, rows)), *drawn.DEPTHS.fieldNames())
    assert [(row[2] - ZERO, row[3]) for row in depths] == [(0, 5), (900, 2), (1200, 0)]

    def hour(sensor: str, when: float, mean: float, **columns: Any) -> dict[str, Any]:
        place = {"gateway": "gw", "source": "", "sensor": sensor, "hour": at(when)}
        told_of = {"readings": 2, "total": 2 * mean, "low": mean - 1, "high": mean + 1}
        return place | told_of | columns

    hours = [hour("a", 0, 5.0), hour("a", 0, 9.0), hour("a", -DRAWN_S, 5.0)]
    hours += [hour(f"b{place:02}", 0, 1.0) for place in range(SENSORS)]
    series = told(drawn.sensor_series(table(spark, HOURS, hours)), *drawn.SERIES.fieldNames())
    assert series[0] == ("gw", None, "a", ZERO, 7, 4, 10)
    assert [row[2] for row in series] == ["a", *(f"b{place:02}" for place in range(SENSORS - 1))]

    def sent(sealed: float, arrived: float, fate: str = "accepted") -> dict[str, Any]:
        return {"gateway": "gw", "sealed_at": at(sealed), "arrived": at(arrived), "fate": fate}

    segments = [sent(0, 9), sent(10, 12), sent(3600, 3599), sent(20, 20, "fork")]
    segments.append(sent(0, -DRAWN_S))
    offsets = told(drawn.clock_offsets(table(spark, SEGMENTS, segments)), "at", "skew_s")
    assert offsets == [(ZERO, 1)]
