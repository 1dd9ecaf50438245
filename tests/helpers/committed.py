"""Commit rows to the tables without segments, for tests of readers and of maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from sync.tables import arrow_schemas
from sync.tables.data_files import EventFiles, create_segments_file
from sync.tables.delta import Batch, Counts, FleetTables, Snapshot, local_tables

Row = dict[str, Any]


class SimulatedCrash(Exception):
    """A crash that a test causes."""


def raise_crash() -> None:
    """Raise `SimulatedCrash`."""
    raise SimulatedCrash


@dataclass
class Committer:
    """Commits batches to the tables in `root`; rows name only columns that matter."""

    root: Path

    @property
    def tables(self) -> FleetTables:
        return local_tables(self.root)

    def begin(self, events: Sequence[Row], segments: Sequence[Row] = ()) -> tuple[Snapshot, Batch]:
        """Write the files of a batch, as a driver does after it has read the ledger."""
        tables = self.tables
        tables.recover()
        snapshot = tables.snapshot()
        days: dict[str, list[Row]] = {}
        for row in events:
            time: datetime = row["time"]
            complete = dict.fromkeys(arrow_schemas.EVENTS.names) | row
            days.setdefault(time.date().isoformat(), []).append(complete)
        files = EventFiles(tables.storage)
        for day, rows in days.items():
            files.add(day, pa.RecordBatch.from_pylist(rows, arrow_schemas.EVENTS))
        unset = dict.fromkeys(arrow_schemas.SEGMENTS.names) | {"batch": snapshot.batch + 1}
        batch = Batch(
            files.finish(),
            create_segments_file(tables.storage, [unset | row for row in segments]),
            Counts(len(segments), len(events)),
        )
        return snapshot, batch

    def commit(
        self,
        events: Sequence[Row] = (),
        segments: Sequence[Row] = (),
        on_events: Callable[[], None] = lambda: None,
    ) -> Snapshot:
        """Commit a batch and mark it as archived; return the tables with it."""
        snapshot, batch = self.begin(events, segments)
        self.tables.commit(snapshot, batch, on_events)
        self.tables.mark_archived(snapshot.batch + 1)
        return self.tables.snapshot()
