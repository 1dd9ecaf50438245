from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sync.reports import totals
from tests.helpers.small_tables import at, event, events, report_rows

pytestmark = pytest.mark.spark

NOW = at(100_000).timestamp()


def test_totals_are_counted_by_lane_and_kind_and_by_time(spark: SparkSession) -> None:
    rows = [event(time=at(second)) for second in (0, 9, 10, 25)]
    rows += [event(lane="system", kind="limit", time=at(-1))]
    daily = totals.DAILY.compute(events(spark, rows)).persist()
    report = totals.totals(daily)
    assert report.schema.simpleString() == totals.TABLE.schema.simpleString()
    assert report_rows(report, "lane", "kind", "events") == [
        ("logs", "log", 4),
        ("system", "limit", 1),
    ]
    begin = int(at(0).timestamp())
    assert totals.period_of(daily, NOW) == (begin - 1, begin + 25, 1)
    assert totals.period_of(daily.where("false"), NOW) == (0, 0, 1)
    active = totals.activity(daily, totals.Period(begin - 1, begin + 9, 10))
    assert active.schema.simpleString() == totals.ACTIVITY.simpleString()
    assert report_rows(active, *totals.ACTIVITY.fieldNames()) == [
        ("gw", begin - 10, "system", 10, 1),
        ("gw", begin, "logs", 10, 2),
    ]
    hourly = totals.activity(daily, totals.Period(begin - 1, begin + 25, 3600))
    assert report_rows(hourly, "begin", "events") == [(begin - 3600, 1), (begin, 4)]


def test_kinds_that_a_gateway_invents_are_one_row(spark: SparkSession) -> None:
    rows = [event("liar", kind=f"kind-{each}") for each in range(9)]
    daily = totals.DAILY.compute(events(spark, [*rows, event(), event(kind="node")]))
    assert report_rows(totals.totals(daily), "lane", "kind", "events") == [
        ("logs", totals.OTHER, 9),
        ("logs", "log", 1),
        ("logs", "node", 1),
    ]
    assert totals.OTHER in totals.TABLE.about


def test_the_step_of_counts_suits_the_day(spark: SparkSession) -> None:
    rows = [event(time=at(second)) for second in (0, 97, 90_000)]
    rows += [event("other", time=at(second)) for second in (0, 40_000)]
    daily = totals.DAILY.compute(events(spark, rows)).orderBy("gateway", "begin").persist()
    steps = [("gw", 10), ("gw", 10), ("gw", 1), ("other", 600), ("other", 600)]
    assert report_rows(daily, "gateway", "step_s") == steps
    assert totals.period_of(daily, NOW).step_s == 3600


def test_events_of_a_wrong_clock_do_not_coarsen_the_plot(spark: SparkSession) -> None:
    """They have the day of their arrival, and are years apart from the day's other events."""
    rows = [event(time=at(second)) for second in (0, 50)]
    today = events(spark, rows)
    wrong = events(spark, [event(time=at(-1e9)), event(time=at(-2e9))])
    daily = totals.DAILY.compute(today.union(wrong.withColumn("day", F.lit(at(0).date()))))
    assert totals.period_of(daily, NOW).step_s == 1
    assert report_rows(totals.totals(daily), "events") == [(4,)]


@pytest.mark.parametrize(
    ("span", "step"), [(0, 1), (96, 1), (97, 10), (86_400, 3_600), (1e12, 2_592_000)]
)
def test_the_step_of_a_plot(span: float, step: int) -> None:
    assert totals.step_for(span) == step
