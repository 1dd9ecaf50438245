"""Reads what a batch wrote to the tables, without Spark: segments, and the events that matter.

Judges nothing. Files are read by row groups, so that the largest takes no more memory than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sync.alerts.rules import LATE_MS
from sync.alerts.state import (
    Event,
    FleetState,
    Segment,
    add_arrival,
    add_event,
    add_segment,
)

ROWS: Final = 16_384
"""Rows that are turned into objects at once."""

_LANES: Final = pa.array(["system", "readings"])
_TIMES: Final = ("time", "arrived", "sealed_at")
_SEGMENT: Final = (
    *("gateway", "epoch", "lane", "first_seq", "last_seq"),
    *("sealed_at", "service_seconds", "arrived", "fate"),
)
_EVENT: Final = (
    *("gateway", "epoch", "lane", "seq", "time", "kind"),
    *("source", "topic", "name", "value", "tags", "arrived"),
)


def read_segments(seen: FleetState, files: Iterable[Path], since: int = 0) -> None:
    """Take rows of the table `segments` of what arrived from `since` on (ms since 1970 UTC).

    Raises OSError when a file is missing or spoiled, as `read_events` does.
    """
    for row in _rows(files, _SEGMENT):
        gateway, epoch, lane, first, last, sealed, service, arrived, fate = row
        if gateway is None or arrived < since:
            continue
        known = add_arrival(seen, gateway, arrived)
        if known is not None and fate == "accepted":
            segment = Segment(epoch, first, last, sealed, service, arrived)
            add_segment(known, lane, segment, LATE_MS)


def read_events(seen: FleetState, files: Iterable[Path]) -> None:
    """Take rows of the table `events`. The gateways' segments have to be taken before."""
    for row in _rows(files, _EVENT, _matters):
        event = Event(*row)
        known = seen.gateways.get(event.gateway)
        if known is not None:
            add_event(known, event._replace(tags=dict(event.tags or ())))


def _matters(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("lane"), value_set=_LANES))


def _rows(
    files: Iterable[Path], columns: tuple[str, ...], chosen: Any = lambda batch: batch
) -> Iterator[tuple[Any, ...]]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS, columns=list(columns)):
                    few = chosen(batch)
                    yield from zip(*(_values(few, name) for name in columns), strict=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            msg = f"{path} is no file of the tables: {error}"
            raise OSError(msg) from error


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if name not in _TIMES:
        values: list[Any] = column.to_pylist()
        return values
    microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if each is None else each // 1000 for each in microseconds]
