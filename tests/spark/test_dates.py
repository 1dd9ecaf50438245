from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sync.reports.dates import TABLE, daily_dates, dates
from tests.helpers.small_tables import at, checked_rows, event, events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

YEARS = timedelta(days=4_000).total_seconds()


def test_events_on_another_day_than_their_own_are_counted(spark: SparkSession) -> None:
    rows = [
        event(),
        event("ahead", time=at(YEARS)),
        event("behind", time=at(-YEARS)),
        event("behind", time=at(-2 * YEARS)),
        event("behind"),
    ]
    filed = events(spark, rows).withColumn("day", F.lit(at(0).date()))
    assert checked_rows(dates(daily_dates(filed)), TABLE.schema) == [
        ("ahead", 1, YEARS, YEARS),
        ("behind", 2, -2 * YEARS, -YEARS),
    ]
