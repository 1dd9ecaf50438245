"""Compare the centre's copy of an epoch with the gateway's. Pure.

After a restored backup, or when two cards run with one identity, the gateway assigns sequence
numbers that the centre already has for other events. Then the gateway begins a new epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from sync.segment.limits import MAX_SEQ
from sync.segment.records import LANES
from sync.uplink.interfaces import HighWatermark


class _HighWatermark(Struct):
    last: Annotated[int, Meta(ge=1, le=MAX_SEQ)]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class EpochVerdict(Enum):
    """The result of `compare_epochs`; its value is the reason given for a new epoch."""

    SAME = "same"
    AHEAD = "centre-ahead"
    DIFFERS = "centre-differs"


def compare_epochs(
    ours: Mapping[str, HighWatermark],
    theirs: Mapping[str, HighWatermark],
    digests: Mapping[str, bytes | None],
    conflicting: Collection[str] = (),
) -> EpochVerdict:
    """Compare each lane's last number and digest at the gateway (`ours`) and the centre (`theirs`).

    `digests` maps each lane to the digest (32 bytes) of the gateway's segment that contains the
    centre's last sequence number; None if the gateway has deleted that segment. None counts as a
    difference only in the lanes `conflicting`, in which the centre had a different segment.
    """
    for lane, mark in theirs.items():
        if lane not in ours or mark.last > ours[lane].last:
            return EpochVerdict.AHEAD
        digest = ours[lane].digest if mark.last == ours[lane].last else digests.get(lane)
        if digest is None and lane in conflicting:
            return EpochVerdict.DIFFERS
        if digest is not None and digest != mark.digest:
            return EpochVerdict.DIFFERS
    return EpochVerdict.SAME


def parse_high_watermarks(body: Mapping[str, Any]) -> dict[str, HighWatermark] | None:
    """Parse the centre's answer, `{"lanes": {LANE: {"last": N, "digest": HEX}}}`.

    Return None if it is invalid; skip lanes that this version does not know.
    """
    lanes = body.get("lanes")
    if not isinstance(lanes, dict):
        return None
    try:
        found = {each: convert(lanes[each], _HighWatermark) for each in LANES if each in lanes}
    except ValidationError:
        return None
    return {
        lane: HighWatermark(mark.last, bytes.fromhex(mark.digest)) for lane, mark in found.items()
    }
