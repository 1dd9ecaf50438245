from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import refusals
from sync.reports.refusals import DAILY, NAMED
from sync.reports.shared.thresholds import SURGE_FACTOR, SURGE_MIN
from tests.helpers.small_tables import at, event, events, report_rows

pytestmark = pytest.mark.spark

DAY = 86_400


def refused(source: str | None, day: int, times: float | None, **columns: Any) -> dict[str, Any]:
    row = event(lane="system", kind="limit", name="rate", time=at(day * DAY))
    return row | {"source": source, "value": times, **columns}


def test_a_surge_is_far_above_the_usual_count(spark: SparkSession) -> None:
    many = float(SURGE_MIN)
    rows = [refused("steady", day, 40.0) for day in range(10)]
    rows += [refused("more", day, 40.0) for day in range(9)]
    rows += [refused("more", 9, 40 * SURGE_FACTOR), refused("more", 9, 1.0, name="size")]
    rows += [refused("most", day, 40.0) for day in range(8)]
    rows += [refused("most", 8, 40 * SURGE_FACTOR + 1)]
    rows += [refused("new", 9, many), refused("few", 9, many - 1), refused("once", 3, 99.0)]
    rows += [refused("new", 9, None, gateway=f"gw-{name}") for name in range(NAMED)]
    rows += [refused("new", 9, 2.0, gateway="gw-4"), refused("ahead", 12, 99.0)]
    rows += [refused(None, 9, 1e300)]
    rows += [refused("log", 9, 99.0, lane="logs"), refused("other", 9, 99.0, kind="message")]
    report = refusals.refusals(DAILY.compute(events(spark, rows)), at(9 * DAY))
    assert report.schema.simpleString() == refusals.TABLE.schema.simpleString()
    names = "gw, gw-4, gw-0, gw-1, gw-2"
    columns = ("source", "rule", "times", "since", "until", "gateways", "which", "latest", "usual")
    assert report_rows(report, *columns, "surge") == [
        ("most", "rate", 521, 0, 8 * DAY, 1, "gw", 201, 40, True),
        ("new", "rate", 27, 9 * DAY, 9 * DAY, 6, names, 27, 0, True),
        ("more", "rate", 560, 0, 9 * DAY, 1, "gw", 200, 40, False),
        ("steady", "rate", 400, 0, 9 * DAY, 1, "gw", 40, 40, False),
        ("ahead", "rate", 99, 12 * DAY, 12 * DAY, 1, "gw", 0, 0, False),
        ("once", "rate", 99, 3 * DAY, 3 * DAY, 1, "gw", 0, 0, False),
        ("few", "rate", 19, 9 * DAY, 9 * DAY, 1, "gw", 19, 0, False),
        (None, "rate", 1, 9 * DAY, 9 * DAY, 1, "gw", 1, 0, False),
        ("more", "size", 1, 9 * DAY, 9 * DAY, 1, "gw", 1, 0, False),
    ]


def test_there_is_no_surge_on_the_first_day(spark: SparkSession) -> None:
    rows = [refused("pump", 0, 99.0), refused("pump", 1, 9.0)]
    report = refusals.refusals(DAILY.compute(events(spark, rows)), at(DAY))
    assert report_rows(report, "source", "latest", "usual", "surge") == [("pump", 99, None, False)]
