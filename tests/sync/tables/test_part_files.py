"""Collecting events into Parquet files in memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sync.tables import part_files
from sync.tables.part_files import PartFile, PartFiles, to_parquet

SCHEMA = pa.schema([("seq", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int, text: str = "a") -> pa.RecordBatch:
    made = [{"seq": seq, "text": text} for seq in range(first, first + count)]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def numbers(part: PartFile) -> list[int]:
    table = pq.read_table(io.BytesIO(part.content))
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == part.events
    found: list[int] = table["seq"].to_pylist()
    return found


def test_without_events_there_is_no_file() -> None:
    assert list(PartFiles(SCHEMA).finish()) == []


def test_a_day_is_one_file_with_its_events_in_order() -> None:
    gathered = PartFiles(SCHEMA)
    for day, first in (("2026-01-01", 1), ("2026-01-02", 3), ("2026-01-01", 5)):
        assert list(gathered.add(day, rows(first, 2))) == []
    found = {part.day: numbers(part) for part in gathered.finish()}
    assert found == {"2026-01-01": [1, 2, 5, 6], "2026-01-02": [3, 4]}
    assert list(gathered.finish()) == []


def test_held_events_become_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "HELD_BYTES", 2 * rows(1, 10).nbytes)
    gathered = PartFiles(SCHEMA)
    for first in range(1, 60, 10):
        assert list(gathered.add("2026-01-01", rows(first, 10))) == []
    [part] = gathered.finish()
    assert numbers(part) == list(range(1, 61))
    assert pq.ParquetFile(io.BytesIO(part.content)).metadata.num_row_groups == 3


def test_a_large_file_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "HELD_BYTES", rows(1, 20).nbytes)
    monkeypatch.setattr(part_files, "PART_BYTES", 1)
    gathered = PartFiles(SCHEMA)
    first = list(gathered.add("2026-01-01", rows(1, 10)))
    [full] = gathered.add("2026-01-01", rows(11, 10))
    assert first == []
    assert numbers(full) == list(range(1, 21))
    assert list(gathered.finish()) == []


def test_all_files_are_finished_at_the_limit_of_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "OPEN_DAYS", 2)
    gathered = PartFiles(SCHEMA)
    found = [
        part
        for number, day in enumerate(("2026-01-01", "1970-01-01", "2099-01-01", "1970-01-01"), 1)
        for part in gathered.add(day, rows(number, 1))
    ]
    assert [(part.day, numbers(part)) for part in found] == [
        ("2026-01-01", [1]),
        ("1970-01-01", [2]),
    ]
    assert [(part.day, numbers(part)) for part in gathered.finish()] == [
        ("2099-01-01", [3]),
        ("1970-01-01", [4]),
    ]


def test_rows_as_maps_become_a_file() -> None:
    content = to_parquet([{"seq": 1, "text": None}], SCHEMA)
    assert pq.read_table(io.BytesIO(content)).to_pylist() == [{"seq": 1, "text": None}]
