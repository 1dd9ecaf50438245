from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sync.reports import completeness
from sync.reports.completeness import FIRST_PREVIOUS, TABLE
from sync.reports.shared import frames, lanes
from sync.reports.shared.frames import OLDER
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, event, events, report_rows, table

pytestmark = pytest.mark.spark

FIRST, SECOND = "01A", "01B"
COUNTS = ("expected", "received", "missing", "declared", "unexplained", "duplicates")
REFUSALS = ("repeated_segments", "forks", "chain_breaks")


def events_of(
    gateway: str, lane: str, numbers: Iterable[int], *, epoch: str = FIRST, kind: str = "log"
) -> list[dict[str, Any]]:
    lane_of = {"epoch": epoch, "lane": lane, "kind": kind, "name": "event"}
    return [event(gateway, **lane_of, seq=seq, time=at(seq)) for seq in numbers]


def evicted(gateway: str, seq: int, name: str = "evicted", **tags: str) -> dict[str, Any]:
    [row] = events_of(gateway, "system", [seq], epoch=SECOND, kind="uplink")
    return row | {"name": name, "tags": tags}


def segment(
    gateway: str,
    lane: str,
    first: int,
    last: int,
    previous: str = FIRST_PREVIOUS,
    *,
    epoch: str = FIRST,
    fate: str = "accepted",
    dropped: tuple[tuple[int, int, str], ...] = (),
) -> dict[str, Any]:
    place = {"gateway": gateway, "epoch": epoch, "lane": lane, "first_seq": first, "last_seq": last}
    chain = {"digest": digest(lane, first, last, epoch, fate), "previous": previous}
    return place | chain | {"fate": fate, "arrived": at(0), "dropped": list(dropped)}


def digest(lane: str, first: int, last: int, epoch: str = FIRST, fate: str = "accepted") -> str:
    return f"{lane}-{epoch}-{first}-{last}-{fate}"


STOP = {"kind": "system", "name": "stop"}

EVENTS = [
    *events_of("complete", "logs", range(1, 6)),
    # 1-10 did not arrive; 21-30 were dropped, declared twice and in parts; of 41-50 only 41-44 were
    *events_of("missing", "logs", [*range(11, 21), *range(31, 41), *range(51, 53)]),
    # 1-10 was evicted while its upload was under way, and arrived; so did 21-30, declared together
    # with 31-35, which did not; 36-40 arrived twice, and was declared as dropped all the same
    *events_of("late", "logs", [*range(1, 31), *range(36, 43)]),
    # logs: 6-7 evicted and 8 set aside, and nothing followed; readings: declared in both ways, one
    # in a later epoch; the third, the fourth and the last event declare nothing that is valid
    *events_of("evicted", "logs", range(1, 6), epoch=SECOND),
    *events_of("evicted", "readings", [4, 5]),
    evicted("evicted", 1, epoch=SECOND, lane="logs", first="6", last="7"),
    evicted("evicted", 2, epoch=FIRST, lane="readings", first="1", last="2"),
    evicted("evicted", 3, epoch=FIRST, lane="logs"),
    evicted("evicted", 4, epoch=FIRST, lane="logs", first="9", last="1"),
    evicted("evicted", 5, epoch="00Z", lane="logs", first="1", last="3"),
    evicted("evicted", 6, "set_aside", epoch=SECOND, lane="logs", first="8", last="8"),
    evicted("evicted", 7, "set_aside"),
    # 1-2 and 4 are of one day, 3 to 5 of the next: 4 is stored twice
    *events_of("days", "logs", [1, 2, 4]),
    *(row | {"time": at(90_000)} for row in events_of("days", "logs", [3, 4, 5])),
    *events_of("tables", "logs", [1, 2, 4, 4, 5]),
    *events_of("tables", "readings", [1]),
    *events_of("forks", "logs", range(1, 7)),
    # the first epoch is torn, the second one closed; `on` goes on after a stop
    *events_of("states", "system", [1, 2]),
    *events_of("states", "logs", [1]),
    *events_of("states", "system", [1], epoch=SECOND),
    *events_of("states", "logs", [1, 2], epoch=SECOND),
    events_of("states", "system", [9], epoch=SECOND)[0] | STOP,
    events_of("on", "system", [1])[0] | STOP,
    *events_of("on", "system", [2], kind="system"),
]

SEGMENT_ROWS = [
    segment("complete", "logs", 1, 2),
    segment("complete", "logs", 3, 5, digest("logs", 1, 2)),
    segment("missing", "logs", 11, 20, "x"),
    segment("missing", "logs", 31, 40, "y", dropped=((21, 26, "full"), (25, 30, "full"))),
    segment("missing", "logs", 51, 52, "z", dropped=((22, 23, "full"), (35, 44, "age"))),
    segment("late", "logs", 1, 10),
    segment("late", "logs", 11, 20, digest("logs", 1, 10), dropped=((1, 10, "full"),)),
    segment("late", "logs", 21, 30, digest("logs", 11, 20)),
    segment("late", "logs", 36, 40, "x", dropped=((1, 10, "full"), (21, 35, "full"))),
    segment("late", "logs", 36, 40, "x", fate="duplicate", dropped=((1, 10, "full"),)),
    segment("late", "logs", 41, 42, digest("logs", 36, 40), dropped=((36, 40, "full"),)),
    segment("evicted", "logs", 1, 5, epoch=SECOND),
    segment("evicted", "readings", 4, 5, dropped=((2, 3, "full"),)),
    segment("days", "logs", 1, 5),
    segment("tables", "logs", 1, 5),
    segment("tables", "readings", 1, 1),
    segment("forks", "logs", 1, 2, "not-the-beginning"),
    segment("forks", "logs", 3, 4, "not-the-one-before"),
    segment("forks", "logs", 5, 6, digest("logs", 3, 4)),
    segment("forks", "logs", 3, 4, fate="duplicate"),
    segment("forks", "logs", 5, 6, fate="duplicate"),
    segment("forks", "logs", 3, 5, fate="fork"),
    segment("forks", "logs", 3, 5, fate="fork"),
    segment("forks", "logs", 4, 9, fate="fork"),
    segment("clone", "system", 1, 1, fate="fork"),
    {"path": "landing/x.seg", "fate": "bad", "arrived": at(0)},
    segment("states", "system", 1, 2),
    segment("states", "logs", 1, 1),
    segment("states", "system", 1, 9, epoch=SECOND),
    segment("states", "logs", 1, 2, epoch=SECOND),
    segment("on", "system", 1, 2),
]

