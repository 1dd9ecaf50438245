"""Problems that the reports find, and the kinds of problem."""

from __future__ import annotations

from typing import Literal, NamedTuple

Weight = Literal["wrong", "notice"]
"""`wrong`: something must be repaired; `notice`: somebody should know."""


class Problem(NamedTuple):
    """A problem that a report has found.

    `kind` is the name of a `ProblemKind`. `gateway` is "" if the problem concerns no single
    gateway. `where` names the place in full, `what` describes the problem, `remedy` says what to
    do.
    """

    weight: Weight
    kind: str
    gateway: str
    where: str
    what: str
    remedy: str


class ProblemKind(NamedTuple):
    """A kind of problem: its name in report.json, its rank (lower is more severe), its headline.

    The headline describes the problem in a few words.
    """

    name: str
    rank: int
    headline: str
