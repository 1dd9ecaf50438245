"""The comparison of the centre's epoch with the gateway's."""

from __future__ import annotations

import json
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
OURS = {
    "readings": HighWatermark(20, ONE),
    "logs": HighWatermark(0, NONE),
    "system": HighWatermark(7, TWO),
}


@pytest.mark.parametrize(
    ("theirs", "known", "verdict"),
    [
        ({}, {}, EpochVerdict.SAME),
        ({"readings": HighWatermark(20, ONE)}, {"readings": ONE}, EpochVerdict.SAME),
        ({"readings": HighWatermark(20, ONE), "system": HighWatermark(7, TWO)}, {},
         EpochVerdict.SAME),
        ({"readings": HighWatermark(20, TWO)}, {}, EpochVerdict.DIFFERS),
        ({"readings": HighWatermark(10, TWO)}, {"readings": TWO}, EpochVerdict.SAME),
        ({"readings": HighWatermark(10, TWO)}, {"readings": ONE}, EpochVerdict.DIFFERS),
        ({"readings": HighWatermark(10, TWO)}, {"readings": None}, EpochVerdict.SAME),
        ({"readings": HighWatermark(10, TWO)}, {}, EpochVerdict.SAME),
        ({"readings": HighWatermark(21, ONE)}, {}, EpochVerdict.AHEAD),
        ({"logs": HighWatermark(1, ONE)}, {}, EpochVerdict.AHEAD),
        ({"system": HighWatermark(7, TWO), "readings": HighWatermark(21, ONE)}, {},
         EpochVerdict.AHEAD),
    ],
)  # fmt: skip
def test_epoch_comparison(
    theirs: dict[str, HighWatermark], known: dict[str, bytes | None], verdict: EpochVerdict
) -> None:
    assert compare_epochs(OURS, theirs, known) is verdict


def test_unknown_lane_is_ahead() -> None:
    assert compare_epochs({}, {"logs": HighWatermark(1, ONE)}, {}) is EpochVerdict.AHEAD


def test_unknown_digest_of_a_conflicting_lane_differs() -> None:
    theirs = {"readings": HighWatermark(10, TWO)}
    assert compare_epochs(OURS, theirs, {}, {"readings"}) is EpochVerdict.DIFFERS
    assert compare_epochs(OURS, theirs, {}, {"logs"}) is EpochVerdict.SAME
    assert compare_epochs(OURS, theirs, {"readings": TWO}, {"readings"}) is EpochVerdict.SAME


lane_ends = st.dictionaries(st.sampled_from(LANES), st.integers(1, 5))


@given(sealed=lane_ends, landed=lane_ends)
def test_only_a_restored_gateway_differs(sealed: dict[str, int], landed: dict[str, int]) -> None:
    chain = {
        lane: [bytes([number, place] * 16) for number in range(6)]
        for place, lane in enumerate(LANES)
    }
    ours = {
        lane: HighWatermark(sealed.get(lane, 0), chain[lane][sealed.get(lane, 0)]) for lane in LANES
    }
    theirs = {lane: HighWatermark(last, chain[lane][last]) for lane, last in landed.items()}
    known: dict[str, bytes | None] = {
        lane: chain[lane][last] if last <= ours[lane].last else None
        for lane, last in landed.items()
    }
    ahead = any(last > ours[lane].last for lane, last in landed.items())
    assert compare_epochs(ours, theirs, known) is (
        EpochVerdict.AHEAD if ahead else EpochVerdict.SAME
    )


def answer(**lanes: Any) -> dict[str, Any]:
    return {"lanes": lanes}


def test_unknown_lanes_are_skipped() -> None:
    told = answer(readings={"last": 3, "digest": "31" * 32, "more": 1}, video={"last": "?"})
    assert parse_high_watermarks(told) == {"readings": HighWatermark(3, ONE)}
    assert parse_high_watermarks(answer()) == {}


@pytest.mark.parametrize(
    "told",
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
def test_invalid_answers_are_none(told: dict[str, Any]) -> None:
    assert parse_high_watermarks(parse_json_object(json.dumps(told).encode())) is None
