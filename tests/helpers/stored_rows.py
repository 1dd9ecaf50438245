"""Read the tables of a fleet folder without Spark."""

from __future__ import annotations

from typing import Any

from pyarrow import dataset

from sync.common.fleet_folder import FleetFolder
from sync.tables import arrow_schemas
from sync.tables.delta import local_tables


def stored_rows(fleet: FleetFolder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of `events` and of `segments`, each in a fixed order."""
    live = local_tables(fleet.tables).snapshot()
    parts = (
        (live.event_files, arrow_schemas.EVENTS, ("gateway", "epoch", "lane", "seq")),
        (live.segment_files, arrow_schemas.SEGMENTS, ("path", "sha256", "fate")),
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
