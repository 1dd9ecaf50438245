from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.common.fleet_folder import FleetFolder
from sync.ingest.ingest import run_ingest
from sync.reports import completeness
from sync.reports.completeness import SCHEMA
from sync.reports.shared import lanes
from sync.segment import Dropped
from sync.tables.manifest import LocalCommits
from sync.tables.tables import SEGMENTS, read_events, read_segments
from tests.helpers.fleet_tables import Lane, land, some_events
from tests.helpers.small_tables import at, events, table, told

pytestmark = pytest.mark.spark

FIRST, SECOND = "01A", "01B"
ZERO = "00" * 32


def events_of(
    lane: str, numbers: Iterable[int], *, gateway: str = "gw", epoch: str = FIRST, kind: str = "log"
) -> list[dict[str, Any]]:
    return [
        {
            "gateway": gateway,
            "epoch": epoch,
            "lane": lane,
            "seq": seq,
            "time": at(seq),
            "kind": kind,
            "name": "event",
        }
        for seq in numbers
    ]


def segment(
    lane: str,
    first: int,
    last: int,
    previous: str = ZERO,
    *,
    gateway: str = "gw",
    epoch: str = FIRST,
    fate: str = "accepted",
    dropped: tuple[tuple[int, int, str], ...] = (),
) -> dict[str, Any]:
    return {
        "gateway": gateway,
        "epoch": epoch,
        "lane": lane,
        "first_seq": first,
        "last_seq": last,
        "digest": f"{lane}-{epoch}-{first}-{last}-{fate}",
        "previous": previous,
        "fate": fate,
        "arrived": at(0),
        "dropped": list(dropped),
    }


def report_of(told: DataFrame, segments: DataFrame) -> DataFrame:
    """Compute the report from the summaries of these events."""
    told = told.persist()
    numbers, dropped = lanes.DAILY.compute(told), completeness.DAILY.compute(told)
    return completeness.completeness(numbers.persist(), dropped, segments).persist()


COUNTS = ("expected", "received", "missing", "declared", "unexplained", "duplicates")


def test_a_complete_lane(spark: SparkSession) -> None:
    rows = events_of("logs", range(1, 6))
    segments = table(
        spark,
        SEGMENTS,
        [segment("logs", 1, 2), segment("logs", 3, 5, f"logs-{FIRST}-1-2-accepted")],
    )
    report = report_of(events(spark, rows), segments)
    assert report.schema.simpleString() == SCHEMA.simpleString()
    assert told(report, "gateway", "epoch", "lane", "state", "since", "first_seq", "last_seq") == [
        ("gw", FIRST, "logs", "open", 5, 1, 5)
    ]
    assert told(report, *COUNTS) == [(5, 5, 0, 0, 0, 0)]
    assert told(report, "repeated_segments", "forks", "chain_breaks") == [(0, 0, 0)]


def test_missing_events_at_the_start_and_between_and_declared_ones(
    spark: SparkSession,
) -> None:
    # 1-10 never came; 21-30 were dropped, told twice and in parts; of 41-50 only 41-44 were told
    came = [*range(11, 21), *range(31, 41), *range(51, 53)]
    segments = [
        segment("logs", 11, 20, "x"),
        segment("logs", 31, 40, "y", dropped=((21, 26, "full"), (25, 30, "full"))),
        segment("logs", 51, 52, "z", dropped=((22, 23, "full"), (35, 44, "age"))),
    ]
    report = report_of(events(spark, events_of("logs", came)), table(spark, SEGMENTS, segments))
    assert told(report, "first_seq", "last_seq", *COUNTS) == [(11, 52, 52, 22, 30, 14, 16, 0)]
    assert told(report, "chain_breaks") == [(0,)]


def test_a_declared_range_that_arrives_counts_as_received(
    spark: SparkSession,
) -> None:
    # 1-10 was evicted while its upload was under way, and landed; so was 21-30, told as one range
    # with 31-35, which did not. 36-40 came twice, and was told as dropped all the same.
    segments = [
        segment("logs", 1, 10),
        segment("logs", 11, 20, f"logs-{FIRST}-1-10-accepted", dropped=((1, 10, "full"),)),
        segment("logs", 21, 30, f"logs-{FIRST}-11-20-accepted"),
        segment("logs", 36, 40, "x", dropped=((1, 10, "full"), (21, 35, "full"))),
        segment("logs", 36, 40, "x", fate="duplicate", dropped=((1, 10, "full"),)),
        segment("logs", 41, 42, f"logs-{FIRST}-36-40-accepted", dropped=((36, 40, "full"),)),
    ]
    came = [*range(1, 31), *range(36, 43)]
    report = report_of(events(spark, events_of("logs", came)), table(spark, SEGMENTS, segments))
    assert told(report, "first_seq", "last_seq", *COUNTS) == [(1, 42, 42, 37, 5, 5, 0, 0)]
    assert told(report, "repeated_segments", "forks", "chain_breaks") == [(1, 0, 0)]


def test_a_declared_range_that_arrives_after_its_declaration_is_ingested(
    spark: SparkSession, fleet: FleetFolder
) -> None:
    lane, commits = Lane(), LocalCommits(fleet.tables)
    evicted = lane.seal(some_events(4))
    land(fleet, lane.seal(some_events(3), (Dropped(1, 4, "backlog-full"),)))

    def report() -> list[tuple[Any, ...]]:
        run_ingest(spark, fleet, commits)
        manifests = commits.manifests()
        told_of = read_events(spark, fleet.tables, manifests)
        rows = report_of(told_of, read_segments(spark, fleet.tables, manifests))
        return told(rows, *COUNTS, "forks", "chain_breaks")

    assert report() == [(7, 3, 4, 4, 0, 0, 0, 0)]
    land(fleet, evicted)
    assert report() == [(7, 7, 0, 0, 0, 0, 0, 0)]


