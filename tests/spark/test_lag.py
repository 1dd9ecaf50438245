from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.reports import lag
from tests.helpers.small_tables import at, checked_rows, event, events, report_rows

pytestmark = pytest.mark.spark


def test_lag_separates_synchronised_clocks(spark: SparkSession) -> None:
    rows = [event(clock=True, arrived=at(1.5)), event(clock=True, arrived=at(3))]
    rows += [event(clock=False, arrived=at(-0.25))]
    report = lag.lag(lag.DAILY.compute(events(spark, rows)))
    assert checked_rows(report, lag.TABLE.schema) == [
        ("gw", True, 2, 1.5, 3, 3, 3),
        ("gw", False, 1, -0.25, -0.25, -0.25, -0.25),
    ]


def test_percentiles_of_lag_are_at_most_two_per_cent_too_high(
    spark: SparkSession,
) -> None:
    rows = [event(clock=True, arrived=at(0.3 * number)) for number in range(1, 1001)]
    steps = lag.DAILY.compute(events(spark, rows)).persist()
    assert steps.count() < 300
    [(half, most, all_of_them)] = report_rows(lag.lag(steps), "p50_s", "max_s", "events")
    assert 150 <= half <= 150 * (1 + lag.RESOLUTION)
    assert (most, all_of_them) == (300, 1000)
