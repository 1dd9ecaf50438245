from __future__ import annotations

import pytest

from sync.ingest.decoding_tasks import OPEN_COST, divide
from sync.storage.storage import File
from sync.tables.spark_session import TASK_BYTES


@pytest.mark.parametrize(
    ("sizes", "cores", "expected"),
    [
        ([100] * 8, 2, [4, 4]),
        ([100] * 8, 3, [3, 3, 2]),
        ([100] * 3, 8, [1, 1, 1]),
        ([0], 2, [1]),
        ([30 * OPEN_COST, *([100] * 30)], 2, [1, 30]),
        ([TASK_BYTES // 2] * 5, 1, [2, 2, 1]),
        ([TASK_BYTES * 2, 1, 1], 1, [1, 2]),
    ],
    ids=["alike", "uneven", "few", "empty", "one is large", "large", "too large"],
)
def test_files_are_divided_in_order_by_size_and_number(
    sizes: list[int], cores: int, expected: list[int]
) -> None:
    files = [File(str(at), size, 0.0) for at, size in enumerate(sizes)]
    parts = divide(files, cores)
    assert [len(part) for part in parts] == expected
    assert [file for part in parts for file in part] == files
