"""Read the tables of a fleet folder without Spark, also after an ingest by the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from pyarrow import dataset

from sync.common.fleet_folder import FleetFolder
from sync.tables import arrow_schemas
from sync.tables.delta import local_tables
from tests.helpers.jvm import FAST_JVM

INGEST_S = 400
"""Seconds for an ingest of some thousand segments on a loaded machine."""

Rows = list[dict[str, Any]]


def ingest_by_command(fleet: FleetFolder) -> tuple[Rows, Rows]:
    """Ingest all waiting files with the command, and return the tables' rows."""
    result = subprocess.run(
        [sys.executable, "-m", "sync.cli", "ingest", "--dir", str(fleet.root)],
        capture_output=True,
        text=True,
        timeout=INGEST_S,
        check=False,
        env=os.environ | {"JDK_JAVA_OPTIONS": FAST_JVM},
    )
    assert result.returncode == 0, result.stderr
    return stored_rows(fleet)


def stored_rows(fleet: FleetFolder) -> tuple[Rows, Rows]:
    """Return the rows of `events` and of `segments`, each in a fixed order."""
    snapshot = local_tables(fleet.tables).snapshot()
    parts = (
        (snapshot.event_files, arrow_schemas.EVENTS, ("gateway", "epoch", "lane", "seq")),
        (snapshot.segment_files, arrow_schemas.SEGMENTS, ("path", "sha256", "fate", "arrived")),
    )
    events, segments = (
        sorted(
            dataset.dataset([str(fleet.tables / path) for path in paths], schema=schema)
            .to_table()
            .to_pylist(),
            key=lambda row: [row[name] for name in order],
        )
        for paths, schema, order in parts
    )
    return events, segments
