"""The layout of the fleet folder, in which the centre stores everything."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Final

from sync.common.durable_files import PRIVATE_FOLDER, fsync_folder, locked
from sync.common.errors import FleetError
from sync.segment import (
    SUFFIX,
    Identity,
    SegmentError,
    check_identity,
    identity_path,
    is_gateway,
    parse_identity,
)
from sync.segment.limits import MAX_SEQ

FLEET_DIR_VARIABLE: Final = "FIELDPOST_FLEET_DIR"
"""Environment variable that names the fleet folder if the option `--dir` is not given."""

LOCK_WAIT_S: Final = 10.0
"""Maximum seconds to wait for another command that changes the fleet folder. Changes take less."""

GATEWAY_LENGTH: Final = 240
"""Maximum characters of a gateway's name. A file name has at most 255, including its suffix."""

ARCHIVE_PREFIX: Final = "r"
"""First character of a segment's name in the archive. It sorts after the digits with which names
began up to version 0.2.0."""


def segment_path(identity: Identity) -> PurePosixPath:
    """Return the path of a segment below `landing/`: `GATEWAY/EPOCH/LANE/FIRST-LAST.seg`.

    Raises SegmentError for an invalid identity, so that no path can lead outside of the folder.
    """
    check_identity(identity)
    return PurePosixPath(identity_path(identity) + SUFFIX)


def parse_segment_path(path: PurePosixPath) -> Identity:
    """Parse the path of a segment below `landing/`; the inverse of `segment_path`.

    Raises SegmentError when the path is invalid.
    """
    if path.suffix != SUFFIX:
        raise SegmentError("identity", f"the name must end with {SUFFIX}")
    return parse_identity(path.as_posix().removesuffix(SUFFIX))


def archive_path(path: PurePosixPath) -> PurePosixPath:
    """Return the path below `archive/` of the file that is at `path` below `landing/`.

    The name of a segment gets a prefix that counts down from the largest number of an event to the
    segment's last. So a listing begins with a lane's newest segment, however long the archive is.
    """
    try:
        last = parse_segment_path(path).last_seq
    except SegmentError:
        return path
    return path.with_name(f"{ARCHIVE_PREFIX}{MAX_SEQ - last:019}.{path.name}")


def is_enrollable(gateway: str) -> bool:
    """Return whether `gateway` can be enrolled: a lower-case domain of at most 240 characters."""
    return len(gateway) <= GATEWAY_LENGTH and is_gateway(gateway)


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """The fleet folder at `root`, accessible by its owner only.

    `incoming`, `landing`, `aside`, `archive` and `quarantine` must be in one file system, because
    files are moved between them.
    """

    root: Path
    pki: Path = field(init=False)
    """The centre's certificate authority and its server certificate."""
    gateways: Path = field(init=False)
    """The folder of the gateways' enrolment records."""
    incoming: Path = field(init=False)
    """Unfinished files, in folders for uploads, resumable uploads and imports."""
    landing: Path = field(init=False)
    """Segments that were acknowledged to their gateways and are not in the tables yet."""
    aside: Path = field(init=False)
    """Segments that contradict an earlier segment of the same name."""
    archive: Path = field(init=False)
    """Segments that are in the tables, under the paths that `archive_path` returns."""
    tables: Path = field(init=False)
    """The Delta tables, and summaries of them."""
    quarantine: Path = field(init=False)
    """Segments that the ingest refused, with the reason."""

    def __post_init__(self) -> None:
        """Set the paths of the folders below `root`."""
        for part in fields(self)[1:]:
            object.__setattr__(self, part.name, self.root / part.name)

    def create(self) -> None:
        """Create the fleet folder, or its missing folders. Raises FleetError."""
        try:
            self.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            for folder in self._parts():
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            fsync_folder(self.root)
            fsync_folder(self.root.parent)
        except OSError as error:
            msg = f"cannot create the fleet folder {self.root}: {error.strerror}"
            raise FleetError(msg) from error

    def require(self) -> None:
        """Raise FleetError unless `root` is a complete, accessible and writable fleet folder."""
        if self.root.is_dir() and os.statvfs(self.root).f_flag & os.ST_RDONLY:
            raise FleetError(f"{self.root} is on a read-only file system; mount it read-write")
        for folder in (self.root, *self._parts()):
            if not folder.is_dir():
                raise FleetError(
                    f"{self.root} is not a fleet folder; `fieldpost-fleet gateway add` creates one"
                )
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                msg = f"cannot access {folder}; run this command as its owner, {_owner(folder)}"
                raise FleetError(msg)
        joined = (self.incoming, self.landing, self.aside, self.archive, self.quarantine)
        if len({folder.stat().st_dev for folder in joined}) > 1:
            names = ", ".join(folder.name for folder in joined)
            raise FleetError(f"{names} in {self.root} must be in one file system")

    def _parts(self) -> list[Path]:
        return [getattr(self, part.name) for part in fields(self)[1:]]

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of the fleet folder, as required for changing enrolments or keys.

        Waits at most 10 s for another process, then raises FleetError.
        """
        text = f"another command has been changing {self.root} for {LOCK_WAIT_S:g} s; try again"
        busy = FleetError(text)
        return locked(self.root / ".lock", busy, LOCK_WAIT_S)


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:  # the owner has no name on this machine
        return str(folder.stat().st_uid)
