from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.reports.availability import STRETCHES, TABLE, availability, stretches
from sync.reports.outages import TABLE as OUTAGES
from sync.reports.outages import outages
from sync.reports.shared import heartbeats, lanes
from sync.reports.shared.heartbeats import SPANS, spans
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, checked_rows, event, events, report_rows, table

pytestmark = pytest.mark.spark

FIRST, SECOND = "01A", "01B"


def life_event(
    gateway: str,
    seq: int,
    name: str,
    seconds: float,
    *,
    epoch: str = FIRST,
    clock: bool = True,
    value: float | None = None,
) -> dict[str, Any]:
    place = {"epoch": epoch, "lane": "system", "seq": seq, "time": at(seconds), "clock": clock}
    return event(gateway, kind="system", name=name, value=value, **place)


def starts(
    gateway: str, begin: float, *heartbeats: tuple[int, float], **columns: Any
) -> list[dict[str, Any]]:
    """Return the event of a start, whose number is 1, and heartbeats: their numbers and times."""
    beats = [life_event(gateway, seq, "heartbeat", when, **columns) for seq, when in heartbeats]
    return [life_event(gateway, 1, "start", begin, **columns), *beats]


def limit(gateway: str, seq: int, seconds: float) -> dict[str, Any]:
    return life_event(gateway, seq, "heartbeat", seconds) | {"kind": "limit"}


def arrival(gateway: str, seconds: float) -> dict[str, Any]:
    return {"gateway": gateway, "arrived": at(seconds), "fate": "accepted"}


