"""Where an ingest reads and writes: the storage of the segments and the storage of the tables.

In a fleet folder both are on one disk. On a cluster each is what its URI says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sync.central.storage import LocalStorage, Storage

if TYPE_CHECKING:
    from sync.central.folders import FleetFolder


LANDING: Final = "landing"
ASIDE: Final = "aside"
ARCHIVE: Final = "archive"
QUARANTINE: Final = "quarantine"
"""The folders of segments; see `sync.central.folders.FleetFolder`."""

DATA: Final = "data"
"""The tables' own files: `data/QUERY/BATCH/ATTEMPT` below the tables' folder."""

CHECKPOINTS: Final = "checkpoints"
"""The streams' checkpoints, below the tables' folder; the one with the highest number is in use."""


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
