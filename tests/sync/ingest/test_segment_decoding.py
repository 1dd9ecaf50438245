"""Decoding of segments as in Spark's workers: Arrow batches of files in, rows out."""

from __future__ import annotations

import hashlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sync.ingest import decoding
from sync.ingest.decoding import AHEAD_D, BEFORE_D, MAX_DAYS, decode_files
from sync.segment import MAX_FILE, Dropped
from sync.segment.limits import MAX_TIME, MIN_TIME
from sync.tables.arrow_schemas import DECODED, EVENTS
from tests.helpers.fleet_tables import NOON, Lane, some_events

ARRIVED = datetime(2025, 11, 21, 12, 0, 2, 500_000, tzinfo=UTC)
DAY_MS = 86_400_000


def files(*contents: bytes) -> pa.RecordBatch:
    """Return a batch like those of Spark's file source."""
    return pa.RecordBatch.from_pydict(
        {
            "path": [f"file:/landing/{at}.seg" for at in range(len(contents))],
            "modificationTime": pa.array([ARRIVED] * len(contents), pa.timestamp("us", tz="UTC")),
            "length": [len(content) for content in contents],
            "content": pa.array(contents, pa.binary()),
        }
    )


def decode(*contents: bytes) -> list[dict[str, Any]]:
    batches = list(decode_files([files(*contents)]))
    assert {batch.schema for batch in batches} == {DECODED}
    return [row for batch in batches for row in batch.to_pylist()]


def file_rows(*contents: bytes) -> list[dict[str, Any]]:
    return [row for row in decode(*contents) if row["path"]]


def parts(*contents: bytes) -> dict[str, pa.Table]:
    found = [row for row in decode(*contents) if row["content"]]
    tables = {row["day"]: pq.read_table(io.BytesIO(row["content"])) for row in found}
    assert [row["events"] for row in found] == [table.num_rows for table in tables.values()]
    return {day: table.cast(EVENTS) for day, table in tables.items()}


def test_a_segment_becomes_a_row_with_its_header() -> None:
    lane = Lane()
    lane.skip(2)
    data = lane.seal(some_events(3), (Dropped(1, 2, "full"),))[1]
    [row] = file_rows(data)
    assert row["sha256"] == hashlib.sha256(data).hexdigest()
    assert (row["path"], row["size"], row["arrived"]) == ("file:/landing/0.seg", len(data), ARRIVED)
    assert (row["reason"], row["detail"]) == (None, None)
    assert (row["gateway"], row["lane"], row["first_seq"]) == ("gw.example", "logs", 3)
    assert (row["last_seq"], row["digest"]) == (5, data[-32:].hex())
    assert row["sealed_at"] == datetime(2025, 11, 21, 12, 0, 2, tzinfo=UTC)
    assert row["config_hash"] == bytes(range(32)).hex()
    assert row["dropped"] == [{"first_seq": 1, "last_seq": 2, "reason": "full"}]


def test_invalid_files_become_rows_with_their_reason() -> None:
    good = Lane().seal(some_events(1))[1]
    rows = file_rows(b"", good, good[:-1], b"?" * (MAX_FILE + 1))
    assert [row["reason"] for row in rows] == ["short", None, "checksum", "size"]
    assert [row["gateway"] for row in rows] == [None, "gw.example", None, None]
    assert all(row["detail"] for row in rows if row["reason"])


@pytest.mark.parametrize(("days", "reason"), [(MAX_DAYS, None), (MAX_DAYS + 1, "days")])
def test_days_of_a_segment_are_limited(days: int, reason: str | None) -> None:
    [row] = file_rows(Lane().seal(some_events(days, step_ms=-DAY_MS))[1])
    assert row["reason"] == reason
    assert (row["gateway"] is None) == (reason is not None)


def test_events_become_rows_with_gateway_and_arrival() -> None:
    lane = Lane()
    first, second = lane.seal(some_events(2))[1], lane.seal(some_events(1, start=-1))[1]
    found = parts(first, second)
    assert sorted(found) == ["2025-11-21"]
    rows = found["2025-11-21"].to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 3]
    origins = {(row["gateway"], row["epoch"], row["lane"], row["arrived"]) for row in rows}
    assert origins == {("gw.example", lane.epoch, "logs", ARRIVED)}
    noon = datetime.fromtimestamp(NOON / 1000, UTC)
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert [row["time"] for row in rows] == [noon, noon + timedelta(seconds=1), before_1970]
    assert [row["tags"] for row in rows] == [[], [("facility", "pump")], []]


def test_part_files_have_no_events_of_invalid_files() -> None:
    good, bad = Lane().seal(some_events(2))[1], Lane().seal(some_events(2))[1][:-1]
    days = Lane().seal(some_events(MAX_DAYS + 1, step_ms=-DAY_MS))[1]
    [(day, table)] = parts(good, bad, days).items()
    assert (day, table.num_rows) == ("2025-11-21", 2)
    assert parts(bad, days) == {}


def test_events_of_several_days_go_to_several_part_files() -> None:
    found = parts(Lane().seal(some_events(5, step_ms=-DAY_MS // 2))[1])
    assert {day: table["seq"].to_pylist() for day, table in found.items()} == {
        "2025-11-21": [1, 2],
        "2025-11-20": [3, 4],
        "2025-11-19": [5],
    }


ARRIVED_MS = NOON + 2_500
EDGES = {
    MIN_TIME: "2025-11-21",
    ARRIVED_MS - BEFORE_D * DAY_MS - 1: "2025-11-21",
    ARRIVED_MS - BEFORE_D * DAY_MS: "2024-11-20",
    ARRIVED_MS + AHEAD_D * DAY_MS: "2025-11-22",
    ARRIVED_MS + AHEAD_D * DAY_MS + 1: "2025-11-21",
    MAX_TIME: "2025-11-21",
}


@pytest.mark.parametrize("time", EDGES)
def test_an_implausible_time_has_the_day_of_its_arrival(time: int) -> None:
    data = Lane().seal(some_events(1, start=time))[1]
    assert list(parts(data)) == [EDGES[time]]
    is_wrong = time not in (ARRIVED_MS - BEFORE_D * DAY_MS, ARRIVED_MS + AHEAD_D * DAY_MS)
    assert [row["misdated"] for row in file_rows(data)] == [int(is_wrong)]


def test_a_segment_of_any_days_makes_one_partition_if_its_clock_is_wrong() -> None:
    data = Lane().seal(some_events(400, start=0, step_ms=DAY_MS))[1]
    assert list(parts(data)) == ["2025-11-21"]


def test_a_part_file_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [Lane().seal(some_events(2, step_ms=-DAY_MS))[1]]
    whole = [row for row in decode(*contents) if row["content"]]
    monkeypatch.setattr(decoding, "PIECE_BYTES", 1000)
    pieces = [row for row in decode(*contents) if row["content"]]
    for part in whole:
        found = [row for row in pieces if row["day"] == part["day"]]
        assert b"".join(row["content"] for row in found) == part["content"]
        assert len(found) == -(-len(part["content"]) // 1000) > 1
        assert [row["events"] for row in found] == [None] * (len(found) - 1) + [1]
