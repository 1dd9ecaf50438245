"""Looks into the landing for who is heard of, before the ingest has taken it into the tables.

Names and times are enough, but for a gateway that seems gone: its farewell may wait there.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from sync.alerts.silence import LandingBacklog
from sync.alerts.state import MINUTE_MS
from sync.common.fleet_folder import parse_segment_path
from sync.ingest.archive import waiting_files
from sync.reports.shared.thresholds import SILENCE_S
from sync.segment import Identity, SegmentError, decode_columns
from sync.tables.storage import File, Storage


def scan_landing(segments: Storage, now: int) -> dict[str, LandingBacklog]:
    """Tell by gateway what waits at `now` (ms since 1970 UTC). Raises OSError."""
    files: dict[str, list[File]] = {}
    for path, file in waiting_files(segments).items():
        parts = PurePosixPath(path).parts
        if len(parts) > 2:
            files.setdefault(parts[1], []).append(file)
    return {gateway: _waiting(segments, found, now) for gateway, found in files.items()}


def _waiting(segments: Storage, files: list[File], now: int) -> LandingBacklog:
    times = [min(int(file.modified * 1000), now) for file in files]
    last = max(times)
    stopped = now - last > 1000 * SILENCE_S and _stopped(segments, files)
    return LandingBacklog(min(times), last, stopped, frozenset(time // MINUTE_MS for time in times))


def _stopped(segments: Storage, files: list[File]) -> bool:
    """Tell whether the last of its system lane that waits ends with a clean stop."""
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
