"""The verdict of a workers run: what was published, who did what, and what the gateway keeps.

For each item it says whether what became of it is what a queue, or its share's level, promises.
Nothing is passed over: whatever has no explanation is a fault. It reads no file, runs no worker.

- Queue: each item is worked on at least once, and deleted once for each time that it was published;
  or it is dead at the gateway, after as many deliveries as the node allows. None is left.
- Shares: each item comes to each share; at level 2 exactly once, at level 1 at least once, at level
  0 at most once. None is left.
- Fairness: while all workers behave, the most and the least loaded differ by at most a tenth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from firmware_sim.device.jobs import State
from firmware_sim.scenarios.count_verdict import SHOWN
from firmware_sim.scenarios.workers_plan import LEVELS, Publication, WorkersPlan

UNFAIR: Final = 0.1
"""By which part of the most loaded worker's items the least loaded one may have fewer."""


class Worked(NamedTuple):
    """What one worker did with an item: how often it worked on it, and committed it."""

    worker: str
    item: str
    state: State
    runs: int
    commits: int


class Taken(NamedTuple):
    """How often a member of the share of a level took an item."""

    member: str
    level: int
    item: str
    times: int


class Dead(NamedTuple):
    """An item that the gateway keeps as dead: how often it was delivered, and why it is dead.

    `logged` tells whether that is in its event log.
    """

    deliveries: int
    reason: str
    logged: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found when all was over.

    `published` says of each item how often it may have been published: once, or more often where an
    answer was lost; 0 or absent if its publisher believes that it was not. `fair` is how many items
    each worker did while all behaved. `left` are the items that the queue keeps and that are not
    dead, each with the reason why it does not move. `shares` is how many each share keeps, by
    level. `most_deliveries` is after how many the node gives an item up.
    """

    published: Mapping[str, int]
    worked: Sequence[Worked]
    taken: Sequence[Taken]
    dead: Mapping[str, Dead]
    left: Mapping[str, str]
    fair: Mapping[str, int]
    shares: Mapping[int, int] = field(default_factory=dict)
    most_deliveries: int = 5


@dataclass(frozen=True, slots=True)
class WorkersVerdict:
    """What came of a run: counts, and the faults by their name.

    Of `queue` and of `shares` (by level) the counts are by name. `fair` is the most and the fewest
    that a worker did while all behaved.
    """

    queue: Mapping[str, int]
    shares: Mapping[str, tuple[int, ...]]
    fair: tuple[int, int]
    dead: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether everything is as it was promised."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Give it as a JSON object."""
        return {
            "queue": dict(self.queue),
            "shares": {name: list(row) for name, row in self.shares.items()},
            "dead": dict(self.dead),
            "fairness": {"most": self.fair[0], "least": self.fair[1]},
            "faults": {name: len(rows) for name, rows in self.faults.items()},
            "examples": {name: list(rows)[:SHOWN] for name, rows in self.faults.items()},
            "exact": self.exact,
        }

    def lines(self) -> list[str]:
        """Write it as a table for people."""
        table = [f"{'queue':<12}{n:>8}  {name}: {_NOTES[name]}" for name, n in self.queue.items()]
        table += [f"{'dead':<12}{count:>8}  {reason}" for reason, count in self.dead.items()]
        table.append(f"{'level':<12}" + "".join(f"{level:>8}" for level in LEVELS))
        for name, row in self.shares.items():
            table.append(f"{name:<12}" + "".join(f"{n:>8}" for n in row) + f"  {_SHARES[name]}")
        most, least = self.fair
        table.append(f"{'fairness':<12}{most:>8}{least:>8}  the most and the fewest of a worker")
        for name, rows in self.faults.items():
            table.append(f"{name}: {len(rows)}")
            table += [f"  {row}" for row in list(rows)[:SHOWN]]
        return [*table, f"{'verdict':<12}{'exact' if self.exact else 'NOT exact':>10}"]


_NOTES: Final = {
    "planned": "to be published",
    "published": "taken by the service, as their publishers believe",
    "repeated": "publications whose answer was lost, and which were repeated",
    "worked on": "different ones",
    "again": "times that one was worked on beyond the first",
    "deleted": "different ones, as the service confirmed",
    "dead": "kept by the gateway, as no worker could do them",
}

_SHARES: Final = {
    "planned": "to be published",
    "taken": "different ones, by a member",
    "again": "times that one was taken beyond the first",
    "lost": "taken by nobody",
}


