"""Where an ingest reads and writes: the storage of the segments and the storage of the tables.

In a fleet folder both are on one disk. On a cluster each is what its URI says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sync.central.storage import LocalStorage, Storage

if TYPE_CHECKING:
    from sync.central.folders import FleetFolder


@dataclass(frozen=True, slots=True)
class Places:
    """`segments` holds the folders landing, aside, archive and quarantine; `tables` the tables."""

    segments: Storage
    tables: Storage

    @classmethod
    def of(cls, folder: FleetFolder) -> Places:
        """Give the places of a fleet folder, as they are called without symbolic links."""
        root = folder.root.resolve()
        return cls(LocalStorage(root), LocalStorage(root / folder.tables.name))


LANDING = "landing"
ASIDE = "aside"
ARCHIVE = "archive"
QUARANTINE = "quarantine"
"""The folders of `Places.segments`; see `sync.central.folders.FleetFolder`."""
