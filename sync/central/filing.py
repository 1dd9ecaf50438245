"""Moves segments that are in manifests out of the landing, so that its listings stay short.

Accepted ones and duplicates go to the same relative path in the archive, all others to the
quarantine. Then removes what batches that were cut off had written to the tables. Works on a local
disk; may be cut off anywhere and run again. Decides nothing.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from sync.central.durable import fsync_folder, make_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sync.central.folders import FleetFolder
    from sync.central.manifest import Manifest

DATA: Final = "data"
"""The tables' own files: `data/QUERY/BATCH/ATTEMPT` below the tables' folder."""

_KEPT: Final = ("accepted", "duplicate")

_SEGMENTS: Final = "*.seg"


class Read(NamedTuple):
    """A file that was read: its path below the fleet folder, its fate, and its SHA-256 in hex."""

    path: str
    fate: str
    sha256: str


def waiting(folder: FleetFolder) -> set[str]:
    """Name the segments that wait to be read, by their paths below the fleet folder."""
    return {
        path.relative_to(folder.root).as_posix()
        for root in (folder.landing, folder.aside)
        for path in _visible(root)
    }


def empty(folder: FleetFolder) -> dict[str, float]:
    """Tell of the waiting files that hold nothing when they arrived, in seconds since 1970.

    Spark's file source passes over them without a word.
    """
    found = {}
    for path in waiting(folder):
        status = (folder.root / path).stat()
        if status.st_size == 0:
            found[path] = status.st_mtime
    return found


def _visible(root: Path) -> Iterator[Path]:
    """Give what Spark's file source sees too: it passes over names that begin with `.` or `_`."""
    for path in root.rglob(_SEGMENTS):
        if not any(part.startswith((".", "_")) for part in path.relative_to(root).parts):
            yield path


def file_away(folder: FleetFolder, files: Iterable[Read]) -> None:
    """Move each of the files to where its fate puts it; what is moved already is passed over.

    So is what the receiver takes back meanwhile: it does so with what the archive holds already.
    Raises OSError when the disk refuses; then the rest is moved by the next call.
    """
    for file in files:
        source = folder.root / file.path
        try:
            if source.exists():
                _move(folder, source, file)
        except FileNotFoundError:
            if source.exists():
                raise


def clear_attempts(folder: FleetFolder, manifest: Manifest) -> None:
    """Remove what other tries at the manifest's batch have left: no reader ever sees it.

    Call it under the lease. What belongs to a batch that has no manifest stays: it may be that the
    manifest is what was lost. Raises OSError when the disk refuses.
    """
    batch = folder.tables / DATA / manifest.query / str(manifest.batch)
    for attempt in batch.glob("*"):
        if attempt.name != manifest.attempt:
            shutil.rmtree(attempt)


def _move(folder: FleetFolder, source: Path, file: Read) -> None:
    """Link, then unlink: the receiver, which looks at both places, always finds the segment."""
    for root, target in _targets(folder, file):
        make_folders(root, target.parent)
        if _link(source, target):
            fsync_folder(target.parent)
            source.unlink(missing_ok=True)
            fsync_folder(source.parent)
            return
    msg = f"{source} cannot be moved: both of its places hold other bytes"
    raise OSError(msg)


def _targets(folder: FleetFolder, file: Read) -> Iterator[tuple[Path, Path]]:
    """Give the places for a file, best first: a name in the quarantine tells its content too."""
    relative = PurePosixPath(*PurePosixPath(file.path).parts[1:])
    if file.fate in _KEPT:
        yield folder.archive, folder.archive / relative
    name = relative.with_name(f"{relative.stem}.{file.sha256[:16]}{relative.suffix}")
    yield folder.quarantine, folder.quarantine / name


def _link(source: Path, target: Path) -> bool:
    """Link `source` to `target`; True when `target` then holds these bytes, whoever put them."""
    try:
        os.link(source, target)
    except FileExistsError:
        return filecmp.cmp(source, target, shallow=False)
    return True
