from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import delivery, duplicates, lag, notices, quarantine, totals
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, events, table, told

NOW = at(100_000).timestamp()

pytestmark = pytest.mark.spark


def event(gateway: str = "gw", **columns: Any) -> dict[str, Any]:
    return {"gateway": gateway, "lane": "logs", "kind": "log", "time": at(0), **columns}


def test_latency_by_gateway_and_level_is_exact(spark: SparkSession) -> None:
    rows = [event(qos=2, latency_ms=value, time=at(value * 2000)) for value in range(1, 101)]
    rows += [event(qos=1, latency_ms=0), event(qos=1, latency_ms=7), event(qos=1)]
    rows += [event("other", qos=2, latency_ms=5), event("other")]
    report = delivery.delivery(delivery.DAILY.compute(events(spark, rows)))
    assert report.schema.simpleString() == delivery.SCHEMA.simpleString()
    assert told(report, *delivery.SCHEMA.fieldNames()) == [
        ("gw", 1, 2, 0, 7, 7, 7),
        ("gw", 2, 100, 50, 95, 99, 100),
        ("other", 2, 1, 5, 5, 5, 5),
    ]


def test_lag_separates_synchronised_clocks(spark: SparkSession) -> None:
    rows = [event(clock=True, arrived=at(1.5)), event(clock=True, arrived=at(3))]
    rows += [event(clock=False, arrived=at(-0.25))]
    report = lag.lag(lag.DAILY.compute(events(spark, rows)))
    assert report.schema.simpleString() == lag.SCHEMA.simpleString()
    assert told(report, *lag.SCHEMA.fieldNames()) == [
        ("gw", True, 2, 1.5, 3, 3, 3),
        ("gw", False, 1, -0.25, -0.25, -0.25, -0.25),
    ]


def test_percentiles_of_lag_occurred_and_are_two_per_cent_too_high_at_most(
    spark: SparkSession,
) -> None:
    rows = [event(clock=True, arrived=at(0.3 * number)) for number in range(1, 1001)]
    steps = lag.DAILY.compute(events(spark, rows)).persist()
    assert steps.count() < 300
    [(half, most, all_of_them)] = told(lag.lag(steps), "p50_s", "max_s", "events")
    assert 150 <= half <= 150 * (1 + lag.RESOLUTION)
    assert (most, all_of_them) == (300, 1000)


def test_repeated_offers_are_counted_by_source(spark: SparkSession) -> None:
    told_of = event(lane="system", kind="message", name="repeated", source="pump@gw", value=3.0)
    rows = [
        told_of,
        told_of | {"time": at(90_000), "value": 4.0},
        told_of | {"source": "fan@gw", "value": None},
        *(told_of | {"source": "liar@gw", "value": value} for value in (1.7e308, 1.7e308, -5.0)),
        told_of | {"name": "dead"},
        told_of | {"lane": "logs"},
    ]
    again = {"gateway": "gw", "lane": "logs", "fate": "duplicate", "arrived": at(5)}
    segments = [again, again | {"arrived": at(90_001)}, again | {"fate": "accepted"}]
    daily = duplicates.DAILY.compute(events(spark, rows)).persist()
    report = duplicates.duplicates(daily, table(spark, SEGMENTS, segments))
    assert report.schema.simpleString() == duplicates.SCHEMA.simpleString()
    assert told(report, *duplicates.SCHEMA.fieldNames()) == [
        ("gw", "offers", "fan@gw", 1, 0, 0),
        ("gw", "offers", "liar@gw", 3, 0, 0),
        ("gw", "offers", "pump@gw", 7, 0, 90_000),
        ("gw", "segments", "logs", 2, 5, 90_001),
    ]
    later = duplicates.duplicates(daily, table(spark, SEGMENTS, segments), date(2025, 11, 22))
    assert told(later.where("what = 'segments'"), "times") == [(1,)]


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
    assert report.schema.simpleString() == notices.SCHEMA.simpleString()
    assert told(report, *notices.SCHEMA.fieldNames()) == [
        ("gw", "limit", "rate", 42, 1, 86_400),
        ("gw", "message", "dead", 2, 2, 5),
        ("gw", "message", "expired", 1, 0, 0),
        ("liar", "limit", "rate", 3, 0, 0),
        ("other", "limit", "rate", 1, 0, 0),
    ]


def test_totals_are_counted_by_lane_and_kind_and_by_time(spark: SparkSession) -> None:
    rows = [event(time=at(second)) for second in (0, 9, 10, 25)]
    rows += [event(lane="system", kind="limit", time=at(-1))]
    daily = totals.DAILY.compute(events(spark, rows)).persist()
    report = totals.totals(daily)
    assert report.schema.simpleString() == totals.SCHEMA.simpleString()
    assert told(report, "lane", "kind", "events") == [("logs", "log", 4), ("system", "limit", 1)]
    begin = int(at(0).timestamp())
    assert totals.period_of(daily, NOW) == (begin - 1, begin + 25, 1)
    assert totals.period_of(daily.where("false"), NOW) == (0, 0, 1)
    active = totals.activity(daily, totals.Period(begin - 1, begin + 9, 10))
    assert active.schema.simpleString() == totals.ACTIVITY.simpleString()
    assert told(active, *totals.ACTIVITY.fieldNames()) == [
        ("gw", begin - 10, "system", 10, 1),
        ("gw", begin, "logs", 10, 2),
    ]
    hourly = totals.activity(daily, totals.Period(begin - 1, begin + 25, 3600))
    assert told(hourly, "begin", "events") == [(begin - 3600, 1), (begin, 4)]


def test_the_step_of_counts_suits_the_day(spark: SparkSession) -> None:
    rows = [event(time=at(second)) for second in (0, 97, 90_000)]
    rows += [event("other", time=at(second)) for second in (0, 40_000)]
    daily = totals.DAILY.compute(events(spark, rows)).orderBy("gateway", "begin").persist()
    assert told(daily, "gateway", "step_s") == [
        ("gw", 10),
        ("gw", 10),
        ("gw", 1),
        ("other", 600),
        ("other", 600),
    ]
    assert totals.period_of(daily, NOW).step_s == 3600


@pytest.mark.parametrize(
    ("span", "step"), [(0, 1), (96, 1), (97, 10), (86_400, 3_600), (1e12, 2_592_000)]
)
def test_the_step_of_a_plot(span: float, step: int) -> None:
    assert totals.step_for(span) == step


def test_refused_files_are_listed_once_latest_first(spark: SparkSession) -> None:
    bad = {"path": "landing/b", "sha256": "1", "fate": "bad", "reason": "magic", "size": 3}
    rows = [
        bad | {"arrived": at(1)},
        bad | {"arrived": at(1)},
        bad | {"path": "aside/c", "fate": "fork", "reason": "fork", "arrived": at(2)},
        {"path": "landing/a", "sha256": "2", "fate": "accepted", "arrived": at(3)},
    ]
    segments = table(spark, SEGMENTS, rows)
    report = quarantine.quarantine(segments)
    assert report.schema.simpleString() == quarantine.SCHEMA.simpleString()
    assert told(report, "path", "arrived", "size", "reason") == [
        ("aside/c", 2, 3, "fork"),
        ("landing/b", 1, 3, "magic"),
    ]
    assert told(quarantine.files_by_fate(segments), "fate", "files") == [
        ("accepted", 1),
        ("bad", 1),
        ("fork", 1),
    ]
