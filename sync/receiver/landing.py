"""The landing: where every segment comes in, over the network or on a stick.

A segment appears whole and durable under the name of its verified header, or not at all; what is
there is never replaced. Knows no HTTP and no enrolment. All calls block: call them in a thread.
Several threads and several processes may land at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from sync.common.durable_files import PRIVATE_FILE, fsync_chain, make_folders
from sync.common.fleet_folder import SUFFIX, FleetFolder, segment_path
from sync.receiver.incoming_files import PART_SUFFIX, IncomingFile, remove_abandoned
from sync.segment import Identity, digest_of, read_header

DIGEST_BYTES: Final = 32
MAX_SYNCED: Final = 1_024
"""Segments that a `Landing` knows to be durable without another fsync, less than 1 KiB each: a
gateway asks for the last of each of its three lanes, and so this is for 300 of them."""

_MOVES: Final = 8
"""Looks for a file that an ingest moves meanwhile: it moves once, so two are enough."""


class Outcome(Enum):
    """What became of bytes that were offered to the landing."""

    NEW = "new"
    SAME = "same"
    OTHER = "other"


class LandingResult(NamedTuple):
    """`outcome` for the segment `identity`, whose offered bytes have `digest` (32 bytes).

    `aside` is where contradicting bytes are kept, None when they are not (the bound is reached).
    """

    outcome: Outcome
    identity: Identity
    digest: bytes
    aside: Path | None = None


class StoredSegment(NamedTuple):
    """What is there of a segment: its digest (32 bytes) and its size in bytes."""

    digest: bytes
    size: int


class VerifiedSegment(NamedTuple):
    """What a body says it is, its checksum and header having been checked."""

    identity: Identity
    digest: bytes


@dataclass(frozen=True, slots=True)
class AsideLimits:
    """How much of a gateway's contradicting bodies is kept: `files`, and `size` in bytes."""

    files: int
    size: int