def judge(plan: WorkersPlan, evidence: Evidence) -> WorkersVerdict:
    """Judge a run by its plan and by what was found."""
    faults: dict[str, list[str]] = {}
    for fault, what in _faults(plan, evidence):
        faults.setdefault(fault, []).append(what)
    found = evidence.fair.values()
    return WorkersVerdict(
        queue=_counts(plan, evidence),
        shares=_share_counts(plan, evidence),
        fair=(max(found, default=0), min(found, default=0)),
        dead=Counter(each.reason for each in evidence.dead.values()),
        faults=faults,
    )


def _counts(plan: WorkersPlan, evidence: Evidence) -> dict[str, int]:
    items = [each.item for each in plan.jobs()]
    tries = [evidence.published.get(item, 0) for item in items]
    runs = sum(each.runs for each in evidence.worked)
    worked = {each.item for each in evidence.worked if each.runs}
    return {
        "planned": len(items),
        "published": sum(number > 0 for number in tries),
        "repeated": sum(max(number - 1, 0) for number in tries),
        "worked on": len(worked),
        "again": runs - len(worked),
        "deleted": len({each.item for each in evidence.worked if each.commits}),
        "dead": len(evidence.dead),
    }


def _share_counts(plan: WorkersPlan, evidence: Evidence) -> dict[str, tuple[int, ...]]:
    items = len(list(plan.shared()))
    times = {level: Counter[str]() for level in LEVELS}
    for each in evidence.taken:
        times[each.level][each.item] += each.times
    rows = [times[level] for level in LEVELS]
    return {
        "planned": tuple(items for _ in rows),
        "taken": tuple(len(row) for row in rows),
        "again": tuple(row.total() - len(row) for row in rows),
        "lost": tuple(items - len(row) for row in rows),
    }


def _faults(plan: WorkersPlan, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Name what is not as it was promised, each with what it is about."""
    runs, commits = Counter[str](), Counter[str]()
    for each in evidence.worked:
        runs[each.item] += each.runs
        commits[each.item] += each.commits
        if each.state is State.ASKED:
            yield "deletion neither confirmed nor refused", f"{each.item} at {each.worker}"
    for publication in plan.jobs():
        item = publication.item
        for fault in _job_faults(plan, evidence, item, runs[item], commits[item]):
            yield fault, f"{item} {publication.way.value}"
    planned = {publication.item for publication in plan.jobs()}
    yield from (("worked on, and never planned", item) for item in sorted(set(runs) - planned))
    for item, why in evidence.left.items():
        yield "left in the queue", f"{item}: {why}"
    yield from _share_faults(plan.shared(), evidence)
    yield from _unfairness(evidence.fair)


def _job_faults(
    plan: WorkersPlan, evidence: Evidence, item: str, runs: int, commits: int
) -> Iterator[str]:
    tries, dead = evidence.published.get(item, 0), evidence.dead.get(item)
    if not tries:
        yield "never published"
    if commits > tries:
        yield "deleted more often than it was published"
    if dead is not None:
        if dead.deliveries < evidence.most_deliveries:
            yield "dead before it was delivered as often as the node allows"
        if not dead.logged:
            yield "dead, and not in the event log"
        if commits >= tries:
            yield "deleted, and dead"
    elif plan.poison(item):
        yield "not dead, though no worker can do it"
    else:
        yield from _undone(runs, commits)
    if plan.poison(item) and (runs or commits):
        yield "done, though no worker can do it"


def _undone(runs: int, commits: int) -> Iterator[str]:
    if not runs:
        yield "never worked on"
    if not commits:
        yield "never deleted"


def _share_faults(shared: Iterable[Publication], evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Name what the shares did not keep."""
    times: Counter[tuple[int, str]] = Counter()
    for each in evidence.taken:
        times[each.level, each.item] += each.times
    planned = set()
    for publication in shared:
        item, tries = publication.item, evidence.published.get(publication.item, 0)
        planned.add(item)
        if not tries:
            yield "never published", f"{item} {publication.way.value}"
        for level in LEVELS:
            found = times[level, item]
            if tries and level and not found:
                yield f"never taken by the share of level {level}", item
            if found > tries and level != 1:
                yield f"taken more often than it was published, at level {level}", item
    strays = sorted({item for _, item in times} - planned)
    yield from (("taken, and never planned", item) for item in strays)
    for level, count in evidence.shares.items():
        if count:
            yield "left in a share", f"{count} at level {level}"


def _unfairness(fair: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Name it if the most and the least loaded worker differ by more than a tenth, and than one."""
    if fair:
        most, least = max(fair.values()), min(fair.values())
        if most - least > max(1.0, UNFAIR * most):
            yield "unfair", f"one worker did {most} items, another {least}"
