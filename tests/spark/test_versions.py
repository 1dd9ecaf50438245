from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sync.reports import versions
from sync.reports.shared.frames import OLDER
from sync.reports.versions import DAILY
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, event, events, named_rows, table

pytestmark = pytest.mark.spark

DAY = 86_400
NOON = DAY // 2


def start(gateway: str, when: float, version: str) -> dict[str, Any]:
    row = event(gateway, lane="system", kind="system", name="start", time=at(when))
    return row | {"tags": {"version": version}}


def logged(gateway: str, begin: float, end: float, count: int, level: str) -> list[dict[str, Any]]:
    """Make `count` events, the first at `begin` and the last at `end`."""
    step = (end - begin) / (count - 1)
    return [event(gateway, level=level, time=at(begin + step * place)) for place in range(count)]


def segment(gateway: str, when: float, software: str) -> dict[str, Any]:
    row = {"gateway": gateway, "epoch": "E1", "fate": "accepted"}
    return row | {"service_seconds": float(when), "software": software}


def upgraded(gateway: str, old: str, new: str, errors: tuple[int, int]) -> list[dict[str, Any]]:
    """Return events of a gateway that runs `old` for a day, then `new`, with so many errors."""
    return [
        start(gateway, -NOON, old),
        *logged(gateway, -NOON, NOON - 1, errors[0], "Error"),
        start(gateway, NOON, new),
        start(gateway, NOON + 10, new),
        *logged(gateway, NOON, NOON + DAY - 1, errors[1], "Critical"),
    ]


EVENTS = [
    *upgraded("a", "1", "2", (20, 22)),
    *upgraded("b", "1", "2", (400, 400)),
    *upgraded("c", "2", "3", (10, 40)),
    *upgraded("d", "2", "3", (10, 45)),
    *upgraded("e", "3", "4", (10, 500)),
    *upgraded("f", "3", "4", (10, 9)),
    *upgraded("g", "3", "4", (10, 9)),
    start("h", 0, "4"),
    *logged("h", 0, 100, 10, "Error"),
    start("h", 200, "5"),
    *logged("h", 200, 300, 300, "Error"),
    *logged("i", 0, 100, 10, "Warning"),
]

SEGMENT_ROWS = [
    segment("a", 1, "1"),
    segment("a", 2, "2"),
    segment("c", 5, "3"),
    segment("h", 1, "5"),
    {**segment("h", 2, "9"), "fate": "fork"},
    segment("i", 1, "0"),
]


def test_a_version_is_worse_if_its_gateways_have_more_errors_than_before(
    spark: SparkSession,
) -> None:
    days = DAILY.compute(events(spark, EVENTS))
    report = versions.versions(days, table(spark, SEGMENTS, SEGMENT_ROWS))
    found = {row["version"]: row for row in named_rows(report, versions.TABLE.schema)}
    judged = ("gateways", "current", "before", "compared", "higher", "worse", "caution")
    assert {version: tuple(row[name] for name in judged) for version, row in found.items()} == {
        "0": (1, 1, None, 0, 0, False, False),
        "1": (2, 0, None, 0, 0, False, False),
        "2": (4, 1, "1", 2, 1, False, False),
        "3": (5, 1, "2", 2, 2, True, False),
        "4": (4, 0, "3", 3, 1, False, False),
        "5": (1, 1, "4", 1, 1, True, True),
    }
    assert found["5"]["per_day"] is None  # it ran for less than two minutes
    third = found["3"]
    assert (third["first_seen"], third["last_seen"]) == (-NOON, NOON + DAY - 1)
    assert (third["events"], third["errors"]) == (122, 115)
    assert third["per_thousand"] == pytest.approx(115 / 122 * 1000)
    assert third["gateway_days"] == pytest.approx(5, abs=1e-3)
    assert third["per_day"] == pytest.approx(23, abs=1e-2)
    assert third["ratio"] == pytest.approx(4.25, abs=1e-2)


def test_earlier_versions_of_one_gateway_are_added_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One gateway that invents versions does not lengthen the table for all."""
    monkeypatch.setattr(versions, "GATEWAY_VERSIONS", 3)
    rows = [start("liar", place, f"v{place}") for place in range(9)]
    days = DAILY.compute(events(spark, [*rows, start("honest", 0, "1")]))
    sent = [segment("liar", 1, "v2"), segment("honest", 1, "1")]
    report = versions.versions(days, table(spark, SEGMENTS, sent))
    found = named_rows(report, versions.TABLE.schema)
    shown = ("version", "current", "events", "before")
    assert [tuple(row[name] for name in shown) for row in found] == [
        ("v8", 0, 1, "v7"),
        ("v7", 0, 1, "v2"),
        ("v2", 1, 1, None),
        (OLDER, 0, 6, None),
        ("1", 1, 1, None),
    ]
    assert OLDER in versions.TABLE.about


def test_a_wrong_clock_adds_at_most_a_day_to_the_time_of_a_version(spark: SparkSession) -> None:
    rows = events(spark, [event(time=at(0)), event(time=at(-1e9)), event(time=at(60))])
    of_one_day = rows.withColumn("day", F.lit(at(0).date()))
    assert [row["span_s"] for row in versions.days(of_one_day).collect()] == [86_400.0]