def test_events_declare_dropped_ranges_too(spark: SparkSession) -> None:
    # logs: 6-7 given up, 8 set aside, and nothing came after; readings: told of both ways, of
    # another epoch; the third, the fourth and the last tell nothing that can be counted
    def evicted(seq: int, name: str = "evicted", **tags: str) -> dict[str, Any]:
        told = {"kind": "uplink", "name": name, "tags": tags}
        return events_of("system", [seq], epoch=SECOND)[0] | told

    rows = [
        *events_of("logs", range(1, 6), epoch=SECOND),
        *events_of("readings", [4, 5]),
        evicted(1, epoch=SECOND, lane="logs", first="6", last="7"),
        evicted(2, epoch=FIRST, lane="readings", first="1", last="2"),
        evicted(3, epoch=FIRST, lane="logs"),
        evicted(4, epoch=FIRST, lane="logs", first="9", last="1"),
        evicted(5, epoch="00Z", lane="logs", first="1", last="3"),
        evicted(6, "set_aside", epoch=SECOND, lane="logs", first="8", last="8"),
        evicted(7, "set_aside"),
    ]
    segments = [
        segment("logs", 1, 5, epoch=SECOND),
        segment("readings", 4, 5, dropped=((2, 3, "full"),)),
    ]
    report = report_of(events(spark, rows), table(spark, SEGMENTS, segments))
    assert told(report, "epoch", "lane", "last_seq", *COUNTS) == [
        ("00Z", "logs", None, 3, 0, 3, 3, 0, 0),
        (FIRST, "readings", 5, 5, 2, 3, 3, 0, 0),
        (SECOND, "logs", 5, 8, 5, 3, 3, 0, 0),
        (SECOND, "system", 7, 7, 7, 0, 0, 0, 0),
    ]


def test_days_of_one_lane_are_counted_together(spark: SparkSession) -> None:
    # 1-2 and 4 are of one day, 3 and 4 again of another: an island each, and two days of one
    rows = events_of("logs", [1, 2, 4])
    rows += [row | {"time": at(90_000)} for row in events_of("logs", [3, 4, 5])]
    numbers = lanes.DAILY.compute(events(spark, rows)).orderBy("day", "first_seq").persist()
    assert told(numbers, "first_seq", "last_seq", "rows") == [(1, 2, 2), (4, 4, 1), (3, 5, 3)]
    report = report_of(events(spark, rows), table(spark, SEGMENTS, [segment("logs", 1, 5)]))
    assert told(report, *COUNTS) == [(5, 5, 0, 0, 0, 1)]


def test_lost_and_duplicated_rows_are_counted(spark: SparkSession) -> None:
    rows = [*events_of("logs", [1, 2, 4, 4, 5]), *events_of("readings", [1])]
    segments = [segment("logs", 1, 5), segment("readings", 1, 1)]
    report = report_of(events(spark, rows), table(spark, SEGMENTS, segments))
    assert told(report, "lane", *COUNTS) == [
        ("logs", 5, 4, 1, 0, 1, 1),
        ("readings", 1, 1, 0, 0, 0, 0),
    ]


def test_forks_repeated_segments_and_chain_breaks_are_counted(spark: SparkSession) -> None:
    segments = [
        segment("logs", 1, 2, "not-the-beginning"),
        segment("logs", 3, 4, "not-the-one-before"),
        segment("logs", 5, 6, f"logs-{FIRST}-3-4-accepted"),
        segment("logs", 3, 4, fate="duplicate"),
        segment("logs", 5, 6, fate="duplicate"),
        segment("logs", 3, 5, fate="fork"),
        segment("logs", 3, 5, fate="fork"),
        segment("logs", 4, 9, fate="fork"),
        segment("system", 1, 1, gateway="clone", fate="fork"),
        {"path": "landing/x.seg", "fate": "bad", "arrived": at(0)},
    ]
    rows = events_of("logs", range(1, 7))
    report = report_of(events(spark, rows), table(spark, SEGMENTS, segments))
    figures = ("gateway", "received", "repeated_segments", "forks", "chain_breaks", "unexplained")
    assert told(report, *figures) == [("clone", 0, 0, 1, 0, 0), ("gw", 6, 2, 2, 2, 0)]
    assert told(report, "first_seq", "last_seq", "since")[0] == (None, None, None)


def test_closed_open_and_torn_epochs(spark: SparkSession) -> None:
    stop = {"kind": "system", "name": "stop"}
    rows = [
        *events_of("system", [1, 2]),
        *events_of("logs", [1]),
        *events_of("system", [1], epoch=SECOND),
        *events_of("logs", [1, 2], epoch=SECOND),
        events_of("system", [9], epoch=SECOND)[0] | stop,
        events_of("system", [1], gateway="on")[0] | stop,
        *events_of("system", [2], gateway="on", kind="system"),
    ]
    segments = [
        segment("system", 1, 2),
        segment("logs", 1, 1),
        segment("system", 1, 9, epoch=SECOND),
        segment("logs", 1, 2, epoch=SECOND),
        segment("system", 1, 2, gateway="on"),
    ]
    report = report_of(events(spark, rows), table(spark, SEGMENTS, segments))
    assert told(report, "gateway", "epoch", "lane", "state", "since") == [
        ("gw", FIRST, "logs", "torn", 1),
        ("gw", FIRST, "system", "torn", 2),
        ("gw", SECOND, "logs", "closed", 9),
        ("gw", SECOND, "system", "closed", 9),
        ("on", FIRST, "system", "open", 2),
    ]


def test_without_data_there_are_no_rows(spark: SparkSession) -> None:
    assert report_of(events(spark, []), table(spark, SEGMENTS, [])).collect() == []
