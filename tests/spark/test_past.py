"""A report of a moment that is over: what later days hold, and what came later, is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sync.reports.as_of import at as then
from sync.tables.summaries import summarise
from sync.tables.tables import SEGMENTS
from tests.helpers.small_tables import at, table
from tests.spark.test_summaries import BOTH, DAY_S, batch, told

pytestmark = pytest.mark.spark


def test_later_days_and_later_segments_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    kept = summarise(spark, tmp_path, [batch(spark, tmp_path, 0, 0, 1, 1, 2)], BOTH)
    ledger = table(
        spark,
        SEGMENTS,
        [
            {"gateway": "gw", "path": f"archive/{number}", "arrived": at(second)}
            for number, second in enumerate((DAY_S - 1, DAY_S, DAY_S + 1))
        ],
    )
    past, segments = then(kept, ledger, at(DAY_S))
    assert told(past) == {21: 1, 22: 2}
    assert sorted(row["path"] for row in segments.collect()) == ["archive/0", "archive/1"]
    assert told(kept) == {21: 1, 22: 2, 23: 1}, "what is kept stays whole"
