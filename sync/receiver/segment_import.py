"""Takes segments from folders and sticks into the landing, as a gateway exported them.

What a file is called and where it lies does not matter: its own header names the segment. Files
are read and stay as they are; what landed once lands no second time, so that an import that was cut
off is run again. Follows no symbolic link. Prints nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from sync.receiver.landing import Landing, LandingResult, Outcome
from sync.segment import MAX_FILE, SegmentError

TEMPORARIES: Final = "import"

MAX_DEPTH: Final = 32
"""Folders below each other that are looked into: an export has four."""

_SUFFIX: Final = ".seg"


class ImportOutcome(Enum):
    """What became of a file that was offered."""

    NEW = "new"
    SAME = "same"
    OTHER = "other"
    BAD = "bad"


class ImportResult(NamedTuple):
    """A file and its fate; `text` says of a bad one why, of another one what became of it."""

    path: Path
    fate: ImportOutcome
    reason: str = ""
    text: str = ""


def segments_below(path: Path) -> Iterator[Path]:
    """Give each file that is called a segment at or below `path`, folder by folder, in order.

    Whether it is one is not looked at. What is a link, or neither file nor folder, is passed over
    below `path`; `path` itself may be a link to a folder. A folder that cannot be looked into, or
    is too deep, is given itself: what is in it is not taken, and that is told.
    """
    if path.is_dir():
        yield from _below(path, MAX_DEPTH)
    else:
        yield path


def _below(folder: Path, depth: int) -> Iterator[Path]:
    found = _listed(folder) if depth > 0 else None
    if found is None:
        yield folder
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder / entry.name, depth - 1)
        elif entry.is_file(follow_symlinks=False) and entry.name.lower().endswith(_SUFFIX):
            yield folder / entry.name


def _listed(folder: Path) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None


class Importer:
    """Lands files in `landing`, of the gateways that `welcome` says yes to.

    `require_room` is asked for the bytes of each before it is written.
    """

    def __init__(
        self,
        landing: Landing,
        welcome: Callable[[str], bool],
        require_room: Callable[[int], None],
    ) -> None:
        self._landing = landing
        self._welcome = welcome
        self._require_room = require_room

    def take(self, path: Path) -> ImportResult:
        """Land one file. Raises OSError when the landing cannot be written."""
        try:
            data = _read(path)
        except SegmentError as error:
            return ImportResult(path, ImportOutcome.BAD, error.reason, error.text)
        except OSError as error:
            return ImportResult(path, ImportOutcome.BAD, "read", error.strerror or str(error))
        self._require_room(len(data))
        with self._landing.receive() as incoming:
            incoming.write(data)
            try:
                verified = self._landing.verify(incoming)
            except SegmentError as error:
                return ImportResult(path, ImportOutcome.BAD, error.reason, error.text)
            gateway = verified.identity.gateway
            if not self._welcome(gateway):
                return ImportResult(
                    path, ImportOutcome.BAD, "gateway", f"{gateway} is not enrolled"
                )
            return _told(path, self._landing.land(verified, incoming))


def _told(path: Path, landed: LandingResult) -> ImportResult:
    if landed.outcome is not Outcome.OTHER:
        return ImportResult(path, ImportOutcome(landed.outcome.value))
    text = "not kept: too many are" if landed.aside is None else f"kept as {landed.aside}"
    return ImportResult(
        path, ImportOutcome.OTHER, "conflict", f"other bytes have that name; these are {text}"
    )


def _read(path: Path) -> bytes:
    """Read a file that is at most as large as a segment can be; waits for no pipe or device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file, nor a folder that can be looked into")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise SegmentError("size", f"it is larger than {MAX_FILE} bytes")
    return data
