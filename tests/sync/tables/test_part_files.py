from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sync.tables import part_files
from sync.tables.part_files import PartFile, PartFiles, to_parquet

SCHEMA = pa.schema([("seq", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int, text: str = "a") -> pa.RecordBatch:
    records = [{"seq": seq, "text": text} for seq in range(first, first + count)]
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


def numbers(part: PartFile) -> list[int]:
    table = pq.read_table(io.BytesIO(part.content))
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == part.events
    seqs: list[int] = table["seq"].to_pylist()
    return seqs


def test_a_day_is_one_file_with_its_events_in_order() -> None:
    parts = PartFiles()
    assert list(parts.finish()) == []
    for day, first in (("2026-01-01", 1), ("2026-01-02", 3), ("2026-01-01", 5)):
        assert list(parts.add(day, rows(first, 2))) == []
    found = {part.day: numbers(part) for part in parts.finish()}
    assert found == {"2026-01-01": [1, 2, 5, 6], "2026-01-02": [3, 4]}
    assert list(parts.finish()) == []


def test_events_of_all_days_become_files_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "HELD_BYTES", 2 * rows(1, 10).nbytes)
    parts = PartFiles()
    found = [
        [(part.day, numbers(part)) for part in parts.add(day, rows(first, 10))]
        for day, first in (("2026-01-01", 1), ("1970-01-01", 11), ("2026-01-01", 21))
    ]
    full = [("2026-01-01", list(range(1, 11))), ("1970-01-01", list(range(11, 21)))]
    assert found == [[], full, []]
    assert [numbers(part) for part in parts.finish()] == [list(range(21, 31))]


def test_texts_are_in_a_dictionary_and_increasing_numbers_are_delta_encoded() -> None:
    content = to_parquet(pa.Table.from_batches([rows(1, 10)]))
    seq, text = (pq.read_metadata(io.BytesIO(content)).row_group(0).column(at) for at in (0, 1))
    assert "DELTA_BINARY_PACKED" in seq.encodings
    assert text.has_dictionary_page
    assert {seq.compression, text.compression} == {"ZSTD"}
