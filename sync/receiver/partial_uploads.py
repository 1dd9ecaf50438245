"""The beginnings of bodies whose transfer was cut, so that their senders can go on with them.

A beginning is known by its gateway and by the SHA-256 of the whole body. It lies in `incoming/`,
is nobody's segment, and lands only once it is whole and its sum is that. Knows no HTTP. All calls
block: call them in a thread. Several receivers may share the folder.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sync.common.durable_files import PRIVATE_FOLDER
from sync.common.fleet_folder import FleetFolder
from sync.receiver.incoming_files import (
    PART_SUFFIX,
    HashCache,
    IncomingFile,
    OffsetError,
    remove_abandoned,
)

PARTIAL_FOLDER = "partial"


class UploadInProgressError(Exception):
    """The beginning is another request's just now, here or in another receiver."""


@dataclass(frozen=True, slots=True)
class PartialUploadLimits:
    """How many beginnings of a gateway are kept, and for how many seconds after the last byte.

    Their bytes are bounded by their number: each is smaller than the largest body. Of the `sums`
    that were written last, of all gateways, the running sum is remembered.
    """

    files: int
    age_s: float
    sums: int


class PartialUploads:
    """The beginnings below `incoming/partial/GATEWAY/`."""

    def __init__(self, folder: FleetFolder, bound: PartialUploadLimits) -> None:
        self._root = folder.incoming / PARTIAL_FOLDER
        self._bound = bound
        self._sums = HashCache(bound.sums)

    def remembers(self, gateway: str, body_sum: bytes, size: int) -> bool:
        """Tell, from memory, whether to go on behind so many bytes reads none of them."""
        return self._sums.has(self._path(gateway, body_sum), size)

    def size(self, gateway: str, body_sum: bytes) -> int:
        """Bytes that are there of a body; 0 if none."""
        try:
            return self._path(gateway, body_sum).stat().st_size
        except FileNotFoundError:
            return 0

    def open(self, gateway: str, body_sum: bytes, start: int) -> IncomingFile:
        """Go on with a body at byte `start`; at 0 it begins anew, whatever was there.

        What is written to it stays when it is closed, until `Landing.adopt` takes it. Raises
        OffsetError when `start` is not what is there, HeldError while another request has it.
        """
        path = self._path(gateway, body_sum)
        if start and not path.exists():
            raise OffsetError(0)
        self._make_room(path)
        try:
            return IncomingFile(path, kept=True, start=start, sums=self._sums)
        except BlockingIOError:
            raise UploadInProgressError from None

    def clean(self) -> int:
        """Remove what is older than the bound allows, and count it."""
        self._root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        before = time.time() - self._bound.age_s
        return sum(remove_abandoned(path, before) for path in self._root.glob(f"*/*{PART_SUFFIX}"))

    def sizes(self) -> list[int]:
        """The bytes of each beginning that is there; those that grow just now count too."""
        return [
            size for path in self._root.glob(f"*/*{PART_SUFFIX}") for _, size in [_age_of(path)]
        ]

    def _make_room(self, path: Path) -> None:
        """Remove the oldest beginnings of a gateway that would be one too many with `path`."""
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        others = [each for each in path.parent.glob(f"*{PART_SUFFIX}") if each != path]
        excess = len(others) + 1 - self._bound.files
        if excess <= 0:
            return
        for old in sorted(others, key=_age_of):
            excess -= remove_abandoned(old)
            if excess <= 0:
                return
        raise UploadInProgressError

    def _path(self, gateway: str, body_sum: bytes) -> Path:
        return self._root / gateway / f"{body_sum.hex()}{PART_SUFFIX}"


def _age_of(path: Path) -> tuple[float, int]:
    """When a file was last written, in seconds since 1970, and its bytes; zeros if it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return status.st_mtime, status.st_size
