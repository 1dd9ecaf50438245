"""Ingest a fleet folder with the real command, and read its tables without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from sync.common.fleet_folder import FleetFolder
from sync.tables.delta import local_tables
from tests.helpers.jvm import FAST_JVM

LIMIT_S = 400
"""Seconds for an ingest of some thousand segments on a loaded machine."""


class Tables(NamedTuple):
    """All rows of both tables."""

    events: list[dict[str, Any]]
    segments: list[dict[str, Any]]


def ingested(fleet: FleetFolder) -> Tables:
    """Ingest all waiting files with the command, and return the tables' rows."""
    done = subprocess.run(
        [sys.executable, "-m", "sync.cli", "ingest", "--dir", str(fleet.root)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | {"JDK_JAVA_OPTIONS": FAST_JVM},
    )
    assert done.returncode == 0, done.stderr
    found = local_tables(fleet.tables).snapshot()
    events, segments = found.event_files, found.segment_files
    return Tables(_rows(fleet.tables, events), _rows(fleet.tables, segments))


def _rows(tables: Path, files: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in files:
        rows += pq.ParquetFile(tables / path).read().to_pylist()
    return rows
