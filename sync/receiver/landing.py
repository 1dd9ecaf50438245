"""The landing: durable storage of received segments, until the ingest moves them into the tables.

A segment appears whole and durable under the name in its verified header, or not at all, and is
never replaced. All calls block: run them in a thread. Several threads and processes may land
segments at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from sync.common.fleet_folder import ARCHIVE_PREFIX, archive_path, segment_path
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
from sync.storage.locations import ARCHIVE, ASIDE, LANDING
from sync.storage.storage import Storage
from sync.uplink.interfaces import HighWatermark

DIGEST_BYTES: Final = 32

_MAX_MOVES: Final = 8
"""Number of attempts to land a segment. One fails if the ingest moves the stored segment of the
same name meanwhile, and not to the archive. It moves a segment once, so two attempts are enough."""

_FILE_NAME: Final = re.compile(
    rf"({ARCHIVE_PREFIX}\d{{19}}\.)?([1-9]\d{{0,18}})-([1-9]\d{{0,18}}){re.escape(SUFFIX)}",
    re.ASCII,
)


class Outcome(Enum):
    """The outcome for a segment: new, a duplicate, or in conflict with a stored segment.

    A file that is imported may also be refused: `BAD`.
    """

    NEW = "new"
    SAME = "same"
    OTHER = "other"
    BAD = "bad"


class LandingResult(NamedTuple):
    """The outcome of landing a segment.

    `aside` is the URI to which a conflicting segment was set aside; None if the limits prevented
    it, or if there is no conflict.
    """

    outcome: Outcome
    aside: str | None = None


class VerifiedSegment(NamedTuple):
    """A segment (`data`) whose checksum and header are valid, with its identity."""

    identity: Identity
    data: bytes

    @property
    def digest(self) -> bytes:
        """The segment's digest (32 bytes)."""
        return digest_of(self.data)


def verify(data: bytes) -> VerifiedSegment:
    """Check magic, checksum and header of a segment. Raises SegmentError.

    The columns are not decoded: the checksum proves that they are as sealed, and the ingest
    quarantines a segment whose columns it cannot read.
    """
    return VerifiedSegment(read_header(data).identity, data)


class Landing:
    """Lands segments in a storage. Every method raises OSError when the storage fails."""

    def __init__(self, segments: Storage, limits: ReceiverLimits) -> None:
        self._segments = segments
        self._limits = limits

    def clean(self) -> int:
        """Remove files that dead processes have not completed; return how many."""
        return sum(map(self._segments.clean, (LANDING, ASIDE)))

    def land(self, segment: VerifiedSegment, *, limited: bool = True) -> LandingResult:
        """Store a segment, unless landing or archive has a segment of that name.

        The stored segment is durable when this returns, even if another process landed it. The
        archive is read after the segment was created, because the ingest may have moved an earlier
        one of this name there, which takes precedence. A segment in conflict is set aside; if not
        `limited`, even beyond the gateway's limits.
        """
        relative = segment_path(segment.identity)
        for _ in range(_MAX_MOVES):
            outcome = self._create(relative, segment.data)
            if outcome is Outcome.OTHER:
                return LandingResult(outcome, self._keep_aside(relative, segment, limited))
            if outcome is not None:
                return LandingResult(outcome)
        raise OSError(f"{relative} was moved out of the landing {_MAX_MOVES} times")

    def _create(self, relative: PurePosixPath, data: bytes) -> Outcome | None:
        """Try once to create a segment; return None if an existing one was moved away meanwhile."""
        path, archived = f"{LANDING}/{relative}", f"{ARCHIVE}/{archive_path(relative)}"
        outcome = None
        try:
            outcome = Outcome.NEW if self._segments.create(path, data) else Outcome.SAME
        except FileExistsError:
            outcome = Outcome.OTHER
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileNotFoundError):
            is_same = self._segments.read(archived) == data
            self._segments.make_durable([archived])
            if outcome in (Outcome.NEW, Outcome.SAME):
                self._segments.remove([path])
            return Outcome.SAME if is_same else Outcome.OTHER
        return outcome

    def find(self, identity: Identity) -> bytes | None:
        """Return the digest of a durable segment in landing or archive; None if there is none.

        Raises SegmentError when `identity` is not valid.
        """
        relative = segment_path(identity)
        return self._digest(f"{LANDING}/{relative}", f"{ARCHIVE}/{archive_path(relative)}")

    def high_watermarks(self, gateway: str, epoch: str) -> dict[str, HighWatermark]:
        """Return the high watermark of each lane that has a durable segment in landing or archive.

        Of two segments that end with the same number (a fork), the longer one counts. Raises
        SegmentError when `gateway` or `epoch` is not valid.
        """
        if not is_gateway(gateway) or not is_epoch(epoch):
            raise SegmentError("identity", "the gateway or the epoch in the path is not valid")
        found = {}
        for lane in LANES:
            last, _, path = max(self._newest(f"{gateway}/{epoch}/{lane}"), default=(0, 0, ""))
            if last:
                relative = PurePosixPath(path.partition("/")[2])
                digest = self._digest(path, f"{ARCHIVE}/{archive_path(relative)}")
                if digest is None:
                    raise OSError(f"{self._segments.uri(path)} was removed meanwhile")
                found[lane] = HighWatermark(last, digest)
        return found

    def _newest(self, lane: str) -> Iterator[tuple[int, int, str]]:
        """Yield (last number, -first number, path) of segments, the newest of the lane among them.

        The archive is listed last, because segments move there. Its listing ends with the first
        name that has the prefix of `archive_path`: all that follow are older.
        """
        for place in (LANDING, ARCHIVE):
            for file in self._segments.files(f"{place}/{lane}", SUFFIX):
                name = _FILE_NAME.fullmatch(file.path.rpartition("/")[2])
                if name:
                    first, last = int(name[2]), int(name[3])
                    if first <= last < first + MAX_EVENTS:
                        yield last, -first, file.path
                    if name[1]:
                        break

    def _digest(self, *paths: str) -> bytes | None:
        """Return the digest of the first file that exists, after making it durable.

        It is padded with zeros if the disk truncated the file.
        """
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._segments.make_durable([path])
                return self._segments.read(path, -DIGEST_BYTES).ljust(DIGEST_BYTES, b"\0")
        return None

    def _keep_aside(
        self, relative: PurePosixPath, segment: VerifiedSegment, limited: bool
    ) -> str | None:
        """Keep a conflicting segment once; return its URI, or None if the limits prevent it.

        Concurrent uploads can exceed the limits by one segment each.
        """
        name = f"{relative.stem}.{hashlib.sha256(segment.data).hexdigest()[:16]}{SUFFIX}"
        path = f"{ASIDE}/{relative.with_name(name)}"
        files = self._segments.files(f"{ASIDE}/{segment.identity.gateway}", SUFFIX)
        kept = {file.path: file.size for file in files}
        if limited and path not in kept:
            size = sum(kept.values()) + len(segment.data)
            if len(kept) >= self._limits.aside_files or size > self._limits.aside_bytes:
                return None
        self._segments.create(path, segment.data)
        return self._segments.uri(path)
