"""Read the landing and new batches of the tables into the alerts' state, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sync.alerts.rules import LATE_MS, LandingBacklog
from sync.alerts.state import (
    DAY_MS,
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
from sync.tables.delta import EVENTS, SEGMENTS, FleetTables, Snapshot
from sync.tables.storage import File, Storage

HISTORY_DAYS: Final = 8
"""Days of the tables that are read without a saved state: today, and a week as the baseline."""

MAX_ROWS: Final = 16_384
"""Most rows of a Parquet file that are converted to objects at once, to limit memory."""

_LANES: Final = pa.array(["system", "readings"])
_TIME_COLUMNS: Final = ("time", "arrived", "sealed_at")
_SEGMENT_COLUMNS: Final = (
    *("gateway", "epoch", "lane", "first_seq", "last_seq"),
    *("sealed_at", "service_seconds", "arrived", "fate"),
)
_EVENT_COLUMNS: Final = (
    *("gateway", "epoch", "lane", "seq", "time", "kind"),
    *("source", "topic", "name", "value", "tags", "arrived"),
)


def scan_landing(segments: Storage, now: int) -> dict[str, LandingBacklog]:
    """Return the segments that wait at `now` (ms since 1970 UTC), by gateway. Raises OSError.

    Files are not opened, only those of a gateway that seems silent: its clean stop may be in a
    waiting segment.
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
    named = [(name, file.path) for file in files if (name := _identity(file.path)) is not None]
    system = [(name.epoch, name.last_seq, path) for name, path in named if name.lane == "system"]
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


class BatchReader:
    """Reads the new rows of each batch once, from the files that the tables' log lists.

    Without a state to continue from, or if the log or a file is gone, the last `HISTORY_DAYS` are
    read. Files written by maintenance are skipped. The reader changes nothing and needs no lease.
    """

    def __init__(self, tables: FleetTables) -> None:
        self._tables = tables

    def update(self, state: FleetState | None, now: int) -> tuple[FleetState, bool]:
        """Read all new batches; return the state, and whether it changed.

        Raises OSError and FleetError when the tables cannot be read.
        """
        snapshot = self._tables.snapshot()
        versions = _versions(snapshot)
        if state is not None and state.versions.keys() == versions.keys():
            try:
                return state, self._read_new(state, versions)
            except FileNotFoundError:
                pass
        return self._read_history(snapshot, now), True

    def _read_history(self, snapshot: Snapshot, now: int) -> FleetState:
        """Read the last `HISTORY_DAYS` of the tables into a new state."""
        state = FleetState(versions=_versions(snapshot))
        since = now - now % DAY_MS - (HISTORY_DAYS - 1) * DAY_MS
        first = datetime.fromtimestamp(since / 1000, UTC).date().isoformat()
        read_segments(state, map(self._path, snapshot.segment_files), since)
        for day, found in snapshot.days.items():
            if day >= first:
                read_events(state, map(self._path, found.files))
        return state

    def _read_new(self, state: FleetState, versions: dict[str, int]) -> bool:
        read = {SEGMENTS: read_segments, EVENTS: read_events}
        for name, version in versions.items():  # segments first
            for path in self._tables.added_files(name, state.versions[name], version):
                read[name](state, [self._path(path)])
        changed = state.versions != versions
        state.versions = versions
        return changed

    def _path(self, name: str) -> Path:
        return Path(self._tables.storage.uri(name))


def _versions(snapshot: Snapshot) -> dict[str, int]:
    """Return the version of each table; an empty map before the first batch."""
    tables = {SEGMENTS: snapshot.segments, EVENTS: snapshot.events}
    return {name: table.version() for name, table in tables.items() if table is not None}


def read_segments(state: FleetState, files: Iterable[Path], since: int = 0) -> None:
    """Add the rows of the table `segments` that arrived from `since` on (ms since 1970 UTC).

    Raises OSError when a file is missing or damaged, as `read_events` does.
    """
    for row in _rows(files, _SEGMENT_COLUMNS):
        gateway, epoch, lane, first, last, sealed, service, arrived, fate = row
        if gateway is None or arrived < since:
            continue
        known = add_arrival(state, gateway, arrived)
        if known is not None and fate == "accepted":
            segment = Segment(epoch, first, last, sealed, service, arrived)
            add_segment(known, lane, segment, LATE_MS)


def read_events(state: FleetState, files: Iterable[Path]) -> None:
    """Add rows of the table `events`; the segments of their gateways must be added before."""
    for row in _rows(files, _EVENT_COLUMNS, _relevant_lanes):
        event = Event(*row)
        known = state.gateways.get(event.gateway)
        if known is not None:
            add_event(known, event._replace(tags=dict(event.tags or ())))


def _relevant_lanes(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("lane"), value_set=_LANES))


def _rows(
    files: Iterable[Path], columns: tuple[str, ...], select: Any = lambda batch: batch
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of Parquet files, with one row group in memory at a time."""
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(MAX_ROWS, columns=list(columns)):
                    selected = select(batch)
                    yield from zip(*(_values(selected, name) for name in columns), strict=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            msg = f"{path} is not a valid file of the tables: {error}"
            raise OSError(msg) from error


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if name not in _TIME_COLUMNS:
        values: list[Any] = column.to_pylist()
        return values
    microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if each is None else each // 1000 for each in microseconds]
