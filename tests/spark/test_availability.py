from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sync.central.reports.availability import SCHEMA, SPANS, availability, spans, stretches
from sync.central.tables import EVENTS, SEGMENTS
from tests.helpers.small_tables import at, table, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIRST, SECOND = "01A", "01B"


def sign(
    gateway: str,
    seq: int,
    name: str,
    seconds: float,
    *,
    epoch: str = FIRST,
    clock: bool = True,
    value: float | None = None,
) -> dict[str, Any]:
    return {
        "gateway": gateway,
        "epoch": epoch,
        "lane": "system",
        "seq": seq,
        "time": at(seconds),
        "clock": clock,
        "kind": "system",
        "name": name,
        "value": value,
    }


def limit(gateway: str, seq: int, seconds: float) -> dict[str, Any]:
    return sign(gateway, seq, "heartbeat", seconds) | {"kind": "limit"}


def arrival(gateway: str, seconds: float) -> dict[str, Any]:
    return {"gateway": gateway, "arrived": at(seconds), "fate": "accepted"}


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [
        # whole: two heartbeats, one 150 s late (no outage), stopped for 100 s, started, and on
        sign("whole", 1, "start", 0),
        sign("whole", 2, "heartbeat", 60),
        limit("whole", 3, 61),
        sign("whole", 4, "heartbeat", 210),
        sign("whole", 5, "stop", 220),
        sign("whole", 6, "start", 320),
        sign("whole", 7, "heartbeat", 380),
        # torn: dies after 60 s and is away for 151 s, restarts in a new epoch
        sign("torn", 1, "start", 0),
        sign("torn", 2, "heartbeat", 60),
        sign("torn", 3, "start", 211),
        sign("torn", 1, "start", 300, epoch=SECOND),
        # holed: of 1,000 s nothing is known, 3 to 5 did not come; then its clock is set
        sign("holed", 1, "start", 0),
        sign("holed", 2, "heartbeat", 60),
        sign("holed", 6, "heartbeat", 1060),
        sign("holed", 7, "heartbeat", 1120, clock=False),
        sign("holed", 8, "heartbeat", 90_000),
        sign("holed", 9, "heartbeat", 90_060),
        # brisk: a heartbeat each 10 s, then each 100 s
        sign("brisk", 1, "start", 0, value=10.0),
        sign("brisk", 2, "heartbeat", 25, value=10.0),
        sign("brisk", 3, "start", 50.5, value=100.0),
        sign("brisk", 4, "heartbeat", 250.5, value=100.0),
        # fresh: one sign alone
        sign("fresh", 1, "start", 500),
    ]
    return table(spark, EVENTS, rows)


def test_spans_tell_running_stopped_outage_unknown_and_clock(events: DataFrame) -> None:
    rows = spans(events)
    assert rows.schema.simpleString() == SPANS.simpleString()
    found = [
        (gateway, end - begin, state)
        for gateway, begin, end, state in told(
            rows.orderBy("gateway", "begin"), *SPANS.fieldNames()
        )
    ]
    assert found == [
        ("brisk", 25, "running"),
        ("brisk", 25.5, "outage"),
        ("brisk", 200, "running"),
        ("holed", 60, "running"),
        ("holed", 1000, "unknown"),
        ("holed", 60, "clock"),
        ("holed", 88_880, "clock"),
        ("holed", 60, "running"),
        ("torn", 60, "running"),
        ("torn", 151, "outage"),
        ("torn", 89, "running"),
        ("whole", 60, "running"),
        ("whole", 150, "running"),
        ("whole", 10, "running"),
        ("whole", 100, "stopped"),
        ("whole", 60, "running"),
    ]


def test_stretches_join_what_follows_in_one_state(events: DataFrame) -> None:
    rows = stretches(events)
    found = [
        (gateway, end - begin, state)
        for gateway, begin, end, state in told(rows, *SPANS.fieldNames())
    ]
    assert found == [
        ("brisk", 25, "running"),
        ("brisk", 25.5, "outage"),
        ("brisk", 200, "running"),
        ("holed", 60, "running"),
        ("holed", 1000, "unknown"),
        ("holed", 60, "running"),
        ("torn", 60, "running"),
        ("torn", 151, "outage"),
        ("torn", 89, "running"),
        ("whole", 220, "running"),
        ("whole", 100, "stopped"),
        ("whole", 60, "running"),
    ]


def test_running_and_reachable_are_told_apart(spark: SparkSession, events: DataFrame) -> None:
    segments = table(
        spark,
        SEGMENTS,
        [
            arrival("brisk", 2000),
            arrival("whole", 0),
            arrival("whole", 750),
            arrival("whole", 1751),
            arrival("torn", 300),
            arrival("holed", 2000),
            arrival("fresh", 2000),
            arrival("mute", 1990),
            {"arrived": at(1), "fate": "bad"},
        ],
    )
    report = availability(events, segments, at(2000))
    assert report.schema.simpleString() == SCHEMA.simpleString()

    running = ("gateway", "state", "first_seen", "last_seen", "running_s", "stopped_s", "outage_s")
    assert told(report, *running) == [
        ("brisk", "running", 0, 250.5, 225, 0, 25.5),
        ("fresh", "running", 500, 500, None, None, None),
        ("holed", "running", 0, 90_060, 120, 0, 0),
        ("mute", "unknown", None, None, None, None, None),
        ("torn", "silent", 0, 300, 149, 0, 151),
        ("whole", "running", 0, 380, 280, 100, 0),
    ]
    figures = (
        "unknown_s",
        "outages",
        "longest_gap_s",
        "restarts",
        "unclean_restarts",
        "clock_steps",
    )
    assert told(report, *figures) == [
        (0, 1, 25.5, 1, 1, 0),
        (None, 0, None, 0, 0, 0),
        (1000, 0, 1000, 0, 0, 2),
        (None, 0, None, 0, 0, 0),
        (0, 1, 151, 2, 2, 0),
        (0, 0, None, 1, 0, 0),
    ]
    assert told(report, "running_share", "reachable_share") == [
        (225 / 250.5, None),
        (None, None),
        (1, None),
        (None, 1),
        (149 / 300, 0),
        (280 / 380, pytest.approx(1 - 1001 / 2000)),
    ]
    assert told(report, "silences", "longest_silence_s", "last_arrival") == [
        (0, None, 2000),
        (0, None, 2000),
        (0, None, 2000),
        (0, None, 1990),
        (1, 1700, 300),
        (1, 1001, 1751),
    ]


def test_a_clean_stop_is_no_silence(spark: SparkSession) -> None:
    events = table(spark, EVENTS, [sign("gw", 1, "start", 0), sign("gw", 2, "stop", 30)])
    report = availability(events, table(spark, SEGMENTS, [arrival("gw", 30)]), at(90_000))
    assert told(report, "state", "running_share", "last_seen") == [("stopped", 1, 30)]


def test_of_nothing_there_is_nothing_to_tell(spark: SparkSession) -> None:
    report = availability(table(spark, EVENTS, []), table(spark, SEGMENTS, []), at(0))
    assert report.collect() == []
