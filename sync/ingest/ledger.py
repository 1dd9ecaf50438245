"""Decide which segments are new, which are duplicates, and which contradict accepted ones (forks).

`judge` is a pure function. `related_claims` reads only those rows of the ledger that matter for a
batch, so that the memory needed does not grow with the ledger.

Two segments of a lane contradict each other when their ranges overlap, or when both name the same
predecessor (docs/reference/reports.md, "How each event is counted once"). The first one that
arrived is kept; the other is a fork.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sync.segment.limits import MAX_EVENTS
from sync.tables.delta import Snapshot

Fate = Literal["accepted", "duplicate", "fork", "bad"]
"""The result for a file that was read. The decoder decides `bad`, this module the others."""

_SPAN_BITS: Final = (MAX_EVENTS - 1).bit_length()
_SPAN: Final = ["gateway", "epoch", "lane", "span"]
_ENDS: Final = ("first_seq", "last_seq")


class Claim(NamedTuple):
    """A segment as its header describes it; the fields are columns of the ledger.

    `digest` (of this segment) and `previous` (of its predecessor) are SHA-256 in hexadecimal.
    """

    gateway: str
    epoch: str
    lane: str
    first_seq: int
    last_seq: int
    digest: str
    previous: str


class Verdict(NamedTuple):
    """The result for a segment; `detail` says what a fork contradicts, and is empty otherwise."""

    fate: Fate
    detail: str = ""


class _Lane:
    """The accepted claims of a lane of an epoch, sorted by their first numbers. None overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, Claim] = {}
        self._successors: dict[str, Claim] = {}

    def add(self, claim: Claim) -> None:
        bisect.insort(self._starts, claim.first_seq)
        self._by_start[claim.first_seq] = claim
        self._successors[claim.previous] = claim

    def judge(self, claim: Claim) -> Verdict:
        other = self._overlapping(claim)
        if other == claim:
            return Verdict("duplicate")
        if other is not None:
            return Verdict("fork", f"overlaps {_range_of(other)}")
        other = self._successors.get(claim.previous)
        if other is not None:
            return Verdict("fork", f"has the same predecessor as {_range_of(other)}")
        return Verdict("accepted")

    def _overlapping(self, claim: Claim) -> Claim | None:
        """Return the accepted claim that equals `claim`, else one that shares a number with it."""
        same = self._by_start.get(claim.first_seq)
        if same == claim:
            return same
        at = bisect.bisect_right(self._starts, claim.last_seq) - 1
        if at < 0:
            return None
        nearest = self._by_start[self._starts[at]]
        return nearest if nearest.last_seq >= claim.first_seq else None


def judge(claims: Iterable[Claim], known: Iterable[Claim]) -> list[Verdict]:
    """Judge the claims in order, each against `known` and the claims accepted before it.

    `known` must contain all claims of the ledger that `related_claims(ledger, claims)` returns.
    """
    lanes: defaultdict[tuple[str, str, str], _Lane] = defaultdict(_Lane)
    for claim in known:
        lanes[claim[:3]].add(claim)
    verdicts = []
    for claim in claims:
        lane = lanes[claim[:3]]
        verdict = lane.judge(claim)
        if verdict.fate == "accepted":
            lane.add(claim)
        verdicts.append(verdict)
    return verdicts


def related_claims(ledger: Snapshot, offered: Sequence[Claim]) -> set[Claim]:
    """Return the accepted claims that can conflict with an `offered` claim: those that can have a
    sequence number in common with it, and those with the same digest of the previous segment.

    The numbers are divided into spans of `MAX_EVENTS`: a segment touches at most two. Claims with a
    number in common have a span in common, and a join on equal spans is faster than on ranges.
    """
    claims = pa.Table.from_pylist([each._asdict() for each in offered])
    spans = pa.concat_tables(_with_span(claims, end).select(_SPAN) for end in _ENDS)
    spans = spans.group_by(_SPAN).aggregate([])
    chosen = (pc.field("fate") == "accepted") & pc.field("gateway").isin(claims["gateway"])
    related: set[Claim] = set()
    for batch in ledger.segment_batches(Claim._fields, chosen):
        rows = pa.Table.from_batches([batch])
        found = [_with_span(rows, end).join(spans, _SPAN, join_type="left semi") for end in _ENDS]
        found.append(rows.filter(pc.field("previous").isin(claims["previous"])))
        related.update(
            Claim(**row) for each in found for row in each.select(Claim._fields).to_pylist()
        )
    return related


def _with_span(claims: pa.Table, end: str) -> pa.Table:
    return claims.append_column("span", pc.shift_right(claims[end], _SPAN_BITS))


def _range_of(claim: Claim) -> str:
    return f"{claim.first_seq}-{claim.last_seq} ({claim.digest[:12]})"