ROWS = {
    # first and last number, then COUNTS, then REFUSALS
    ("clone", FIRST, "system"): (None, None, 0, 0, 0, 0, 0, 0, 0, 1, 0),
    ("complete", FIRST, "logs"): (1, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0),
    ("days", FIRST, "logs"): (1, 5, 5, 5, 0, 0, 0, 1, 0, 0, 0),
    ("evicted", "00Z", "logs"): (None, None, 3, 0, 3, 3, 0, 0, 0, 0, 0),
    ("evicted", FIRST, "readings"): (4, 5, 5, 2, 3, 3, 0, 0, 0, 0, 0),
    ("evicted", SECOND, "logs"): (1, 5, 8, 5, 3, 3, 0, 0, 0, 0, 0),
    ("evicted", SECOND, "system"): (1, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0),
    ("forks", FIRST, "logs"): (1, 6, 6, 6, 0, 0, 0, 0, 2, 2, 2),
    ("late", FIRST, "logs"): (1, 42, 42, 37, 5, 5, 0, 0, 1, 0, 0),
    ("missing", FIRST, "logs"): (11, 52, 52, 22, 30, 14, 16, 0, 0, 0, 0),
    ("on", FIRST, "system"): (1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0),
    ("states", FIRST, "logs"): (1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0),
    ("states", FIRST, "system"): (1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0),
    ("states", SECOND, "logs"): (1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0),
    ("states", SECOND, "system"): (1, 9, 9, 2, 7, 0, 7, 0, 0, 0, 0),
    ("tables", FIRST, "logs"): (1, 5, 5, 4, 1, 0, 1, 1, 0, 0, 0),
    ("tables", FIRST, "readings"): (1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0),
}

STATES = {
    ("clone", FIRST, "system"): ("open", None),
    ("complete", FIRST, "logs"): ("open", 5),
    ("on", FIRST, "system"): ("open", 2),
    ("states", FIRST, "logs"): ("torn", 1),
    ("states", FIRST, "system"): ("torn", 2),
    ("states", SECOND, "logs"): ("closed", 9),
    ("states", SECOND, "system"): ("closed", 9),
}


def report_of(events: DataFrame, segments: DataFrame) -> DataFrame:
    events = events.persist()
    numbers, dropped = lanes.DAILY.compute(events), completeness.DAILY.compute(events)
    return completeness.completeness(numbers.persist(), dropped, segments).persist()


def test_completeness_of_every_lane(spark: SparkSession) -> None:
    report = report_of(events(spark, EVENTS), table(spark, SEGMENTS, SEGMENT_ROWS))
    assert report.schema.simpleString() == TABLE.schema.simpleString()
    key = ("gateway", "epoch", "lane")
    columns = ("first_seq", "last_seq", *COUNTS, *REFUSALS)
    found = {row[:3]: row[3:] for row in report_rows(report, *key, *columns)}
    assert list(found) == sorted(found)
    assert found == ROWS
    states = {row[:3]: row[3:] for row in report_rows(report, *key, "state", "since")}
    assert {lane: states[lane] for lane in STATES} == STATES


def test_old_epochs_of_one_gateway_are_added_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One gateway that begins epoch after epoch does not lengthen the table for all."""
    monkeypatch.setattr(frames, "GATEWAY_ROWS", 2)
    rows = events_of("honest", "logs", [1])
    for place in range(9):
        rows += events_of("liar", "logs", [2, 3], epoch=f"0{place}")
    segments = [segment("liar", "system", 1, 2**63 - 1, epoch=f"0{place}") for place in range(2)]
    report = report_of(events(spark, rows), table(spark, SEGMENTS, segments))
    columns = ("gateway", "epoch", "lane", "expected", "received", "unexplained", "chain_breaks")
    assert report_rows(report, *columns) == [
        ("honest", FIRST, "logs", 1, 1, 0, 0),
        ("liar", OLDER, "logs", 21, 14, 7, 0),
        ("liar", OLDER, "system", 0, 0, 0, 0),
        ("liar", "07", "logs", 3, 2, 1, 0),
        ("liar", "08", "logs", 3, 2, 1, 0),
    ]
    of_older = report.where(f"epoch = '{OLDER}' AND lane = 'logs'")
    assert report_rows(of_older, "state", "since", "first_seq", "last_seq") == [("torn", 3, 2, 3)]
    assert OLDER in TABLE.about


def test_summary_of_number_ranges_by_day(spark: SparkSession) -> None:
    rows = [row for row in EVENTS if row["gateway"] == "days"]
    numbers = lanes.DAILY.compute(events(spark, rows)).orderBy("day", "first_seq")
    assert report_rows(numbers, "first_seq", "last_seq", "rows") == [
        (1, 2, 2),
        (4, 4, 1),
        (3, 5, 3),
    ]


def test_without_data_there_are_no_rows(spark: SparkSession) -> None:
    assert report_of(events(spark, []), table(spark, SEGMENTS, [])).collect() == []
