from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sync.reports import quarantine as quarantine_report
from sync.tables.tables import SEGMENTS, refused
from tests.helpers.small_tables import at, report_rows, table

pytestmark = pytest.mark.spark


def test_files_accepted_later_are_no_longer_refused(spark: SparkSession) -> None:
    files = [("a", "1", "bad"), ("a", "1", "accepted"), ("b", "2", "bad"), ("c", "2", "duplicate")]
    files += [("d", "3", "bad"), ("d", "3", "bad"), ("e", "4", "fork"), ("f", "5", "accepted")]
    rows = [{"path": path, "sha256": digest, "fate": fate} for path, digest, fate in files]
    found = refused(table(spark, SEGMENTS, rows)).select("path", "fate").collect()
    assert sorted(map(tuple, found)) == [("d", "bad"), ("e", "fork")]


def test_refused_files_are_listed_once_latest_first(spark: SparkSession) -> None:
    bad = {"path": "landing/b", "sha256": "1", "fate": "bad", "reason": "magic", "size": 3}
    rows = [
        bad | {"arrived": at(1)},
        bad | {"arrived": at(1)},
        bad | {"path": "aside/c", "fate": "fork", "reason": "fork", "arrived": at(2)},
        {"path": "landing/a", "sha256": "2", "fate": "accepted", "arrived": at(3)},
    ]
    segments = table(spark, SEGMENTS, rows)
    report = quarantine_report.quarantine(segments)
    assert report.schema.simpleString() == quarantine_report.TABLE.schema.simpleString()
    assert report_rows(report, "path", "arrived", "size", "reason") == [
        ("aside/c", 2, 3, "fork"),
        ("landing/b", 1, 3, "magic"),
    ]
    outcomes = report_rows(quarantine_report.files_by_fate(segments), "fate", "files")
    assert outcomes == [("accepted", 1), ("bad", 1), ("fork", 1)]
