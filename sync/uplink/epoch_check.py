"""Whether the centre's copy of an epoch is this gateway's: its lanes' ends, compared with ours.

A database that was rolled back, or a card that runs twice, counts numbers that the centre has
already, for other events. Whoever sees that begins a new epoch. Pure: asks nobody, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

from sync.segment.limits import MAX_SEQ
from sync.segment.records import LANES
from sync.uplink.interfaces import HighWatermark

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class EpochVerdict(Enum):
    """How the centre's ends stand to ours; the value is the reason of a new epoch."""

    SAME = "same"
    AHEAD = "centre-ahead"
    DIFFERS = "centre-differs"


def compare_epochs(
    ours: Mapping[str, HighWatermark],
    theirs: Mapping[str, HighWatermark],
    known: Mapping[str, bytes | None],
    contradicted: Collection[str] = (),
) -> EpochVerdict:
    """Compare the ends of an epoch's lanes.

    `known` has the digest (32 bytes) of our segment that holds the number with which the centre's
    last one of that lane ends, None if there is none any more: that is no contradiction, as what
    the centre has is not kept for ever. But in a lane of `contradicted`, of which the centre had a
    segment of our name with other bytes, an end that we do not know is another's.
    """
    for lane, head in theirs.items():
        if lane not in ours or head.last > ours[lane].last:
            return EpochVerdict.AHEAD
        digest = ours[lane].digest if head.last == ours[lane].last else known.get(lane)
        if digest is None and lane in contradicted:
            return EpochVerdict.DIFFERS
        if digest is not None and digest != head.digest:
            return EpochVerdict.DIFFERS
    return EpochVerdict.SAME


def parse_high_watermarks(told: Mapping[str, Any]) -> dict[str, HighWatermark] | None:
    """Read the centre's answer, `{"lanes": {LANE: {"last": N, "digest": HEX}}}`.

    None if it is no such answer; a lane that this software does not know is passed over.
    """
    lanes = told.get("lanes")
    if not isinstance(lanes, dict):
        return None
    heads: dict[str, HighWatermark] = {}
    for lane in LANES:
        if lane in lanes:
            head = _head(lanes[lane])
            if head is None:
                return None
            heads[lane] = head
    return heads


def _head(told: Any) -> HighWatermark | None:
    if not isinstance(told, dict):
        return None
    last, digest = told.get("last"), told.get("digest")
    if type(last) is not int or not 1 <= last <= MAX_SEQ:
        return None
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return None
    return HighWatermark(last, bytes.fromhex(digest))