class Landing:
    """Lands segments in `folder`, with temporaries of its own kind (`serve`, `import`).

    Raises OSError from every method when the disk refuses; then nothing half-written is left.
    """

    def __init__(self, folder: FleetFolder, kind: str, bound: AsideLimits) -> None:
        self._folder = folder
        self._temporaries = folder.incoming / kind
        self._bound = bound
        self._sync_once = functools.lru_cache(MAX_SYNCED)(_sync)

    def clean(self) -> int:
        """Make the folder of temporaries, empty it of what dead processes left, and count that."""
        make_folders(self._folder.root, self._temporaries)
        return sum(map(remove_abandoned, self._temporaries.glob(f"*{PART_SUFFIX}")))

    def receive(self) -> IncomingFile:
        """Open a temporary for a body."""
        return IncomingFile(self._new_name())

    def adopt(self, incoming: IncomingFile) -> None:
        """Make a body that lies elsewhere a temporary of this kind, which is never gone on with.

        What was linked into the landing must not be reached by the name that it was sent under.
        """
        if incoming.kept:
            incoming.kept = False
            incoming.rename(self._new_name())

    def _new_name(self) -> Path:
        return self._temporaries / f"{secrets.token_hex(16)}{PART_SUFFIX}"

    def verify(self, incoming: IncomingFile) -> VerifiedSegment:
        """Check magic, checksum and header of a body. Raises SegmentError that says what is wrong.

        The columns are not decoded here: the checksum proves that they are what was sealed, and
        the ingest quarantines a segment whose columns it cannot read.
        """
        data = incoming.read()
        return VerifiedSegment(read_header(data).identity, digest_of(data))

    def land(self, verified: VerifiedSegment, incoming: IncomingFile) -> LandingResult:
        """Give `incoming` its final name, unless a segment of that name is here or in the archive.

        When this returns, the segment that is there is durable, whoever landed it.
        """
        relative = segment_path(verified.identity)
        incoming.sync()
        for _ in range(_MOVES):
            found = self._link(relative.as_posix(), incoming)
            if found is Outcome.OTHER:
                return LandingResult(found, *verified, self._keep_aside(verified, incoming))
            if found is not None:
                return LandingResult(found, *verified)
        msg = f"{relative} keeps moving between landing and archive"
        raise OSError(msg)

    def find(self, identity: Identity) -> StoredSegment | None:
        """A segment in landing or archive, made durable, once for all who ask; None if absent.

        Raises SegmentError when `identity` is none.
        """
        relative = segment_path(identity).as_posix()
        for root in (self._folder.landing, self._folder.archive, self._folder.landing):
            path = root / relative
            with contextlib.suppress(FileNotFoundError):
                digest, status = _last_bytes(path), path.stat()
                self._sync_once(root, path, (status.st_ino, status.st_ctime_ns))
                return StoredSegment(digest, status.st_size)
        return None

    def _link(self, relative: str, incoming: IncomingFile) -> Outcome | None:
        """One attempt; None when what was there moved to the archive in between.

        The archive is looked at after the link was tried: what an ingest moved away before the
        link is there by then, and what is in the archive rules. An ingest may even be moving what
        was just linked: that is its to finish.
        """
        path = self._folder.landing / relative
        archived = self._folder.archive / relative
        make_folders(self._folder.landing, path.parent)
        made = _try_link(incoming.path, path)
        if archived.exists():
            ours = made and archived.samefile(incoming.path)
            if made and not ours:
                path.unlink(missing_ok=True)
            fsync_chain(self._folder.archive, archived.parent)
            return Outcome.NEW if ours else _compare(archived, incoming)
        if made:
            fsync_chain(self._folder.landing, path.parent)
            return Outcome.NEW
        try:
            found = _compare(path, incoming)
            fsync_chain(self._folder.landing, path.parent)
        except FileNotFoundError:
            return None
        return found

    def _keep_aside(self, verified: VerifiedSegment, incoming: IncomingFile) -> Path | None:
        """Keep a contradicting body, once, within the gateway's bound; None when it is not kept."""
        relative = segment_path(verified.identity)
        name = f"{relative.stem}.{incoming.sha256().hex()[:16]}{SUFFIX}"
        path = self._folder.aside / relative.with_name(name)
        with _locked(self._folder.incoming / "aside.lock"):
            if path.exists():
                return path
            if not self._aside_has_room(verified.identity.gateway, incoming.size):
                return None
            make_folders(self._folder.aside, path.parent)
            _try_link(incoming.path, path)
            fsync_chain(self._folder.aside, path.parent)
        return path

    def _aside_has_room(self, gateway: str, size: int) -> bool:
        sizes = [path.stat().st_size for path in (self._folder.aside / gateway).rglob(f"*{SUFFIX}")]
        return len(sizes) < self._bound.files and sum(sizes) + size <= self._bound.size


def _sync(root: Path, path: Path, appeared: tuple[int, int]) -> None:
    """Make the name `path` below `root` durable.

    `appeared` is the file's inode and the time of its last change, in ns, for whoever remembers
    this call: each link and each rename sets that time, so that what appears anew is not known.
    """
    del appeared
    fsync_chain(root, path.parent)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for a lock that all threads and processes hold for moments only, and hold it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_link(source: Path, path: Path) -> bool:
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    return True


def _compare(path: Path, incoming: IncomingFile) -> Outcome:
    """Compare whole files, not digests: a file that the disk spoiled is another one."""
    if path.stat().st_size != incoming.size:
        return Outcome.OTHER
    with path.open("rb") as file:
        there = hashlib.file_digest(file, "sha256").digest()
    return Outcome.SAME if there == incoming.sha256() else Outcome.OTHER


def _last_bytes(path: Path) -> bytes:
    """Read the digest that ends a segment; what the disk cut shorter than one ends in zeros."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - DIGEST_BYTES))
        return file.read(DIGEST_BYTES).ljust(DIGEST_BYTES, b"\0")
