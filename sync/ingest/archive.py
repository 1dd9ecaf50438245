"""Move ingested segments out of the landing, so that its listings stay short.

Accepted segments and duplicates go to the archive, all other files to the quarantine. Every
operation may be interrupted anywhere and repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from sync.common.fleet_folder import archive_path
from sync.segment import SUFFIX
from sync.storage.locations import ARCHIVE, ASIDE, LANDING, QUARANTINE
from sync.storage.storage import File, Storage

_ARCHIVED: Final = ("accepted", "duplicate")

_NAME_DIGITS: Final = 16
"""Number of digits of a file's SHA-256 in its name in the quarantine: 64 bits identify the file."""

THREADS: Final = 8
"""Number of concurrent moves: each waits for an fsync or an object store."""


class IngestedFile(NamedTuple):
    """A file that was read: its path below the fleet folder, result, and SHA-256 in hexadecimal."""

    path: str
    fate: str
    sha256: str


def waiting_files(segments: Storage) -> dict[str, File]:
    """Return the files that wait for the ingest, in the landing or set aside, by path."""
    return {
        file.path: file for folder in (LANDING, ASIDE) for file in segments.files(folder, SUFFIX)
    }


def archive_files(segments: Storage, files: Iterable[IngestedFile]) -> None:
    """Move each file to the folder for its result; skip files that do not exist.

    Files may have been moved already, or the receiver may have deleted a copy of an archived one.
    The files of one lane are moved together and in order, because their names may collide; lanes
    are moved concurrently. Raises OSError if a move fails; the next call moves the rest.
    """
    lanes: defaultdict[PurePosixPath, list[IngestedFile]] = defaultdict(list)
    for file in files:
        lanes[_relative(file).parent].append(file)
    with ThreadPoolExecutor(THREADS, "archive") as pool:
        for _ in pool.map(partial(_archive_lane, segments), lanes.values()):
            pass


def _archive_lane(segments: Storage, files: Iterable[IngestedFile]) -> None:
    """Move the files so that the receiver finds each in the landing or the archive at any time."""
    left = {file.path: _targets(file) for file in files}
    while left:
        stay = segments.move({path: targets.pop(0) for path, targets in left.items()})
        left = {path: left[path] for path in stay}
        for path, targets in left.items():
            if not targets:
                msg = f"cannot move {segments.uri(path)}: different files exist at its targets"
                raise OSError(msg)


def _targets(file: IngestedFile) -> list[str]:
    """Return the paths to which a file can be moved, best first.

    A name in the quarantine contains digits of the file's SHA-256; the name of a file that the
    receiver set aside already has them.
    """
    relative = _relative(file)
    digits = f".{file.sha256[:_NAME_DIGITS]}"
    name = f"{relative.stem.removesuffix(digits)}{digits}{relative.suffix}"
    archived = [f"{ARCHIVE}/{archive_path(relative)}"] if file.fate in _ARCHIVED else []
    return [*archived, f"{QUARANTINE}/{relative.with_name(name)}"]


def _relative(file: IngestedFile) -> PurePosixPath:
    """Return the path without the folder in which the file waits."""
    return PurePosixPath(*PurePosixPath(file.path).parts[1:])
