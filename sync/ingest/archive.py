"""Moves segments that are in manifests out of the landing, so that its listings stay short.

Accepted ones and duplicates go to the same relative path in the archive, all others to the
quarantine. Then removes what batches that were cut off had written to the tables. May be cut off
anywhere and run again. Decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from sync.tables.locations import ARCHIVE, ASIDE, DATA, LANDING, QUARANTINE
from sync.tables.manifest import Manifest
from sync.tables.storage import File, Storage

_KEPT: Final = ("accepted", "duplicate")

_SEGMENTS: Final = ".seg"

_TOLD: Final = 16
"""Hexadecimal digits of a file's SHA-256 in its name in the quarantine: 64 bits tell them apart."""


THREADS: Final = 8
"""Moves at once: each waits for a disk's fsync or for an object store, and they wait together."""


class IngestedFile(NamedTuple):
    """A file that was read: its path below the fleet folder, its fate, and its SHA-256 in hex."""

    path: str
    fate: str
    sha256: str


def waiting_files(segments: Storage) -> dict[str, File]:
    """Give the segments that wait to be read, by their paths: what Spark's file source sees too."""
    return {
        file.path: file for folder in (LANDING, ASIDE) for file in segments.files(folder, _SEGMENTS)
    }


def archive_files(segments: Storage, files: Iterable[IngestedFile]) -> None:
    """Move each of the files to where its fate puts it; what is moved already is passed over.

    So is what the receiver takes back meanwhile: it does so with what the archive holds already.
    What is of one lane is moved together and in order, as names may meet there; lanes are moved
    beside each other. Raises OSError when the storage refuses; then the rest is moved by the next
    call.
    """
    lanes: defaultdict[PurePosixPath, list[IngestedFile]] = defaultdict(list)
    for file in files:
        lanes[_relative(file).parent].append(file)
    with ThreadPoolExecutor(THREADS, "filing") as pool:
        for _ in pool.map(partial(_file_lane, segments), lanes.values()):
            pass


def _file_lane(segments: Storage, files: Iterable[IngestedFile]) -> None:
    """Move: the receiver, which looks at landing and archive, always finds the segments."""
    left = {file.path: _targets(file) for file in files}
    while left:
        stay = segments.move({path: targets.pop(0) for path, targets in left.items()})
        left = {path: left[path] for path in stay}
        for path, targets in left.items():
            if not targets:
                msg = f"{segments.uri(path)} cannot be moved: both of its places hold other bytes"
                raise OSError(msg)


def remove_other_attempts(tables: Storage, manifest: Manifest) -> None:
    """Remove what other tries at the manifest's batch have left: no reader ever sees it.

    Call it under the lease. What belongs to a batch that has no manifest stays: it may be that the
    manifest is what was lost. Raises OSError when the storage refuses.
    """
    batch = f"{DATA}/{manifest.query}/{manifest.batch}"
    for attempt in tables.folders(batch):
        if attempt != manifest.attempt:
            tables.remove(f"{batch}/{attempt}")


def _targets(file: IngestedFile) -> list[str]:
    """Give the places for a file, best first: a name in the quarantine tells its content too.

    That of a file that lay aside does already.
    """
    relative = _relative(file)
    told = f".{file.sha256[:_TOLD]}"
    name = f"{relative.stem.removesuffix(told)}{told}{relative.suffix}"
    archived = [f"{ARCHIVE}/{relative}"] if file.fate in _KEPT else []
    return [*archived, f"{QUARANTINE}/{relative.with_name(name)}"]


def _relative(file: IngestedFile) -> PurePosixPath:
    """Cut off the folder that the file waits in: what is left is the same in each place."""
    return PurePosixPath(*PurePosixPath(file.path).parts[1:])
