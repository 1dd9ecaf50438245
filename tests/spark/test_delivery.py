from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.reports import delivery
from tests.helpers.small_tables import at, checked_rows, event, events

pytestmark = pytest.mark.spark


def test_latency_by_gateway_and_level_is_exact(spark: SparkSession) -> None:
    rows = [event(qos=2, latency_ms=value, time=at(value * 2000)) for value in range(1, 101)]
    rows += [event(qos=1, latency_ms=0), event(qos=1, latency_ms=7), event(qos=1)]
    rows += [event("other", qos=2, latency_ms=5), event("other")]
    report = delivery.delivery(delivery.DAILY.compute(events(spark, rows)))
    assert checked_rows(report, delivery.TABLE.schema) == [
        ("gw", 1, 2, 0, 7, 7, 7),
        ("gw", 2, 100, 50, 95, 99, 100),
        ("other", 2, 1, 5, 5, 5, 5),
    ]
