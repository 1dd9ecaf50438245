from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction

from sync.storage.local import LocalStorage
from sync.tables import data_files
from sync.tables.data_files import EventFiles, to_parquet
from sync.tables.delta import DAY, EVENTS

SCHEMA = pa.schema([("seq", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int, text: str = "a") -> pa.RecordBatch:
    records = [{"seq": seq, "text": text} for seq in range(first, first + count)]
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


def numbers(root: Path, added: list[AddAction]) -> list[tuple[str, list[int]]]:
    """Return the days of new files and the numbers in them, compared with the actions."""
    found = []
    for action in added:
        content = (root / EVENTS / action.path).read_bytes()
        table = pq.read_table(io.BytesIO(content))
        assert table.schema.equals(SCHEMA)
        assert (len(content), table.num_rows) == (
            action.size,
            json.loads(action.stats)["numRecords"],
        )
        found.append((str(action.partition_values[DAY]), table["seq"].to_pylist()))
    return found


def test_a_day_is_one_file_with_its_events_in_order(tmp_path: Path) -> None:
    files = EventFiles(LocalStorage(tmp_path))
    assert files.finish() == []
    for day, first in (("2026-01-01", 1), ("2026-01-02", 3), ("2026-01-01", 5)):
        assert files.add(day, rows(first, 2)) == []
    expected = [("2026-01-01", [1, 2, 5, 6]), ("2026-01-02", [3, 4])]
    assert numbers(tmp_path, files.finish()) == expected
    assert files.finish() == []


def test_events_of_all_days_become_files_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "HELD_BYTES", 2 * rows(1, 10).nbytes)
    files = EventFiles(LocalStorage(tmp_path))
    found = [
        numbers(tmp_path, files.add(day, rows(first, 10)))
        for day, first in (("2026-01-01", 1), ("1970-01-01", 11), ("2026-01-01", 21))
    ]
    full = [("2026-01-01", list(range(1, 11))), ("1970-01-01", list(range(11, 21)))]
    assert found == [[], full, []]
    assert numbers(tmp_path, files.finish()) == [("2026-01-01", list(range(21, 31)))]


def test_texts_are_in_a_dictionary_and_increasing_numbers_are_delta_encoded() -> None:
    content = to_parquet(pa.Table.from_batches([rows(1, 10)]))
    seq, text = (pq.read_metadata(io.BytesIO(content)).row_group(0).column(at) for at in (0, 1))
    assert "DELTA_BINARY_PACKED" in seq.encodings
    assert text.has_dictionary_page
    assert {seq.compression, text.compression} == {"ZSTD"}
