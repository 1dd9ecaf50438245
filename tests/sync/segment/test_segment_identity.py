"""Segment names: safe as paths, with one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.segment import (
    LANES,
    Identity,
    SegmentError,
    check_identity,
    identity_path,
    is_epoch,
    is_gateway,
    parse_identity,
)
from tests.helpers.segments import EPOCH

letters = "abz09"
label = st.tuples(st.sampled_from(letters), st.text(letters + "-", max_size=20)).map("".join)
names = st.lists(label, min_size=1, max_size=4).map(".".join)


@given(names, st.sampled_from(LANES), st.integers(1, 2**63 - 70_000), st.integers(0, 65_535))
def test_identity_path_round_trip(gateway: str, lane: str, first: int, more: int) -> None:
    identity = Identity(gateway, EPOCH, lane, first, first + more)
    path = identity_path(identity)
    assert parse_identity(path) == identity
    assert ".." not in path
    assert path.count("/") == 3


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "identity"),
        (f"gw.example/{EPOCH}/logs", "identity"),
        (f"gw.example/{EPOCH}/logs/1-2/", "identity"),
        (f"/gw.example/{EPOCH}/logs/1-2", "identity"),
        (f"../{EPOCH}/logs/1-2", "identity"),
        (f"gw.example/{EPOCH}/./1-2", "identity"),
        ("gw.example/../logs/1-2", "identity"),
        (f"gw.example/{EPOCH}/logs/01-2", "identity"),
        (f"gw.example/{EPOCH}/logs/+1-2", "identity"),
        (f"gw.example/{EPOCH}/logs/0-2", "identity"),
        (f"gw.example/{EPOCH}/logs/1-\u0662", "identity"),
        (f"gw.example/{EPOCH}/logs/1-2.seg", "identity"),
        (f"gw.example/{EPOCH}/logs/1-20000000000000000000", "identity"),
        (f"gw.example/{EPOCH}/logs/1-9999999999999999999", "count"),
        (f"gw.example/{EPOCH}/logs/2-1", "count"),
        (f"gw.example/{EPOCH}/logs/1-65537", "count"),
    ],
)
def test_invalid_paths_are_refused(path: str, reason: str) -> None:
    with pytest.raises(SegmentError) as caught:
        parse_identity(path)
    assert caught.value.reason == reason


def test_largest_range_and_longest_name() -> None:
    check_identity(Identity("a" * 255, EPOCH, "system", 1, 65_536))
    assert is_gateway("a" * 255)
    assert not is_gateway("a" * 256)
    assert is_epoch(EPOCH)
    assert not is_epoch(EPOCH + "0")