def by_gateway(rows: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the length of each span, and its columns after begin and end, by gateway."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for gateway, begin, end, *more in rows:
        found.setdefault(gateway, []).append((end - begin, *more))
    assert list(found) == sorted(found)
    return found


class Life(NamedTuple):
    """The runs of events, and the spans that are derived from them."""

    life: DataFrame
    spans: DataFrame


def life_of(spark: SparkSession, rows: list[dict[str, Any]]) -> Life:
    frame = events(spark, rows).persist()
    life = heartbeats.DAILY.compute(frame).persist()
    return Life(life, spans(life, lanes.DAILY.compute(frame)).persist())


@pytest.fixture(scope="module")
def lives(spark: SparkSession) -> Life:
    rows = [
        # whole: two heartbeats, one 150 s late (no outage), stopped for 100 s, started, and on
        *starts("whole", 0, (2, 60)),
        limit("whole", 3, 61),
        life_event("whole", 4, "heartbeat", 210),
        life_event("whole", 5, "stop", 220),
        life_event("whole", 6, "start", 320),
        life_event("whole", 7, "heartbeat", 380),
        # torn: dies after 60 s and is away for 151 s, restarts in a new epoch
        *starts("torn", 0, (2, 60)),
        life_event("torn", 3, "start", 211),
        *starts("torn", 300, epoch=SECOND),
        # holed: nothing is known of 1,000 s, because 3 to 5 did not arrive; then its clock is set
        *starts("holed", 0, (2, 60), (6, 1060), (8, 90_000), (9, 90_060)),
        life_event("holed", 7, "heartbeat", 1120, clock=False),
        # brisk: a heartbeat each 10 s, then each 100 s
        *starts("brisk", 0, (2, 25), value=10.0),
        life_event("brisk", 3, "start", 50.5, value=100.0),
        life_event("brisk", 4, "heartbeat", 250.5, value=100.0),
        # steady: a heartbeat each 60 s from before midnight until after, in a lane with others
        *starts(
            "steady", 43_000, *((1 + 2 * at, 43_000 + 60 * at) for at in range(1, 10)), value=60.0
        ),
        *(limit("steady", 2 + 2 * at, 43_001 + 60 * at) for at in range(9)),
        # lost: the last events of its first epoch did not arrive; then another epoch begins
        *starts("lost", 0),
        *starts("lost", 1000, epoch=SECOND),
        # moved: its clock is set by an hour while it is synchronised
        *starts("moved", 0, (2, 60), (4, 3_720), value=60.0),
        life_event("moved", 3, "clock_stepped", 3_700, value=3_600.0),
        # fresh: only one event
        *starts("fresh", 500),
    ]
    return life_of(spark, rows)


def test_timely_life_events_are_one_run_for_each_day(lives: Life) -> None:
    rows = lives.life.where("gateway IN ('steady', 'brisk')").orderBy("gateway", "begin")
    columns = ("gateway", "first_seq", "last_seq", "first_name", "last_name", "interval")
    assert report_rows(rows, *columns) == [
        ("brisk", 1, 2, "start", "heartbeat", 10),
        ("brisk", 3, 4, "start", "heartbeat", 100),
        ("steady", 1, 7, "start", "heartbeat", 60),
        ("steady", 9, 19, "heartbeat", "heartbeat", 60),
    ]


def test_states_of_spans(lives: Life) -> None:
    rows = checked_rows(lives.spans.orderBy("gateway", "begin"), SPANS)
    went_on = ("running", "went_on")
    assert by_gateway(rows) == {
        "brisk": [(25, "running", None), (25.5, "outage", "restarted"), (200, "running", None)],
        "holed": [
            *((60, *went_on), (1000, "unknown", "went_on"), (60, "clock", "went_on")),
            *((88_880, "clock", "went_on"), (60, *went_on)),
        ],
        "lost": [(1000, "unknown", "new_epoch")],
        "moved": [(60, "running", None), (3_640, "clock", "went_on"), (20, "running", None)],
        "steady": [(180, "running", None), (60, *went_on), (300, "running", None)],
        "torn": [(60, *went_on), (151, "outage", "restarted"), (89, "running", "new_epoch")],
        "whole": [
            *((60, *went_on), (150, *went_on), (10, *went_on)),
            *((100, "stopped", "restarted"), (60, *went_on)),
        ],
    }


def test_outages_are_listed_latest_first(lives: Life) -> None:
    assert checked_rows(outages(lives.spans), OUTAGES.schema) == [
        ("torn", 60, 211, 151, "restarted"),
        ("brisk", 25, 50.5, 25.5, "restarted"),
    ]


def test_stretches_join_consecutive_spans_of_one_state(lives: Life) -> None:
    assert by_gateway(checked_rows(stretches(lives.spans), STRETCHES)) == {
        "brisk": [(25, "running"), (25.5, "outage"), (200, "running")],
        "holed": [(60, "running"), (1000, "unknown"), (60, "running")],
        "lost": [(1000, "unknown")],
        "moved": [(60, "running"), (20, "running")],
        "steady": [(540, "running")],
        "torn": [(60, "running"), (151, "outage"), (89, "running")],
        "whole": [(220, "running"), (100, "stopped"), (60, "running")],
    }


def test_running_and_reachable_are_separate(spark: SparkSession, lives: Life) -> None:
    arrivals = [arrival(each, 2000) for each in ("brisk", "holed", "lost", "moved", "fresh")]
    arrivals += [arrival("whole", when) for when in (0, 750, 1751)]
    arrivals += [arrival("torn", 300), arrival("mute", 1990), {"arrived": at(1), "fate": "bad"}]
    segments = table(spark, SEGMENTS, arrivals)
    life, times = (each.where("gateway != 'steady'") for each in lives)
    report = availability(life, times, segments, at(2000)).persist()
    assert report.schema.simpleString() == TABLE.schema.simpleString()

    running = ("gateway", "state", "first_seen", "last_seen", "running_s", "stopped_s", "outage_s")
    assert report_rows(report, *running) == [
        ("brisk", "running", 0, 250.5, 225, 0, 25.5),
        ("fresh", "running", 500, 500, None, None, None),
        ("holed", "running", 0, 90_060, 120, 0, 0),
        ("lost", "running", 0, 1000, 0, 0, 0),
        ("moved", "running", 0, 3_720, 80, 0, 0),
        ("mute", "unknown", None, None, None, None, None),
        ("torn", "silent", 0, 300, 149, 0, 151),
        ("whole", "running", 0, 380, 280, 100, 0),
    ]
    figures = ("outages", "longest_gap_s", "restarts", "unclean_restarts", "clock_steps")
    assert report_rows(report, "unknown_s", *figures) == [
        (0, 1, 25.5, 1, 1, 0),
        (None, 0, None, 0, 0, 0),
        (1000, 0, 1000, 0, 0, 2),
        (1000, 0, 1000, 1, 0, 0),
        (0, 0, None, 0, 0, 1),
        (None, 0, None, 0, 0, 0),
        (0, 1, 151, 2, 1, 0),
        (0, 0, None, 1, 0, 0),
    ]
    assert report_rows(report, "running_share", "reachable_share") == [
        (225 / 250.5, None),
        (None, None),
        (1, None),
        (None, None),
        (1, None),
        (None, 1),
        (149 / 300, 0),
        (280 / 380, pytest.approx(1 - 1001 / 2000)),
    ]
    assert report_rows(report, "silences", "longest_silence_s", "last_arrival") == [
        *[(0, None, 2000)] * 5,
        (0, None, 1990),
        (1, 1700, 300),
        (1, 1001, 1751),
    ]


def test_a_range_of_days_does_not_change_states(spark: SparkSession, lives: Life) -> None:
    since, midnight = date(2025, 11, 22), 43_200
    segments = table(spark, SEGMENTS, [arrival("holed", 0), arrival("holed", midnight + 750)])
    holed = [each.where("gateway = 'holed'") for each in lives]
    times = heartbeats.cut_before(holed[1], since)
    report = availability(holed[0], times, segments, at(midnight + 1000), since)
    columns = ("first_seen", "running_s", "unknown_s", "clock_steps", "silences", "last_arrival")
    assert report_rows(report, *columns) == [(0, 60, 0, 1, 1, midnight + 750)]
    assert report_rows(report, "longest_silence_s", "reachable_share") == [(750, 0.25)]


def test_the_limit_of_silence_and_a_clean_stop(spark: SparkSession) -> None:
    def sealed(gateway: str, count: int, each: float) -> list[dict[str, Any]]:
        lane = {"lane": "system", "epoch": FIRST}
        return [
            arrival(gateway, 0) | lane | {"first_seq": at, "service_seconds": at * each}
            for at in range(count)
        ]

    rows = [*sealed("rarely", 6, 1200.0), *sealed("new", 5, 1200.0), *sealed("usual", 6, 60.0)]
    rows += [arrival("stopped", 30)]
    stopped = [life_event("stopped", 1, "start", 0), life_event("stopped", 2, "stop", 30)]
    report = availability(*life_of(spark, stopped), table(spark, SEGMENTS, rows), at(2000))
    columns = ("gateway", "silent_after_s", "silences", "state", "running_share", "last_seen")
    assert report_rows(report, *columns) == [
        ("new", 750, 1, "silent", None, None),
        ("rarely", 3000, 0, "unknown", None, None),
        ("stopped", 750, 1, "stopped", 1, 30),
        ("usual", 750, 1, "silent", None, None),
    ]


def test_a_clock_that_was_set_by_years_while_off_makes_no_outage(spark: SparkSession) -> None:
    years = 7_000 * 86_400
    life_events = (("start", -years), ("heartbeat", 60 - years), ("start", 0), ("heartbeat", 60))
    rows = [life_event("unset", at, *each, clock=False) for at, each in enumerate(life_events, 1)]
    rows += [life_event("stored", at, *each) for at, each in enumerate(life_events[:3], 1)]
    spans = life_of(spark, rows).spans.orderBy("gateway", "begin")
    assert report_rows(spans, "gateway", "state") == [
        ("stored", "running"),
        ("stored", "outage"),
        ("unset", "running"),
        ("unset", "clock"),
        ("unset", "running"),
    ]


def test_without_data_there_are_no_rows(spark: SparkSession) -> None:
    report = availability(*life_of(spark, []), table(spark, SEGMENTS, []), at(0))
    assert report.collect() == []
