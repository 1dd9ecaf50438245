from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import SparkSession

from sync.reports import duplicates
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, checked_rows, event, events, report_rows, table

pytestmark = pytest.mark.spark


def test_repeated_offers_are_counted_by_source(spark: SparkSession) -> None:
    repeated = event(lane="system", kind="message", name="repeated", source="pump@gw", value=3.0)
    rows = [
        repeated,
        repeated | {"time": at(90_000), "value": 4.0},
        repeated | {"source": "fan@gw", "value": None},
        *(repeated | {"source": "liar@gw", "value": value} for value in (1.7e308, 1.7e308, -5.0)),
        repeated | {"name": "dead"},
        repeated | {"lane": "logs"},
    ]
    duplicate = {"gateway": "gw", "lane": "logs", "fate": "duplicate", "arrived": at(5)}
    segments = [duplicate, duplicate | {"arrived": at(90_001)}, duplicate | {"fate": "accepted"}]
    daily = duplicates.DAILY.compute(events(spark, rows)).persist()
    report = duplicates.duplicates(daily, table(spark, SEGMENTS, segments))
    assert checked_rows(report, duplicates.TABLE.schema) == [
        ("gw", "offers", "fan@gw", 1, 0, 0),
        ("gw", "offers", "liar@gw", 3, 0, 0),
        ("gw", "offers", "pump@gw", 7, 0, 90_000),
        ("gw", "segments", "logs", 2, 5, 90_001),
    ]
    later = duplicates.duplicates(daily, table(spark, SEGMENTS, segments), date(2025, 11, 22))
    assert report_rows(later.where("what = 'segments'"), "times") == [(1,)]
