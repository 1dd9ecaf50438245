"""Remove files from the tables' storage that nobody reads any more.

These are files that maintenance has replaced, once readers had time to finish; files of interrupted
attempts; and old checkpoints of the stream. Needs the lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final

from sync.tables.locations import CHECKPOINTS, DATA
from sync.tables.manifest import Manifest, live_files
from sync.tables.storage import File, Storage

GRACE_S: Final = 86_400
"""Seconds for which a replaced file is kept: a report that began before still reads it."""

ABANDONED_S: Final = 7 * 86_400
"""Seconds after which files that no manifest names count as abandoned. Earlier, they may be of a
batch whose manifest was lost and is being restored."""

_ATTEMPT: Final = 4
"""Parts of the path of an attempt: `data/QUERY/BATCH/ATTEMPT`."""


@dataclass(frozen=True, slots=True)
class UnusedFiles:
    """Removable files: replaced files, folders of attempts, folders of stream checkpoints."""

    replaced: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()


@dataclass(slots=True)
class _Folder:
    """The folder of an attempt: its files, and when the newest of them was written."""

    files: list[str] = field(default_factory=list)
    newest: float = 0.0

    def add(self, file: File) -> None:
        self.files.append(file.path)
        self.newest = max(self.newest, file.modified)


def find_unused(tables: Storage, manifests: Sequence[Manifest], now: float) -> UnusedFiles:
    """Find what may be removed at `now` (seconds since 1970). Needs the lease."""
    gone = {
        path
        for each in manifests
        if now - datetime.fromisoformat(each.committed_at).timestamp() > GRACE_S
        for path in each.replaces
    }
    known = {f"{DATA}/{each.query}/{each.batch}/{each.attempt}" for each in manifests}
    replaced: list[str] = []
    attempts: list[str] = []
    for name, folder in _folders(tables.files(DATA)).items():
        if name not in known:
            if now - folder.newest > ABANDONED_S:
                attempts.append(name)
        elif gone.issuperset(folder.files):
            attempts.append(name)
        else:
            replaced += gone.intersection(folder.files)
    return UnusedFiles(tuple(sorted(replaced)), tuple(attempts), tuple(_checkpoints(tables, now)))


def remove_unused(tables: Storage, rubbish: UnusedFiles) -> None:
    """Remove these files. May be interrupted anywhere. Raises OSError if the storage refuses."""
    for path in rubbish.replaced:
        tables.remove(path)
        tables.remove(_checksum(path))
    for folder in (*rubbish.attempts, *rubbish.checkpoints):
        tables.remove(folder)
    for batch in {str(PurePosixPath(folder).parent) for folder in rubbish.attempts}:
        if not tables.folders(batch):
            tables.remove(batch)


def require_files(tables: Storage, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return the size in bytes of each file of the tables.

    Raises FileNotFoundError if one is missing.
    """
    there = {file.path: file.size for file in tables.files(DATA)}
    found = live_files(manifests)
    for path in [*(path for paths in found.events.values() for path in paths), *found.segments]:
        if path not in there:
            msg = f"{tables.uri(path)} is missing, which a manifest names"
            raise FileNotFoundError(msg)
    return there


def _folders(files: Iterable[File]) -> dict[str, _Folder]:
    found: dict[str, _Folder] = {}
    for file in files:
        name = "/".join(PurePosixPath(file.path).parts[:_ATTEMPT])
        found.setdefault(name, _Folder()).add(file)
    return found


def _checkpoints(tables: Storage, now: float) -> Iterable[str]:
    """Yield stream checkpoints that are not the newest and have not been written to for long."""
    numbers = sorted(int(name) for name in tables.folders(CHECKPOINTS) if name.isdecimal())
    for number in numbers[:-1]:
        folder = f"{CHECKPOINTS}/{number:06d}"
        newest = max((file.modified for file in tables.files(folder)), default=0.0)
        if now - newest > ABANDONED_S:
            yield folder


def _checksum(path: str) -> str:
    """Return the checksum file that Hadoop keeps beside a file on a local disk."""
    at = PurePosixPath(path)
    return str(at.with_name(f".{at.name}.crc"))
