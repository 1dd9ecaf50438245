"""Decoding of segments: files in, rows and data files out."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sync.ingest.decoding import AHEAD_D, BEFORE_D, MAX_DAYS, decode_files
from sync.segment import MAX_FILE, Dropped
from sync.segment.limits import MAX_TIME, MIN_TIME
from sync.storage.local import LocalStorage
from sync.storage.storage import File
from sync.tables.arrow_schemas import DECODED, EVENTS
from tests.helpers.fleet_tables import NOON, Lane, put, some_events

ARRIVED = datetime(2025, 11, 21, 12, 0, 2, 500_000, tzinfo=UTC)
DAY_MS = 86_400_000


class Decoder:
    """Decodes files, each time in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0

    def __call__(self, *contents: bytes) -> list[dict[str, Any]]:
        self._count += 1
        self.folder = self._root / str(self._count)
        files = []
        for at, content in enumerate(contents):
            put(self.folder / f"landing/{at}.seg", content)
            files.append(File(f"landing/{at}.seg", len(content), ARRIVED.timestamp()))
        storage = LocalStorage(self.folder)
        rows: list[dict[str, Any]] = pa.Table.from_pylist(
            decode_files(storage, storage, files), DECODED
        ).to_pylist()
        return rows

    def file_rows(self, *contents: bytes) -> list[dict[str, Any]]:
        return [row for row in self(*contents) if row["path"]]

    def tables(self, *contents: bytes) -> dict[str, pa.Table]:
        """Return the events of the data files by their days."""
        added = [json.loads(row["added"]) for row in self(*contents) if row["added"]]
        return {
            each["partition_values"]["day"]: pq.read_table(
                self.folder / "events" / each["path"], partitioning=None
            ).cast(EVENTS)
            for each in added
        }


@pytest.fixture
def decoder(tmp_path: Path) -> Decoder:
    return Decoder(tmp_path)


def test_a_segment_becomes_a_row_with_its_header(decoder: Decoder) -> None:
    lane = Lane()
    lane.skip(2)
    data = lane.seal(some_events(3), (Dropped(1, 2, "full"),))[1]
    [row] = decoder.file_rows(data)
    assert row["sha256"] == hashlib.sha256(data).hexdigest()
    assert (row["path"], row["size"], row["arrived"]) == ("landing/0.seg", len(data), ARRIVED)
    assert (row["reason"], row["detail"]) == (None, None)
    assert (row["gateway"], row["lane"], row["first_seq"]) == ("gw.example", "logs", 3)
    assert (row["last_seq"], row["digest"]) == (5, data[-32:].hex())
    assert row["sealed_at"] == datetime(2025, 11, 21, 12, 0, 2, tzinfo=UTC)
    assert row["config_hash"] == bytes(range(32)).hex()
    assert row["dropped"] == [{"first_seq": 1, "last_seq": 2, "reason": "full"}]


def test_invalid_files_become_rows_with_their_reason(decoder: Decoder) -> None:
    good = Lane().seal(some_events(1))[1]
    rows = decoder.file_rows(b"", good, good[:-1], b"?" * (MAX_FILE + 1))
    assert [row["reason"] for row in rows] == ["short", None, "checksum", "size"]
    assert [row["gateway"] for row in rows] == [None, "gw.example", None, None]
    assert all(row["detail"] for row in rows if row["reason"])


@pytest.mark.parametrize(("days", "reason"), [(MAX_DAYS, None), (MAX_DAYS + 1, "days")])
def test_days_of_a_segment_are_limited(decoder: Decoder, days: int, reason: str | None) -> None:
    [row] = decoder.file_rows(Lane().seal(some_events(days, step_ms=-DAY_MS))[1])
    assert row["reason"] == reason
    assert (row["gateway"] is None) == (reason is not None)


def test_events_become_rows_with_gateway_and_arrival(decoder: Decoder) -> None:
    lane = Lane()
    first, second = lane.seal(some_events(2))[1], lane.seal(some_events(1, start=-1))[1]
    found = decoder.tables(first, second)
    assert sorted(found) == ["2025-11-21"]
    rows = found["2025-11-21"].to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 3]
    origins = {(row["gateway"], row["epoch"], row["lane"], row["arrived"]) for row in rows}
    assert origins == {("gw.example", lane.epoch, "logs", ARRIVED)}
    noon = datetime.fromtimestamp(NOON / 1000, UTC)
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert [row["time"] for row in rows] == [noon, noon + timedelta(seconds=1), before_1970]
    assert [row["tags"] for row in rows] == [[], [("facility", "pump")], []]


def test_data_files_have_no_events_of_invalid_files(decoder: Decoder) -> None:
    good, bad = Lane().seal(some_events(2))[1], Lane().seal(some_events(2))[1][:-1]
    days = Lane().seal(some_events(MAX_DAYS + 1, step_ms=-DAY_MS))[1]
    [(day, table)] = decoder.tables(good, bad, days).items()
    assert (day, table.num_rows) == ("2025-11-21", 2)
    assert decoder.tables(bad, days) == {}


def test_events_of_several_days_go_to_several_data_files(decoder: Decoder) -> None:
    found = decoder.tables(Lane().seal(some_events(5, step_ms=-DAY_MS // 2))[1])
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
def test_an_implausible_time_has_the_day_of_its_arrival(decoder: Decoder, time: int) -> None:
    data = Lane().seal(some_events(1, start=time))[1]
    assert list(decoder.tables(data)) == [EDGES[time]]
    is_wrong = time not in (ARRIVED_MS - BEFORE_D * DAY_MS, ARRIVED_MS + AHEAD_D * DAY_MS)
    assert [row["misdated"] for row in decoder.file_rows(data)] == [int(is_wrong)]


def test_a_segment_of_any_days_makes_one_partition_if_its_clock_is_wrong(decoder: Decoder) -> None:
    data = Lane().seal(some_events(400, start=0, step_ms=DAY_MS))[1]
    assert list(decoder.tables(data)) == ["2025-11-21"]
