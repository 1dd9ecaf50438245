"""How far the centre has each lane of an epoch: what a gateway asks for when it starts.

Looks at names, and at the last bytes of one file for each lane. Decodes no segment, and knows no
HTTP. All calls block: call them in a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sync.common.fleet_folder import SUFFIX, FleetFolder
from sync.receiver.landing import Landing
from sync.segment import (
    LANES,
    MAX_EVENTS,
    Identity,
    SegmentError,
    is_epoch,
    is_gateway,
)

_NAME: Final = re.compile(r"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})" + re.escape(SUFFIX), re.ASCII)


class HighWatermark(NamedTuple):
    """The last sequence number that is there of a lane, and the digest (32 bytes) that ends it."""

    last: int
    digest: bytes


def high_watermarks(
    folder: FleetFolder, landing: Landing, gateway: str, epoch: str
) -> dict[str, HighWatermark]:
    """The head of each lane that has a segment in landing or archive; durable when it is told.

    Of two segments that end with the same number, a fork, the longer one is told. Raises
    SegmentError when `gateway` or `epoch` can be none, OSError when the disk refuses.
    """
    if not is_gateway(gateway) or not is_epoch(epoch):
        raise SegmentError("identity", "the name is not GATEWAY and EPOCH")
    found = {}
    for lane in LANES:
        newest = _newest(folder, gateway, epoch, lane)
        there = None if newest is None else landing.find(newest)
        if newest is not None and there is not None:
            found[lane] = HighWatermark(newest.last_seq, there.digest)
    return found


def _newest(folder: FleetFolder, gateway: str, epoch: str, lane: str) -> Identity | None:
    """The segment that ends a lane. The archive is looked at last: segments move that way."""
    ranges = (
        (last, -first)
        for root in (folder.landing, folder.archive)
        for first, last in _ranges(root / gateway / epoch / lane)
    )
    last, first = max(ranges, default=(0, 0))
    return Identity(gateway, epoch, lane, -first, last) if last else None


def _ranges(folder: Path) -> Iterator[tuple[int, int]]:
    """First and last of each segment, by the names alone, without holding them all."""
    try:
        with os.scandir(folder) as entries:
            for name in filter(None, (_NAME.fullmatch(entry.name) for entry in entries)):
                first, last = int(name[1]), int(name[2])
                if first <= last < first + MAX_EVENTS:
                    yield first, last
    except FileNotFoundError:
        return
