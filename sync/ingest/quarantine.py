"""The quarantine of a fleet folder: what lies in it and why, and what an operator makes of it.

A file that is re-admitted goes back into the landing, and the next ingest judges it anew. Reads the
tables without Spark, so that a look costs no Java. Judges nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from sync.common.errors import FleetError
from sync.common.fleet_folder import SUFFIX, FleetFolder, segment_path
from sync.common.text import double_backslashes, unescape
from sync.ingest.inspect_file import FileInspection, inspect_file
from sync.tables.locations import ARCHIVE, LANDING, QUARANTINE, FleetStorage
from sync.tables.manifest import Commits, live_files

READMITTED: Final = "readmitted"
"""The folder of the landing for files that have no name of their own."""

FORK: Final = "fork"

_COLUMNS: Final = ("arrived", "sha256", "reason", "detail")


class QuarantinedFile(NamedTuple):
    """A file in the quarantine: its path below the quarantine, `size` in bytes, when it arrived.

    `reason` and `detail` are the ingest's; where the tables do not know the file, a look's.
    """

    path: str
    size: int
    arrived: datetime
    reason: str
    detail: str

    @property
    def shown(self) -> str:
        """The path as it is printed, which `Quarantine.find` reads back."""
        return double_backslashes(self.path)


class Quarantine:
    """What lies in the quarantine of `folder`."""

    def __init__(self, folder: FleetFolder) -> None:
        self._places = FleetStorage.of(folder)
        self._root = folder.root.resolve() / QUARANTINE
        self._commits = Commits(self._places.tables)

    def held(self) -> list[QuarantinedFile]:
        """List the files, oldest first."""
        told = self._told()
        files = self._places.segments.files(QUARANTINE, SUFFIX)
        found = [self._held(file.path, file.size, file.modified, told) for file in files]
        return sorted(found, key=lambda held: (held.arrived, held.path))

    def find(self, name: str) -> QuarantinedFile:
        """Find one by its path: below the quarantine as the list prints it, or just as it is.

        A whole path is never taken for a printed one. Raises FleetError when it is not a file of
        the quarantine.
        """
        for resolved in self._meant(name):
            if resolved.is_relative_to(self._root) and resolved.is_file():
                status = resolved.stat()
                relative = resolved.relative_to(self._root.parent).as_posix()
                return self._held(relative, status.st_size, status.st_mtime, self._told())
        msg = f"{name!r} is no file of the quarantine"
        raise FleetError(msg)

    def look(self, held: QuarantinedFile) -> FileInspection:
        """Look at the file itself. Raises OSError when it cannot be read."""
        return inspect_file(self._root / held.path)

    def readmit(self, files: Sequence[QuarantinedFile]) -> tuple[list[str], list[str]]:
        """Move the files back into the landing; gives where they went, and which did not and why.

        Raises LeaseError while an ingest is at work, and FleetError after one that was cut off.
        """
        moved, refused = [], []
        with self._commits.lease():
            if self._commits.unarchived():
                msg = "the last ingest was cut off; run `fieldpost-fleet ingest` first"
                raise FleetError(msg)
            for held in files:
                try:
                    moved.append(self._readmit(held))
                except FleetError as error:
                    refused.append(f"{held.shown}: {error}")
        return moved, refused

    def drop(self, held: QuarantinedFile) -> None:
        """Delete the file. The tables go on to tell of it."""
        self._places.segments.remove(f"{QUARANTINE}/{held.path}")

    def _meant(self, name: str) -> Iterator[Path]:
        """Give the paths that a name may mean, the likeliest first; none that no file can have."""
        names = [Path(name)]
        if not names[0].is_absolute():
            names.insert(0, self._root / name)
            with contextlib.suppress(ValueError):
                names.insert(0, self._root / unescape(name))
        for path in names:
            with contextlib.suppress(ValueError):
                yield path.resolve()

    def _readmit(self, held: QuarantinedFile) -> str:
        look = self.look(held)
        if held.reason == FORK:
            msg = (
                f"a fork is not taken: it {held.detail or 'contradicts what was taken'}. Find the"
                " copy of that gateway, or card, and enrol it under a name of its own; then drop"
                f" this file. {self._went_on(look)}"
            )
            raise FleetError(msg)
        if look.identity is None:
            name = f"{READMITTED}/{look.sha256}{SUFFIX}"
        else:
            name = segment_path(look.identity).as_posix()
        archived = self._places.segments.exists(f"{ARCHIVE}/{name}")
        source, target = f"{QUARANTINE}/{held.path}", f"{LANDING}/{name}"
        if archived or self._places.segments.move({source: target}):
            msg = "a segment of that name was taken, or waits, already; drop this file"
            raise FleetError(msg)
        return target

    def _went_on(self, look: FileInspection) -> str:
        """Tell what the gateway of a fork does now: nobody has to begin an epoch for it."""
        if look.identity is not None:
            gateway, epoch = look.identity.gateway, look.identity.epoch
            folders = (f"{place}/{gateway}" for place in (LANDING, ARCHIVE))
            there = {each for folder in folders for each in self._places.segments.folders(folder)}
            newest = max(there, default=epoch)
            if newest > epoch:
                return f"It began {newest} since, a new epoch: what it counts now is taken"
        return "A gateway that is contradicted needs no new epoch of you: it begins one by itself"

    def _held(
        self, path: str, size: int, modified: float, told: dict[str, tuple[str, str]]
    ) -> QuarantinedFile:
        name = path.removeprefix(f"{QUARANTINE}/")
        known = told.get(Path(name).stem.rpartition(".")[2])
        if known is None:
            look = inspect_file(self._root / name)
            known = (look.reason or "unknown", look.detail or "the tables do not know this file")
        return QuarantinedFile(name, size, datetime.fromtimestamp(modified, UTC), *known)

    def _told(self) -> dict[str, tuple[str, str]]:
        """Read from the tables why files were refused: by what their names tell of their bytes."""
        from pyarrow import dataset

        storage = self._places.tables
        paths = [storage.uri(path) for path in live_files(self._commits.manifests()).segments]
        if not paths:
            return {}
        chosen = dataset.field("fate").isin(["bad", FORK])
        rows = dataset.dataset(paths).to_table(columns=list(_COLUMNS), filter=chosen).to_pylist()
        rows.sort(key=lambda row: row["arrived"])
        return {row["sha256"][:16]: (row["reason"], row["detail"] or "") for row in rows}
