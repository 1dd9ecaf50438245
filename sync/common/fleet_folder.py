"""Where things lie at the centre: the layout of the fleet folder, and the names of segments in it.

Names and folders only: reads and writes no segment, manifest or record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sync.common.durable_files import PRIVATE_FILE, PRIVATE_FOLDER, fsync_folder
from sync.common.errors import FleetError
from sync.segment import (
    Identity,
    SegmentError,
    check_identity,
    identity_path,
    is_gateway,
    parse_identity,
)

FLEET_DIR_VARIABLE: Final = "FIELDPOST_FLEET_DIR"
"""Names the fleet folder where `--dir` does not."""

LOCK_WAIT_S: Final = 10.0
"""Seconds a command waits for another that changes the fleet folder; such changes take moments."""

LOCK_POLL_S: Final = 0.05
"""Seconds between two looks at the lock: short against what a person notices."""

GATEWAY_LENGTH: Final = 240
"""Characters of a gateway's name: a file's name has 255, and its record's needs an ending."""

SUFFIX: Final = ".seg"


def segment_path(identity: Identity) -> PurePosixPath:
    """Where a segment lies below `landing/` and `archive/`: `GATEWAY/EPOCH/LANE/FIRST-LAST.seg`.

    Raises SegmentError when a part is not what it may be, so that no name leaves its folder.
    """
    check_identity(identity)
    return PurePosixPath(identity_path(identity) + SUFFIX)


def parse_segment_path(path: PurePosixPath) -> Identity:
    """Read a segment's identity from its path below `landing/`; the inverse of `segment_path`.

    Raises SegmentError when the path is none.
    """
    if path.suffix != SUFFIX:
        raise SegmentError("identity", f"the name does not end in {SUFFIX}")
    return parse_identity(path.as_posix().removesuffix(SUFFIX))


def is_enrollable(gateway: str) -> bool:
    """Tell whether `gateway` can be enrolled: a lower-case domain of at most 240 characters."""
    return len(gateway) <= GATEWAY_LENGTH and is_gateway(gateway)


@dataclass(frozen=True, slots=True)
class FleetFolder:
    """The fleet folder at `root`. Only the owner can look into it.

    `incoming` holds what is still being received, in the landing's file system; `aside` holds
    bodies that contradict a segment that landed before; `archive` holds, under the same relative
    path, segments that are in manifests.
    """

    root: Path

    @property
    def pki(self) -> Path:
        """The centre's certificate authority and its server certificate."""
        return self.root / "pki"

    @property
    def gateways(self) -> Path:
        """One enrolment record for each gateway."""
        return self.root / "gateways"

    @property
    def incoming(self) -> Path:
        """Temporaries, a folder for each kind of process that lands segments."""
        return self.root / "incoming"

    @property
    def landing(self) -> Path:
        """Segments that are acknowledged and not yet in a manifest."""
        return self.root / "landing"

    @property
    def aside(self) -> Path:
        """Bodies that were refused because other bytes have their name."""
        return self.root / "aside"

    @property
    def archive(self) -> Path:
        """Segments that are in manifests."""
        return self.root / "archive"

    @property
    def tables(self) -> Path:
        """Manifests, Parquet files and checkpoints."""
        return self.root / "tables"

    @property
    def quarantine(self) -> Path:
        """Segments that the ingest could not take, with the reason."""
        return self.root / "quarantine"

    def create(self) -> None:
        """Make what is missing of the folder. Raises FleetError when that cannot be done."""
        try:
            self.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            for folder in self._parts():
                folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            fsync_folder(self.root)
            fsync_folder(self.root.parent)
        except OSError as error:
            msg = f"cannot make the fleet folder {self.root}: {error.strerror}"
            raise FleetError(msg) from error

    def require(self) -> None:
        """Raise FleetError unless this is a fleet folder that lies in one file system, and ours."""
        if self.root.is_dir() and not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            msg = f"{self.root} may not be read and written: run this as the user whose it is"
            raise FleetError(f"{msg}, {_owner(self.root)}")
        for folder in self._parts():
            if not folder.is_dir():
                msg = f"{self.root} is no fleet folder; `fieldpost-fleet gateway add` makes one"
                raise FleetError(msg)
        joined = (self.incoming, self.landing, self.aside, self.archive, self.quarantine)
        if len({folder.stat().st_dev for folder in joined}) > 1:
            names = ", ".join(folder.name for folder in joined)
            msg = f"{names} in {self.root} are not in one file system"
            raise FleetError(msg)

    def _parts(self) -> tuple[Path, ...]:
        return (
            self.pki,
            self.gateways,
            self.incoming,
            self.landing,
            self.aside,
            self.archive,
            self.tables,
            self.quarantine,
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, as each command does that changes enrolments or keys.

        Waits at most 10 s for another such command, then raises FleetError. Dies with its process.
        """
        descriptor = os.open(
            self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE
        )
        try:
            _lock(descriptor, self.root)
            yield
        finally:
            os.close(descriptor)


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except KeyError:  # a number alone, of a machine that knew its name
        return str(folder.stat().st_uid)


def _lock(descriptor: int, root: Path) -> None:
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                msg = f"another command is changing {root}; try again"
                raise FleetError(msg) from None
            time.sleep(LOCK_POLL_S)
        else:
            return
