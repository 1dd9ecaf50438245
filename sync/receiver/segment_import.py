"""Import exported segments from folders, such as USB sticks, into the landing.

The names of the files do not matter, because a segment's header identifies it. Files are only read
and may be imported again, for example after an interrupted import. Symbolic links are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sync.receiver.landing import Landing, LandingResult, Outcome, verify
from sync.segment import MAX_FILE, SUFFIX, SegmentError

MAX_DEPTH: Final = 32
"""Deepest level of nested folders that is searched. An export has four."""


class ImportResult(NamedTuple):
    """A file and its outcome; `reason` and `text` explain a conflict or a refusal."""

    path: Path
    outcome: Outcome
    reason: str = ""
    text: str = ""


def segments_below(path: Path) -> Iterator[Path]:
    """Yield each file with a segment's suffix at or below `path`, folder by folder, in order.

    Links and special files below `path` are skipped; `path` itself may be a link to a folder. A
    folder that is unreadable or nested too deep is yielded itself, so that it is reported as
    refused.
    """
    if path.is_dir():
        yield from _below(path, MAX_DEPTH)
    else:
        yield path


def _below(folder: Path, depth: int) -> Iterator[Path]:
    entries = _entries(folder) if depth > 0 else None
    if entries is None:
        yield folder
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder / entry.name, depth - 1)
        elif entry.is_file(follow_symlinks=False) and entry.name.lower().endswith(SUFFIX):
            yield folder / entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None


def import_file(
    path: Path,
    landing: Landing,
    is_accepted: Callable[[str], bool],
    require_room: Callable[[int], None],
) -> ImportResult:
    """Copy a file to the landing if it is a segment of a gateway that `is_accepted` accepts.

    `require_room` is called with the size in bytes before the file is written. Raises OSError when
    the landing cannot be written.
    """
    try:
        segment = verify(_read(path))
    except SegmentError as error:
        return ImportResult(path, Outcome.BAD, error.reason, error.text)
    except OSError as error:
        return ImportResult(path, Outcome.BAD, "read", error.strerror or str(error))
    gateway = segment.identity.gateway
    if not is_accepted(gateway):
        text = f"{gateway} is not enrolled, or was revoked"
        return ImportResult(path, Outcome.BAD, "gateway", text)
    require_room(len(segment.data))
    return _result(path, landing.land(segment))


def _result(path: Path, landed: LandingResult) -> ImportResult:
    if landed.outcome is not Outcome.OTHER:
        return ImportResult(path, landed.outcome)
    if landed.aside is None:
        kept = "this file was not kept: the limit of conflicting files is reached"
    else:
        kept = f"this file was kept as {landed.aside}"
    text = f"a different segment with this name exists; {kept}"
    return ImportResult(path, Outcome.OTHER, "conflict", text)


def _read(path: Path) -> bytes:
    """Read a file of at most a segment's size; do not block on pipes or devices."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "neither a regular file nor a readable folder")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise SegmentError("size", f"the file is larger than {MAX_FILE} bytes")
    return data
