"""The landing: durable storage of received segments, until the ingest moves them into the tables.

A segment appears whole and durable under the name in its verified header, or not at all, and is
never replaced. All calls block: run them in a thread. Several threads and processes may land
segments at once.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import functools
import os
import re
import secrets
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from sync.common.durable_files import LOCK_WAIT, fsync_chain, locked, make_folders
from sync.common.fleet_folder import FleetFolder, segment_path
from sync.receiver.incoming_files import PART_SUFFIX, IncomingFile, remove_abandoned
from sync.receiver.limits import ReceiverLimits
from sync.segment import (
    LANES,
    MAX_EVENTS,
    SUFFIX,
    Identity,
    SegmentError,
    digest_of,
    is_epoch,
    is_gateway,
    read_header,
)
from sync.uplink.interfaces import HighWatermark

DIGEST_BYTES: Final = 32

MAX_SYNCED: Final = 1_024
"""Maximum number of segments remembered as durable, so that a query for one needs no fsync. Each
takes less than 1 KiB. A gateway queries the last of three lanes: it is enough for 300 gateways."""

_MAX_MOVES: Final = 8
"""Number of attempts to land a segment. One fails if the ingest moves the stored segment of the
same name meanwhile. It moves a segment once, so two attempts are enough."""

_FILE_NAME: Final = re.compile(
    r"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})" + re.escape(SUFFIX), re.ASCII
)


class Outcome(Enum):
    """The outcome for a segment: new, a duplicate, or in conflict with a stored segment."""

    NEW = "new"
    SAME = "same"
    OTHER = "other"


class LandingResult(NamedTuple):
    """The outcome of landing a segment, and the segment's digest (32 bytes).

    `aside` is the path to which a conflicting segment was set aside; None if the limits prevented
    it, or if there is no conflict.
    """

    outcome: Outcome
    digest: bytes
    aside: Path | None = None


class StoredSegment(NamedTuple):
    """The digest (32 bytes) and the size in bytes of a segment in landing or archive."""

    digest: bytes
    size: int


class VerifiedSegment(NamedTuple):
    """The identity and the digest of an uploaded segment whose checksum and header are valid."""

    identity: Identity
    digest: bytes


class Landing:
    """Lands segments in `folder`; `kind` names its temporary folder (`serve`, `import`).

    Every method raises OSError when the disk fails; then nothing half-written remains.
    """

    def __init__(self, folder: FleetFolder, kind: str, limits: ReceiverLimits) -> None:
        self._folder = folder
        self._temporaries = folder.incoming / kind
        self._limits = limits
        self._sync_once = functools.lru_cache(MAX_SYNCED)(_sync)

    def clean(self) -> int:
        """Create the temporary folder and remove files of dead processes; return how many."""
        make_folders(self._folder.root, self._temporaries)
        return sum(map(remove_abandoned, self._temporaries.glob(f"*{PART_SUFFIX}")))

    def open_temporary(self) -> IncomingFile:
        """Open a temporary file for an arriving segment."""
        return IncomingFile(self._temporary_path())

    def adopt(self, incoming: IncomingFile) -> None:
        """Move a resumable upload to a temporary path; do nothing with other files.

        It cannot be resumed then: a request that resumed it would write into the landed segment.
        """
        if incoming.kept:
            incoming.kept = False
            incoming.rename(self._temporary_path())

    def _temporary_path(self) -> Path:
        return self._temporaries / f"{secrets.token_hex(16)}{PART_SUFFIX}"

    def verify(self, incoming: IncomingFile) -> VerifiedSegment:
        """Check magic, checksum and header of a body. Raises SegmentError.

        The columns are not decoded: the checksum proves that they are as sealed, and the ingest
        quarantines a segment whose columns it cannot read.
        """
        data = incoming.path.read_bytes()
        return VerifiedSegment(read_header(data).identity, digest_of(data))

    def land(self, verified: VerifiedSegment, incoming: IncomingFile) -> LandingResult:
        """Give `incoming` its final name, unless landing or archive has a segment of that name.

        The stored segment is durable when this returns, even if another process landed it.
        """
        relative = segment_path(verified.identity)
        incoming.sync()
        for _ in range(_MAX_MOVES):
            outcome = self._link(relative.as_posix(), incoming)
            if outcome is Outcome.OTHER:
                aside = self._keep_aside(verified, incoming)
                return LandingResult(outcome, verified.digest, aside)
            if outcome is not None:
                return LandingResult(outcome, verified.digest)
        raise OSError(f"{relative} was moved between landing and archive {_MAX_MOVES} times")

    def find(self, identity: Identity) -> StoredSegment | None:
        """Return a segment in landing or archive after making it durable; None if there is none.

        Raises SegmentError when `identity` is not valid.
        """
        relative = segment_path(identity).as_posix()
        for root in (self._folder.landing, self._folder.archive, self._folder.landing):
            path = root / relative
            with contextlib.suppress(FileNotFoundError):
                digest, status = _read_digest(path), path.stat()
                self._sync_once(root, path, (status.st_ino, status.st_ctime_ns))
                return StoredSegment(digest, status.st_size)
        return None

    def high_watermarks(self, gateway: str, epoch: str) -> dict[str, HighWatermark]:
        """Return the high watermark of each lane that has a durable segment in landing or archive.

        Of two segments that end with the same number (a fork), the longer one counts. Raises
        SegmentError when `gateway` or `epoch` is not valid.
        """
        if not is_gateway(gateway) or not is_epoch(epoch):
            raise SegmentError("identity", "the gateway or the epoch in the path is not valid")
        found = {}
        for lane in LANES:
            newest = self._newest(gateway, epoch, lane)
            stored = None if newest is None else self.find(newest)
            if newest is not None and stored is not None:
                found[lane] = HighWatermark(newest.last_seq, stored.digest)
        return found

    def _newest(self, gateway: str, epoch: str, lane: str) -> Identity | None:
        """Return the last segment of a lane, if any. Read the archive last: segments move there."""
        ranges = (
            (last, -first)
            for root in (self._folder.landing, self._folder.archive)
            for first, last in _ranges(root / gateway / epoch / lane)
        )
        last, first = max(ranges, default=(0, 0))
        return Identity(gateway, epoch, lane, -first, last) if last else None

    def _link(self, relative: str, incoming: IncomingFile) -> Outcome | None:
        """Try once to land; return None if the existing segment moved to the archive meanwhile.

        The archive is checked after the link was tried: if the ingest has moved a segment of this
        name away, so that the link succeeds, that segment is in the archive and takes precedence.
        If it is the one that was just linked, the ingest has made it durable.
        """
        path = self._folder.landing / relative
        archived = self._folder.archive / relative
        make_folders(self._folder.landing, path.parent)
        linked = _try_link(incoming.path, path)
        if archived.exists():
            is_ours = linked and archived.samefile(incoming.path)
            if linked and not is_ours:
                path.unlink(missing_ok=True)
            fsync_chain(self._folder.archive, archived.parent)
            return Outcome.NEW if is_ours else _compare(archived, incoming)
        if linked:
            fsync_chain(self._folder.landing, path.parent)
            return Outcome.NEW
        try:
            outcome = _compare(path, incoming)
            fsync_chain(self._folder.landing, path.parent)
        except FileNotFoundError:
            return None
        return outcome

    def _keep_aside(self, verified: VerifiedSegment, incoming: IncomingFile) -> Path | None:
        """Keep a conflicting segment once, within the gateway's limits; return its path."""
        relative = segment_path(verified.identity)
        name = f"{relative.stem}.{incoming.sha256().hex()[:16]}{SUFFIX}"
        path = self._folder.aside / relative.with_name(name)
        busy = OSError(errno.EBUSY, "other conflicting segments are being set aside")
        with locked(self._folder.incoming / "aside.lock", busy, LOCK_WAIT):
            if path.exists():
                return path
            if not self._has_room_aside(verified.identity.gateway, incoming.size):
                return None
            make_folders(self._folder.aside, path.parent)
            _try_link(incoming.path, path)
            fsync_chain(self._folder.aside, path.parent)
        return path

    def _has_room_aside(self, gateway: str, size: int) -> bool:
        sizes = [path.stat().st_size for path in (self._folder.aside / gateway).rglob(f"*{SUFFIX}")]
        limits = self._limits
        return len(sizes) < limits.aside_files and sum(sizes) + size <= limits.aside_bytes


def _sync(root: Path, path: Path, _file_version: tuple[int, int]) -> None:
    """Make the name `path` below `root` durable.

    `_file_version` (inode and change time in ns) is part of the cache key: every link and rename
    changes it, so that a file that appears anew is synced again.
    """
    fsync_chain(root, path.parent)


def _try_link(source: Path, path: Path) -> bool:
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    return True


def _compare(path: Path, incoming: IncomingFile) -> Outcome:
    """Compare whole files, not digests, so that a file damaged by the disk counts as different."""
    same = filecmp.cmp(path, incoming.path, shallow=False)
    return Outcome.SAME if same else Outcome.OTHER


def _read_digest(path: Path) -> bytes:
    """Read the digest at the end of a segment, padded with zeros if the disk truncated the file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - DIGEST_BYTES))
        return file.read(DIGEST_BYTES).ljust(DIGEST_BYTES, b"\0")


def _ranges(folder: Path) -> Iterator[tuple[int, int]]:
    try:
        with os.scandir(folder) as entries:
            for name in filter(None, (_FILE_NAME.fullmatch(entry.name) for entry in entries)):
                first, last = int(name[1]), int(name[2])
                if first <= last < first + MAX_EVENTS:
                    yield first, last
    except FileNotFoundError:
        return
