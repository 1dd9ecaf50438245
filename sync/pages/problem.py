"""What a problem is, how grave each kind is, and how many of one kind are told as one.

Pure functions of problems. Which rows make a problem is said in `problems_*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from sync.pages.text import plural

Weight = Literal["wrong", "notice"]
"""`wrong` is for what must be zero, or needs a hand; `notice` for what somebody should know."""

Kind = Literal[
    "unexplained",
    "fork",
    "duplicate",
    "chain_break",
    "bad_segment",
    "silent",
    "disk_full_soon",
    "message_lost",
    "queue_stuck",
    "queue_dead",
    "torn",
    "outage",
    "sensor_silent",
    "refusals",
    "version_errors",
    "backlog",
    "declared",
    "unclean_restart",
    "clock_step",
    "clock_unsynchronised",
    "clock_drift",
    "repeats",
    "sensor_flat",
    "sensor_anomaly",
    "unknown",
]

KINDS: Final[dict[Kind, str]] = {
    "unexplained": "events are missing, and nothing says why",
    "fork": "segments contradict what came before",
    "duplicate": "events are in the tables more than once",
    "chain_break": "segments do not follow on the one before them",
    "bad_segment": "files are no valid segments",
    "silent": "nothing arrives",
    "disk_full_soon": "the disk, or the backlog's share of it, is full soon",
    "message_lost": "messages went nowhere",
    "queue_stuck": "queues stand still",
    "queue_dead": "no worker could take some items",
    "torn": "an epoch ended without a stop",
    "outage": "outages",
    "sensor_silent": "sensors fell silent",
    "refusals": "limits refused what devices sent",
    "version_errors": "more errors than the version before",
    "backlog": "most events come late",
    "declared": "events were dropped, and it was said",
    "unclean_restart": "starts without a clean stop before",
    "clock_step": "the clock was set",
    "clock_unsynchronised": "the clock is not synchronised",
    "clock_drift": "the clock drifts",
    "repeats": "devices offer the same messages again",
    "sensor_flat": "sensors give one value only",
    "sensor_anomaly": "sensors give values unlike those of their kind",
    "unknown": "no heartbeat ever came",
}
"""What a kind says of the gateways that it is told of, the gravest kind first."""


class Problem(NamedTuple):
    """Something that is not as it should be: how grave, of which kind, where, what, what to do.

    `gateway` is "" where it is of none. `where` says all of the place, the gateway too.
    """

    weight: Weight
    kind: Kind
    gateway: str
    where: str
    what: str
    remedy: str


class Group(NamedTuple):
    """Problems of one weight and kind that one remedy serves."""

    problems: tuple[Problem, ...]

    @property
    def headline(self) -> str:
        """Say of what kind they are."""
        text = KINDS[self.problems[0].kind]
        return text[0].upper() + text[1:]

    @property
    def title(self) -> str:
        """Say of what kind they are, and of how many gateways where it is several."""
        gateways = {problem.gateway for problem in self.problems if problem.gateway}
        if len(gateways) < 2:
            return self.headline
        return f"{plural(len(gateways), 'gateway')}: {KINDS[self.problems[0].kind]}"


def ordered(told: Iterable[Problem]) -> list[Problem]:
    """Put the gravest first: by weight, by kind; within one kind they stay as they came."""
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    return sorted(told, key=lambda problem: (problem.weight != "wrong", ranks[problem.kind]))


def grouped(told: Iterable[Problem]) -> list[Group]:
    """Put together what one remedy serves, in the order of `ordered`."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in ordered(told):
        groups.setdefault((problem.weight, problem.kind, problem.remedy), []).append(problem)
    return [Group(tuple(each)) for each in groups.values()]
