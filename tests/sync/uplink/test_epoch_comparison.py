"""The comparison of the centre's epoch with the gateway's."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.segment.limits import MAX_SEQ
from sync.segment.records import LANES
from sync.uplink.epoch_check import EpochVerdict, compare_epochs, parse_high_watermarks
from sync.uplink.interfaces import HighWatermark
from sync.uplink.responses import parse_json_object

ONE, TWO, NONE = b"1" * 32, b"2" * 32, bytes(32)
Ends = dict[str, HighWatermark]
OURS: Ends = {
    "readings": HighWatermark(20, ONE),
    "logs": HighWatermark(0, NONE),
    "system": HighWatermark(7, TWO),
}
SAME, DIFFERS, AHEAD = EpochVerdict.SAME, EpochVerdict.DIFFERS, EpochVerdict.AHEAD


def readings(last: int, digest: bytes) -> Ends:
    return {"readings": HighWatermark(last, digest)}


@pytest.mark.parametrize(
    ("theirs", "known", "conflicts", "verdict"),
    [
        ({}, {}, (), SAME),
        (readings(20, ONE), {"readings": ONE}, (), SAME),
        (readings(20, ONE) | {"system": HighWatermark(7, TWO)}, {}, (), SAME),
        (readings(20, TWO), {}, (), DIFFERS),
        (readings(10, TWO), {"readings": TWO}, (), SAME),
        (readings(10, TWO), {"readings": ONE}, (), DIFFERS),
        (readings(10, TWO), {"readings": None}, (), SAME),
        (readings(10, TWO), {}, (), SAME),
        (readings(10, TWO), {}, {"readings"}, DIFFERS),
        (readings(10, TWO), {}, {"logs"}, SAME),
        (readings(10, TWO), {"readings": TWO}, {"readings"}, SAME),
        (readings(21, ONE), {}, (), AHEAD),
        ({"logs": HighWatermark(1, ONE)}, {}, (), AHEAD),
        ({"video": HighWatermark(1, ONE)}, {}, (), AHEAD),
        ({"system": HighWatermark(7, TWO)} | readings(21, ONE), {}, (), AHEAD),
    ],
)
def test_epoch_comparison(
    theirs: Ends, known: dict[str, bytes | None], conflicts: Collection[str], verdict: EpochVerdict
) -> None:
    assert compare_epochs(OURS, theirs, known, conflicts) is verdict


lane_ends = st.dictionaries(st.sampled_from(LANES), st.integers(1, 5))


@given(sealed=lane_ends, landed=lane_ends)
def test_only_a_restored_gateway_differs(sealed: dict[str, int], landed: dict[str, int]) -> None:
    chain = {lane: [bytes([n, at] * 16) for n in range(6)] for at, lane in enumerate(LANES)}
    ends = {lane: sealed.get(lane, 0) for lane in LANES}
    ours = {lane: HighWatermark(last, chain[lane][last]) for lane, last in ends.items()}
    theirs = {lane: HighWatermark(last, chain[lane][last]) for lane, last in landed.items()}
    known: dict[str, bytes | None] = {
        lane: chain[lane][last] if last <= ours[lane].last else None
        for lane, last in landed.items()
    }
    ahead = any(last > ours[lane].last for lane, last in landed.items())
    assert compare_epochs(ours, theirs, known) is (AHEAD if ahead else SAME)


def answer(**lanes: Any) -> dict[str, Any]:
    return {"lanes": lanes}


def test_unknown_lanes_are_skipped() -> None:
    reply = answer(readings={"last": 3, "digest": "31" * 32, "more": 1}, video={"last": "?"})
    assert parse_high_watermarks(reply) == {"readings": HighWatermark(3, ONE)}
    assert parse_high_watermarks(answer()) == {}


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"lanes": []},
        answer(readings=[]),
        answer(readings={"last": 3}),
        answer(readings={"digest": "31" * 32}),
        answer(readings={"last": 0, "digest": "31" * 32}),
        answer(readings={"last": MAX_SEQ + 1, "digest": "31" * 32}),
        answer(readings={"last": True, "digest": "31" * 32}),
        answer(readings={"last": 3.0, "digest": "31" * 32}),
        answer(readings={"last": 3, "digest": "3A" * 32}),
        answer(readings={"last": 3, "digest": "31" * 31}),
        answer(readings={"last": 3, "digest": None}),
    ],
)
def test_invalid_answers_are_none(reply: dict[str, Any]) -> None:
    assert parse_high_watermarks(parse_json_object(json.dumps(reply).encode())) is None
