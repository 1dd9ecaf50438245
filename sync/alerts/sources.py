"""Read the landing and new batches of the tables into the alerts' state, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sync.alerts.rules import LandingBacklog
from sync.alerts.state import (
    DAY_MS,
    MAX_GATEWAYS,
    MINUTE_MS,
    Event,
    FleetState,
    Segment,
    add_arrival,
    add_event,
    add_segment,
)
from sync.common.fleet_folder import parse_segment_path
from sync.ingest.archive import waiting_files
from sync.reports.shared.thresholds import SILENCE_S
from sync.segment import Identity, SegmentError, decode_columns
from sync.storage.storage import File, Storage
from sync.tables.delta import EVENTS, SEGMENTS, FleetTables, Snapshot

HISTORY_DAYS: Final = 8
"""Number of days of the tables that are read if there is no saved state: today, and a week as the
baseline."""

MAX_ROWS: Final = 16_384
"""Maximum number of rows of a Parquet file converted to objects at once, to limit memory."""

_LANES: Final = pa.array(["system", "readings"])
_TIME_COLUMNS: Final = ("time", "arrived", "sealed_at")
_SEGMENT_COLUMNS: Final = (
    *("gateway", "epoch", "lane", "first_seq", "last_seq"),
    *("sealed_at", "service_seconds", "arrived", "fate"),
)


def scan_landing(segments: Storage, now: int) -> dict[str, LandingBacklog]:
    """Return the segments that wait at `now` (ms since 1970 UTC), by gateway. Raises OSError.

    Files are opened only if their gateway seems silent, to find out whether it stopped cleanly.
    """
    files: dict[str, list[File]] = {}
    for path, file in waiting_files(segments).items():
        parts = PurePosixPath(path).parts
        if len(parts) > 2:
            files.setdefault(parts[1], []).append(file)
    return {gateway: _backlog(segments, found, now) for gateway, found in files.items()}


def _backlog(segments: Storage, files: list[File], now: int) -> LandingBacklog:
    times = [min(int(file.modified * 1000), now) for file in files]
    last = max(times)
    stopped = now - last > 1000 * SILENCE_S and _ends_with_stop(segments, files)
    minutes = frozenset(time // MINUTE_MS for time in times)
    return LandingBacklog(min(times), last, stopped, minutes)


def _ends_with_stop(segments: Storage, files: list[File]) -> bool:
    """Return whether the last waiting segment of the system lane ends with a clean stop."""
    system = [
        (name.epoch, name.last_seq, file.path)
        for file in files
        if (name := _identity(file.path)) is not None and name.lane == "system"
    ]
    if not system:
        return False
    try:
        _, columns = decode_columns(segments.read(max(system)[2]))
    except (SegmentError, FileNotFoundError):
        return False
    return (columns["kind"][-1], columns["name"][-1]) == ("system", "stop")


def _identity(path: str) -> Identity | None:
    try:
        return parse_segment_path(PurePosixPath(*PurePosixPath(path).parts[1:]))
    except SegmentError:
        return None


def read_batches(
    tables: FleetTables, state: FleetState | None, now: int, max_gateways: int = MAX_GATEWAYS
) -> tuple[FleetState, bool]:
    """Add the rows of all new batches to the state; return it, and whether it changed.

    The tables' log names the new files; those that maintenance wrote are skipped. Without a state
    to continue from, or if a log entry or a file is gone, the last `HISTORY_DAYS` are read. The
    tables are not changed, and no lease is needed. Raises OSError and FleetError when the tables
    cannot be read.
    """
    snapshot = tables.snapshot()
    versions = _versions(snapshot)
    if state is not None and state.versions.keys() == versions.keys():
        state.max_gateways = max_gateways
        try:
            return state, _read_new(tables, state, versions)
        except FileNotFoundError:
            pass
    return _read_history(snapshot, now, max_gateways), True


def _read_history(snapshot: Snapshot, now: int, max_gateways: int) -> FleetState:
    state = FleetState(versions=_versions(snapshot), max_gateways=max_gateways)
    since = now - now % DAY_MS - (HISTORY_DAYS - 1) * DAY_MS
    first = datetime.fromtimestamp(since / 1000, UTC).date().isoformat()
    read_segments(state, snapshot.storage, snapshot.segment_files, since)
    for day, found in snapshot.days.items():
        if day >= first:
            read_events(state, snapshot.storage, found.files)
    return state


def _read_new(tables: FleetTables, state: FleetState, versions: dict[str, int]) -> bool:
    read = {SEGMENTS: read_segments, EVENTS: read_events}
    for name, version in versions.items():  # segments first
        read[name](state, tables.storage, tables.added_files(name, state.versions[name], version))
    changed = state.versions != versions
    state.versions = versions
    return changed


def _versions(snapshot: Snapshot) -> dict[str, int]:
    tables = {SEGMENTS: snapshot.segments, EVENTS: snapshot.events}
    return {name: table.version() for name, table in tables.items() if table is not None}


def read_segments(state: FleetState, tables: Storage, files: Iterable[str], since: int = 0) -> None:
    """Add rows of the table `segments` to the state: those that arrived at `since` (ms) or later.

    Raises OSError when a file is missing or damaged, as `read_events` does.
    """
    for row in _rows(tables, files, _SEGMENT_COLUMNS):
        gateway, epoch, lane, first, last, sealed, service, arrived, fate = row
        if gateway is None or arrived < since:
            continue
        known = add_arrival(state, gateway, arrived)
        if known is not None and fate == "accepted":
            segment = Segment(epoch, first, last, sealed, service, arrived)
            add_segment(known, lane, segment)


def read_events(state: FleetState, tables: Storage, files: Iterable[str]) -> None:
    """Add rows of the table `events` to the state, if `read_segments` has added their gateway."""
    for row in _rows(
        *(tables, files, Event._fields),
        lambda batch: batch.filter(pc.is_in(batch["lane"], value_set=_LANES)),
    ):
        event = Event(*row)
        known = state.gateways.get(event.gateway)
        if known is not None:
            add_event(known, event._replace(tags=dict(event.tags or ())))


def _rows(
    tables: Storage,
    files: Iterable[str],
    columns: tuple[str, ...],
    select: Any = lambda batch: batch,
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of Parquet files, with one file and one row group in memory at a time."""
    for path in files:
        try:
            with pq.ParquetFile(pa.BufferReader(tables.read(path))) as file:
                for batch in file.iter_batches(MAX_ROWS, columns=list(columns)):
                    selected = select(batch)
                    yield from zip(*(_values(selected, name) for name in columns), strict=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            msg = f"{tables.uri(path)} is not a valid file of the tables: {error}"
            raise OSError(msg) from error


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if name not in _TIME_COLUMNS:
        values: list[Any] = column.to_pylist()
        return values
    microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if each is None else each // 1000 for each in microseconds]
