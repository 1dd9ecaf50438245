from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.ingest.ledger import Claim, Related, judge, related_claims
from tests.helpers.committed import Committer


def claim(first: int, last: int, previous: str = "p", digest: str = "") -> Claim:
    return Claim("gw", "e", "logs", first, last, digest or f"{first}-{last}-{previous}", previous)


def outcomes(claims: list[Claim], known: list[Claim]) -> list[str]:
    return [verdict.fate for verdict in judge(claims, known)]


ONE = claim(1, 4)


@pytest.mark.parametrize(
    ("known", "offered", "expected"),
    [
        ([], [claim(5, 9, "b"), claim(1, 4, "a"), claim(10, 10, "c")], ["accepted"] * 3),
        ([], [ONE, ONE], ["accepted", "duplicate"]),
        ([ONE], [ONE], ["duplicate"]),
        ([ONE], [ONE._replace(lane="system")], ["accepted"]),
        ([ONE], [ONE._replace(epoch="f")], ["accepted"]),
        ([ONE], [ONE._replace(gateway="hw")], ["accepted"]),
        ([claim(1, 4, "a")], [claim(4, 8, "x"), claim(5, 8, "b")], ["fork", "accepted"]),
    ],
    ids=[
        *("any order", "repeated", "repeated later", "other lane", "other epoch"),
        *("other gateway", "after a fork"),
    ],
)
def test_claims_are_judged(known: list[Claim], offered: list[Claim], expected: list[str]) -> None:
    assert outcomes(offered, known) == expected


def test_the_same_range_with_another_digest_is_a_fork() -> None:
    verdicts = judge([claim(1, 4, digest="b" * 64)], [claim(1, 4, digest="a" * 64)])
    assert verdicts == [("fork", "overlaps 1-4 (aaaaaaaaaaaa)")]


def test_every_overlap_is_a_fork() -> None:
    known = [claim(10, 19, "a"), claim(30, 39, "b")]
    for first, last in ((10, 10), (19, 19), (5, 10), (19, 25), (5, 50), (12, 15), (20, 30)):
        assert outcomes([claim(first, last, "x")], known) == ["fork"]
    for first, last in ((1, 9), (20, 29), (40, 40)):
        assert outcomes([claim(first, last, "x")], known) == ["accepted"]


def test_two_successors_of_one_digest_are_a_fork() -> None:
    verdicts = judge([claim(100, 109, "a")], [claim(10, 19, "a", digest="d" * 64)])
    assert verdicts == [("fork", "has the same predecessor as 10-19 (dddddddddddd)")]


claims = st.builds(
    lambda first, length, previous, digest: claim(first, first + length, previous, digest),
    st.integers(1, 30),
    st.integers(0, 6),
    st.sampled_from("abcdefgh"),
    st.sampled_from(["", "x", "y"]),
)


@given(st.lists(claims, max_size=25), st.integers(0, 25))
def test_accepted_claims_never_contradict_each_other_in_any_batches(
    offered: list[Claim], cut: int
) -> None:
    whole = outcomes(offered, [])
    first = outcomes(offered[:cut], [])
    known = [each for each, outcome in zip(offered, first, strict=False) if outcome == "accepted"]
    assert first + outcomes(offered[cut:], known) == whole
    if known and offered[cut:]:
        rows = pa.Table.from_pylist([each._asdict() for each in known])
        related = Related(offered[cut:]).select(rows).to_pylist()
        assert first + outcomes(offered[cut:], [Claim(**row) for row in related]) == whole

    accepted = [each for each, outcome in zip(offered, whole, strict=True) if outcome == "accepted"]
    numbers = [n for each in accepted for n in range(each.first_seq, each.last_seq + 1)]
    assert len(numbers) == len(set(numbers))
    assert len({each.previous for each in accepted}) == len(accepted)
    for each, outcome in zip(offered, whole, strict=True):
        assert (outcome == "duplicate") <= (each in accepted)
        if outcome == "fork":
            assert any(
                other != each
                and (
                    other.previous == each.previous
                    or (other.first_seq <= each.last_seq and each.first_seq <= other.last_seq)
                )
                for other in accepted
            )


def test_related_claims_share_a_number_or_a_predecessor(tmp_path: Path) -> None:
    ranges = [(1, 10), (65_530, 65_540), (131_071, 131_072), (2**53 + 1, 2**53 + 2), (2**62, 2**62)]
    claims = [Claim("gw", "e", "logs", *each, f"d{each}", f"p{each}") for each in ranges]
    claims += [each._replace(gateway="other") for each in claims]
    claims += [each._replace(lane="system") for each in claims]
    rows = [each._asdict() | {"fate": "accepted"} for each in claims]
    rows.append(claims[0]._asdict() | {"fate": "fork", "first_seq": 9})
    ledger = Committer(tmp_path).commit([], [*rows, {"fate": "bad"}])

    def related_numbers(first: int, last: int, previous: str = "x") -> list[int]:
        offered = [Claim("gw", "e", "logs", first, last, "new", previous)]
        found = related_claims(ledger, [*offered, *offered])
        assert found <= set(claims)
        assert {each.gateway for each in found} <= {"gw"}
        return sorted(each.first_seq for each in found if each.lane == "logs")

    assert related_numbers(65_535, 65_536) == [65_530]
    assert related_numbers(2**53 + 2, 2**53 + 5) == [2**53 + 1]
    assert related_numbers(2**40, 2**40) == []
    assert related_numbers(2**40, 2**40, f"p{(1, 10)}") == [1]
