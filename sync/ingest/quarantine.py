"""The quarantine of a fleet: list, inspect, re-admit and delete files.

A re-admitted file goes back to the landing, and the next ingest judges it again. The tables are
read without Spark, so that listing needs no Java.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from sync.common.errors import FleetError
from sync.common.fleet_folder import archive_path, segment_path
from sync.common.text import double_backslashes, os_error, unescape
from sync.ingest.inspect_file import FileInspection, inspect_file
from sync.segment import SUFFIX
from sync.storage.local import LocalStorage
from sync.storage.locations import ARCHIVE, LANDING, QUARANTINE, FleetStorage
from sync.storage.storage import File, time_of
from sync.tables.delta import FleetTables

READMITTED: Final = "readmitted"
"""The folder in the landing for re-admitted files whose header does not give them a valid name."""

FORK: Final = "fork"

_COLUMNS: Final = ("arrived", "sha256", "reason", "detail")


class QuarantinedFile(NamedTuple):
    """A file in the quarantine: its path below the quarantine, `size` in bytes, and arrival.

    `reason` and `detail` come from the tables or, if the tables do not list the file, from its
    inspection.
    """

    path: str
    size: int
    arrived: datetime
    reason: str
    detail: str

    @property
    def shown(self) -> str:
        """The path as it is printed, with escapes; `Quarantine.find` accepts it."""
        return double_backslashes(self.path)


class Quarantine:
    """The quarantine of a fleet: lists, inspects, readmits and deletes its files."""

    def __init__(self, places: FleetStorage) -> None:
        self._segments = places.segments
        self._tables = FleetTables(places.tables)

    def files(self) -> list[QuarantinedFile]:
        """List the files, oldest first."""
        reasons = self._reasons()
        found = [self._file(file, reasons) for file in self._segments.files(QUARANTINE, SUFFIX)]
        return sorted(found, key=lambda file: (file.arrived, file.path))

    def find(self, names: Iterable[str]) -> list[QuarantinedFile]:
        """Find files by their paths, escaped as the property `shown` prints them, or unescaped.

        An absolute path or a URI must be unescaped. Raises FleetError for a name that no file in
        the quarantine has.
        """
        reasons = self._reasons()
        files = {file.path: file for file in self._segments.files(QUARANTINE, SUFFIX)}
        found = {}
        for name in names:
            path = next((path for path in self._candidates(name) if path in files), None)
            if path is None:
                raise FleetError(
                    f"{name!r} is not a file in the quarantine;"
                    " `fieldpost-fleet quarantine list` lists its files"
                )
            found[path] = files[path]
        return [self._file(file, reasons) for file in found.values()]

    def inspect(self, file: QuarantinedFile) -> FileInspection:
        """Check the file by itself, not against the tables. Raises OSError if it is unreadable."""
        return inspect_file(self._segments.read(f"{QUARANTINE}/{file.path}"))

    def readmit(self, files: Sequence[QuarantinedFile]) -> tuple[list[str], list[str]]:
        """Move files back to the landing; return their new paths, and an error for each that stays.

        Raises LeaseError while an ingest runs, and FleetError after an interrupted ingest.
        """
        moved, refused = [], []
        with self._tables.lease():
            if self._tables.unarchived():
                msg = "the last ingest was interrupted; run `fieldpost-fleet ingest` first"
                raise FleetError(msg)
            for file in files:
                try:
                    moved.append(self._readmit(file))
                except OSError as error:
                    refused.append(f"{file.shown}: {os_error(error)}")
                except FleetError as error:
                    refused.append(f"{file.shown}: {error}")
        return moved, refused

    def drop(self, file: QuarantinedFile) -> None:
        """Delete the file. The tables still list it."""
        self._segments.remove([f"{QUARANTINE}/{file.path}"])

    def _candidates(self, name: str) -> Iterator[str]:
        """Yield the paths that `name` can mean, the most probable first."""
        with contextlib.suppress(ValueError):
            yield f"{QUARANTINE}/{unescape(name)}"
        yield f"{QUARANTINE}/{name}"
        root = self._segments.uri()
        if isinstance(self._segments, LocalStorage):
            with contextlib.suppress(ValueError):
                name = str(Path(name).resolve())
        yield name.removeprefix(f"{root}/")

    def _readmit(self, file: QuarantinedFile) -> str:
        inspection = self.inspect(file)
        if file.reason == FORK:
            raise FleetError(
                f"it contradicts an accepted segment: {file.detail or 'details unknown'}. Find the"
                " copy of that gateway or card and enrol it under another name, then drop this"
                f" file. {self._epoch_advice(inspection)}"
            )
        if inspection.identity is None:
            name = PurePosixPath(READMITTED, f"{inspection.sha256}{SUFFIX}")
        else:
            name = segment_path(inspection.identity)
        archived = self._segments.exists(f"{ARCHIVE}/{archive_path(name)}")
        source, target = f"{QUARANTINE}/{file.path}", f"{LANDING}/{name}"
        if archived or self._segments.move({source: target}):
            msg = "a segment with this name was accepted or waits already; drop this file"
            raise FleetError(msg)
        return target

    def _epoch_advice(self, inspection: FileInspection) -> str:
        """Return a note on a fork's gateway: it has begun a new epoch, or will do so by itself."""
        if inspection.identity is not None:
            gateway, epoch = inspection.identity.gateway, inspection.identity.epoch
            newest = max(
                (
                    PurePosixPath(file.path).parts[2]
                    for folder in (LANDING, ARCHIVE)
                    for file in self._segments.files(f"{folder}/{gateway}", SUFFIX)
                ),
                default=epoch,
            )
            if newest > epoch:
                return (
                    f"The gateway has begun the epoch {newest} since: its new events are accepted"
                )
        return "The gateway begins a new epoch by itself"

    def _file(self, file: File, reasons: dict[str, tuple[str, str]]) -> QuarantinedFile:
        name = file.path.removeprefix(f"{QUARANTINE}/")
        reason = reasons.get(PurePosixPath(name).stem.rpartition(".")[2])
        if reason is None:
            inspection = inspect_file(self._segments.read(file.path))
            reason = (
                inspection.reason or "unknown",
                inspection.detail or "the tables do not list this file",
            )
        return QuarantinedFile(name, file.size, time_of(file.modified), *reason)

    def _reasons(self) -> dict[str, tuple[str, str]]:
        """Read the reasons for refusals, by the digits of the SHA-256 in the files' names."""
        from pyarrow import dataset

        chosen = dataset.field("fate").isin(["bad", FORK])
        rows = self._tables.snapshot().read_segments(_COLUMNS, chosen)
        rows.sort(key=lambda row: row["arrived"])
        return {row["sha256"][:16]: (row["reason"], row["detail"] or "") for row in rows}
