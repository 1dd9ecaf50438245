"""Find the storage of the segments and of the tables: in a fleet folder, or by URI."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.storage.local import LocalStorage
from sync.storage.storage import PATIENCE, Storage

LANDING: Final = "landing"
ASIDE: Final = "aside"
ARCHIVE: Final = "archive"
QUARANTINE: Final = "quarantine"
"""The names of the folders of segments, from `LANDING` on; see
`sync.common.fleet_folder.FleetFolder`."""


OBJECT_STORES: Final = ("s3", "gs", "az", "abfss")
"""Schemes of URIs of object stores: S3, Google Cloud Storage, and Azure Blob Storage."""


def open_storage(uri: str, patience: timedelta = PATIENCE, *, public: bool = False) -> Storage:
    """Open the storage at `uri`: a plain path or `file:` on a local disk, others in object stores.

    `patience` is the time for which a failed request to an object store is repeated. On a local
    disk, new files are readable by their owner only or, if `public`, by all users. Raises
    FleetError if there is no such store, or its configuration is not valid.
    """
    scheme = urlsplit(uri).scheme
    if scheme in ("", "file"):
        path = uri.removeprefix("file:")
        root = Path(f"/{path.lstrip('/')}" if path != uri else path).resolve()
        return LocalStorage(root, public=public)
    if scheme not in OBJECT_STORES:
        known = ", ".join(OBJECT_STORES)
        raise FleetError(f"cannot open {uri}: use a path, or a URI that begins with {known}")
    from sync.storage.object_store import ObjectStorage  # its library takes memory

    try:
        return ObjectStorage(uri, patience)
    except OSError as error:
        raise FleetError(f"cannot open {error}") from error


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

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        given = {"--dir": self.folder, "--landing": self.landing, "--tables": self.tables}
        return [word for name, value in given.items() if value for word in (name, str(value))]

    def log(self, name: str) -> Path | None:
        """Return the path of the file `name` for Spark's messages; None without a fleet folder."""
        return self.folder / "tables" / name if self.folder else None

    def open(self) -> FleetStorage:
        """Open the storage. Raises FleetError if that fails, as `check` does."""
        self.check()
        return FleetStorage(
            self.open_segments(),
            open_storage(self.tables) if self.tables else FleetStorage.of(self._own()).tables,
        )

    def open_segments(self, patience: timedelta = PATIENCE) -> Storage:
        """Open the storage of the segments; see `open_storage`. Raises FleetError."""
        if not self.landing:
            return FleetStorage.of(self._own()).segments
        return open_storage(self.landing.rstrip("/").removesuffix(f"/{LANDING}"), patience)

    def _own(self) -> FleetFolder:
        if self.folder is None:
            raise FleetError("name the fleet folder with --dir, or both --landing and --tables")
        return FleetFolder(self.folder)
