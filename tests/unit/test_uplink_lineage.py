"""The centre's copy of an epoch against ours: each case, and answers that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.segment.limits import MAX_SEQ
from sync.segment.records import LANES
from sync.uplink.epoch_check import Verdict, judge, parse_heads
from sync.uplink.interfaces import Head
from sync.uplink.responses import said

ONE, TWO, NONE = b"1" * 32, b"2" * 32, bytes(32)
OURS = {"readings": Head(20, ONE), "logs": Head(0, NONE), "system": Head(7, TWO)}


@pytest.mark.parametrize(
    ("theirs", "known", "verdict"),
    [
        ({}, {}, Verdict.SAME),
        ({"readings": Head(20, ONE)}, {"readings": ONE}, Verdict.SAME),
        ({"readings": Head(20, ONE), "system": Head(7, TWO)}, {}, Verdict.SAME),
        ({"readings": Head(20, TWO)}, {}, Verdict.DIFFERS),
        ({"readings": Head(10, TWO)}, {"readings": TWO}, Verdict.SAME),
        ({"readings": Head(10, TWO)}, {"readings": ONE}, Verdict.DIFFERS),
        ({"readings": Head(10, TWO)}, {"readings": None}, Verdict.SAME),
        ({"readings": Head(10, TWO)}, {}, Verdict.SAME),
        ({"readings": Head(21, ONE)}, {}, Verdict.AHEAD),
        ({"logs": Head(1, ONE)}, {}, Verdict.AHEAD),
        ({"system": Head(7, TWO), "readings": Head(21, ONE)}, {}, Verdict.AHEAD),
    ],
)
def test_each_case(
    theirs: dict[str, Head], known: dict[str, bytes | None], verdict: Verdict
) -> None:
    assert judge(OURS, theirs, known) is verdict


def test_a_lane_that_we_do_not_count_is_ahead() -> None:
    assert judge({}, {"logs": Head(1, ONE)}, {}) is Verdict.AHEAD


def test_a_contradiction_takes_the_benefit_of_the_doubt_away() -> None:
    theirs = {"readings": Head(10, TWO)}
    assert judge(OURS, theirs, {}, {"readings"}) is Verdict.DIFFERS
    assert judge(OURS, theirs, {}, {"logs"}) is Verdict.SAME
    assert judge(OURS, theirs, {"readings": TWO}, {"readings"}) is Verdict.SAME


lane_ends = st.dictionaries(st.sampled_from(LANES), st.integers(1, 5))


@given(sealed=lane_ends, landed=lane_ends)
def test_whoever_shipped_what_it_sealed_is_the_same_and_a_rolled_back_one_is_not(
    sealed: dict[str, int], landed: dict[str, int]
) -> None:
    chain = {
        lane: [bytes([number, place] * 16) for number in range(6)]
        for place, lane in enumerate(LANES)
    }
    ours = {lane: Head(sealed.get(lane, 0), chain[lane][sealed.get(lane, 0)]) for lane in LANES}
    theirs = {lane: Head(last, chain[lane][last]) for lane, last in landed.items()}
    known: dict[str, bytes | None] = {
        lane: chain[lane][last] if last <= ours[lane].last else None
        for lane, last in landed.items()
    }
    ahead = any(last > ours[lane].last for lane, last in landed.items())
    assert judge(ours, theirs, known) is (Verdict.AHEAD if ahead else Verdict.SAME)


def answer(**lanes: Any) -> dict[str, Any]:
    return {"lanes": lanes}


def test_an_answer_is_read_and_lanes_to_come_are_passed_over() -> None:
    told = answer(readings={"last": 3, "digest": "31" * 32, "more": 1}, video={"last": "?"})
    assert parse_heads(told) == {"readings": Head(3, ONE)}
    assert parse_heads(answer()) == {}


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
def test_what_is_no_answer_is_none(told: dict[str, Any]) -> None:
    assert parse_heads(said(json.dumps(told).encode())) is None
