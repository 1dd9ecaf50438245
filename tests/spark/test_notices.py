from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.reports import notices
from sync.reports.shared import frames
from tests.helpers.small_tables import at, checked_rows, event, events, report_rows

pytestmark = pytest.mark.spark


def test_notices_count_messages_and_the_values_of_refusals(spark: SparkSession) -> None:
    dead = event(lane="system", kind="message", name="dead", value=9.0)
    limit = event(lane="system", kind="limit", name="rate")
    rows = [
        dead | {"time": at(5)},
        dead | {"time": at(2)},
        dead | {"name": "expired"},
        limit | {"value": 40.0, "time": at(1)},
        limit | {"value": 2.0, "time": at(86_400)},
        limit | {"gateway": "other"},
        *(limit | {"gateway": "liar", "value": value} for value in (1.7e308, 1.7e308, -5.0)),
        event(lane="system", kind="system", name="dead"),
        event(kind="limit", name="rate", value=5.0),
    ]
    rows += [dead | {"name": "repeated"}]
    report = notices.notices(notices.DAILY.compute(events(spark, rows)))
    assert checked_rows(report, notices.TABLE.schema) == [
        ("gw", "limit", "rate", 42, 1, 86_400),
        ("gw", "message", "dead", 2, 2, 5),
        ("gw", "message", "expired", 1, 0, 0),
        ("liar", "limit", "rate", 3, 0, 0),
        ("other", "limit", "rate", 1, 0, 0),
    ]


def test_the_names_of_one_gateway_do_not_fill_the_table(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "GATEWAY_ROWS", 2)
    limit = {"lane": "system", "kind": "limit"}
    rows = [event("liar", **limit, name=f"name-{each}", value=float(each)) for each in range(1, 9)]
    daily = notices.DAILY.compute(events(spark, [*rows, event("honest", **limit, name="rate")]))
    assert report_rows(notices.notices(daily), "gateway", "name") == [
        ("honest", "rate"),
        ("liar", "name-7"),
        ("liar", "name-8"),
    ]
