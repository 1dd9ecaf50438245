"""Find the storage of the segments and of the tables: in a fleet folder, or by URI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.tables.storage import LocalStorage, Storage, is_local

LANDING: Final = "landing"
ASIDE: Final = "aside"
ARCHIVE: Final = "archive"
QUARANTINE: Final = "quarantine"
"""The names of the folders of segments, from `LANDING` on; see
`sync.common.fleet_folder.FleetFolder`."""


@dataclass(frozen=True, slots=True)
class FleetStorage:
    """A fleet's storage: of segments (landing, aside, archive, quarantine), and of tables."""

    segments: Storage
    tables: Storage

    @classmethod
    def of(cls, folder: FleetFolder) -> FleetStorage:
        """Return the storage of a fleet folder, with symbolic links resolved."""
        root = folder.root.resolve()
        return cls(LocalStorage(root), LocalStorage(root / folder.tables.name))


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """The storage options of a command: a fleet folder, or URIs of the landing and the tables."""

    folder: Path | None
    landing: str | None
    tables: str | None

    def check(self) -> None:
        """Raise FleetError unless the options name a valid fleet folder, or landing and tables."""
        if not (self.landing and self.tables):
            self._own().require()
        if self.landing and PurePosixPath(self.landing).name != LANDING:
            raise FleetError(f"the folder {self.landing} must be named `{LANDING}`")

    @property
    def is_local(self) -> bool:
        """Return whether all storage is on local disks."""
        return all(is_local(uri) for uri in (self.landing, self.tables) if uri)

    def log(self, name: str) -> Path | None:
        """Return the path of the file `name` for Spark's messages; None without a fleet folder."""
        return self.folder / "tables" / name if self.folder else None

    def open(self, storage_at: Callable[[str], Storage]) -> FleetStorage:
        """Open the storage; `storage_at` opens a URI. Raises FleetError if that fails."""
        if self.landing:
            segments = storage_at(self.landing.rstrip("/").removesuffix(f"/{LANDING}"))
        else:
            segments = FleetStorage.of(self._own()).segments
        return FleetStorage(
            segments,
            storage_at(self.tables) if self.tables else FleetStorage.of(self._own()).tables,
        )

    def _own(self) -> FleetFolder:
        if self.folder is None:
            raise FleetError("name the fleet folder with --dir, or both --landing and --tables")
        return FleetFolder(self.folder)
