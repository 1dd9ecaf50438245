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
    """Return the accepted claims that can conflict with an `offered` claim."""
    chosen, select = accepted_by(offered), Related(offered).select
    return {
        Claim(**row)
        for batch in ledger.segment_batches(Claim._fields, chosen)
        for row in select(pa.Table.from_batches([batch])).to_pylist()
    }


def accepted_by(offered: Iterable[Claim]) -> pc.Expression:
    """Return the filter for the accepted claims of the gateways of some claims."""
    gateways = pa.array({each.gateway for each in offered})
    return (pc.field("fate") == "accepted") & pc.field("gateway").isin(gateways)


class Related:
    """Selects the claims that can conflict with an offered one.

    These can have a sequence number in common with it, or have the same digest of the previous
    segment. The numbers are divided into spans of `MAX_EVENTS`: a segment touches at most two.
    Claims with a number in common have a span in common, and a join on equal spans is faster than
    on ranges. Of the claims in a span, those between its first and its last offered number are
    selected.
    """

    def __init__(self, offered: Sequence[Claim]) -> None:
        claims = pa.Table.from_pylist([each._asdict() for each in offered])
        spans = pa.concat_tables(_with_span(claims, end) for end in _ENDS)
        self._spans = spans.group_by(_SPAN).aggregate([("first_seq", "min"), ("last_seq", "max")])
        self._previous = claims["previous"]

    def select(self, claims: pa.Table) -> pa.Table:
        """Select rows; both tables have the columns `Claim`. A row may be selected twice."""
        near = pa.concat_tables(
            _with_span(claims, end).join(self._spans, _SPAN, join_type="inner") for end in _ENDS
        ).filter(
            (pc.field("first_seq") <= pc.field("last_seq_max"))
            & (pc.field("last_seq") >= pc.field("first_seq_min"))
        )
        following = claims.filter(pc.field("previous").isin(self._previous))
        return pa.concat_tables(each.select(Claim._fields) for each in (near, following))


def _with_span(claims: pa.Table, end: str) -> pa.Table:
    return claims.append_column("span", pc.shift_right(claims[end], _SPAN_BITS))


def _range_of(claim: Claim) -> str:
    return f"{claim.first_seq}-{claim.last_seq} ({claim.digest[:12]})"
