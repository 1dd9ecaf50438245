"""The verdict of a `workers` run: compare publishers, workers, members and the gateway.

Each item must have an outcome that the queue, or the share's level, permits; any other outcome is a
fault.

- Queue: each item is worked on at least once, and deleted at least once, but not more often than it
  was possibly published; or it is dead at the gateway after the allowed number of deliveries. No
  other item is left.
- Shares: each share's members receive each item: at level 2 exactly once, at level 1 at least once,
  at level 0 at most once. No item is left.
- Fairness: before the faults begin, the numbers of items of any two workers differ by at most a
  tenth of the larger number, or by one item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from firmware_sim.device.jobs import JobState
from firmware_sim.scenarios.verdict import Verdict, by_name, row
from firmware_sim.scenarios.workers_plan import LEVELS, Publication, WorkersPlan

UNFAIR: Final = 0.1
"""The allowed difference between two workers' numbers of items, as a fraction of the larger."""


class WorkerRecord(NamedTuple):
    """A worker's record of an item; `runs` counts executions, `commits` confirmed deletions."""

    worker: str
    item: str
    state: JobState
    runs: int
    commits: int


class DeadItem(NamedTuple):
    """A dead item at the gateway, with the number of its deliveries and the reason.

    `logged` is whether the event log has an event that the item is dead.
    """

    deliveries: int
    reason: str
    logged: bool = True


@dataclass(frozen=True, slots=True)
class WorkersEvidence:
    """The evidence collected after a run.

    `published` is the maximum number of times that each item was published: 1, or more if an answer
    was lost; 0 or absent if its publication failed. `worked` are the workers' records. `taken` is
    how often the members of a share received an item, by (level, item). `fair` is the number of
    items that each worker finished before the faults began. `left` are the items in the queue that
    are not dead, with the reasons why they wait. `shares` is the number of items that each share
    keeps, by level. `most_deliveries` is the number of deliveries after which an item becomes dead.
    """

    published: Mapping[str, int]
    worked: Sequence[WorkerRecord]
    taken: Mapping[tuple[int, str], int]
    dead: Mapping[str, DeadItem]
    left: Mapping[str, str]
    fair: Mapping[str, int]
    shares: Mapping[int, int] = field(default_factory=dict)
    most_deliveries: int = 5


_NOTES: Final = {
    "planned": "to be published",
    "published": "accepted by the service, according to their publishers",
    "repeated": "publications that were repeated because their answer was lost",
    "worked on": "distinct items",
    "again": "repeated work on an item",
    "deleted": "distinct items whose deletion the service confirmed",
    "dead": "kept by the gateway because no worker could complete them",
}

_SHARES: Final = {
    "planned": "to be published",
    "taken": "distinct items that a member received",
    "again": "repeated deliveries of an item",
    "lost": "items that no member received",
}


def judge(plan: WorkersPlan, evidence: WorkersEvidence) -> Verdict:
    """Compare the plan of a run with the evidence, and return the verdict."""
    queue, shares = _counts(plan, evidence), _share_counts(plan, evidence)
    dead = Counter(each.reason for each in evidence.dead.values())
    fair = evidence.fair.values()
    most, least = max(fair, default=0), min(fair, default=0)
    return Verdict(
        {
            "queue": queue,
            "shares": shares,
            "dead": dict(dead),
            "fairness": {"most": most, "least": least},
        },
        [
            *(row("queue", n, note=f"{name}: {_NOTES[name]}") for name, n in queue.items()),
            *(row("dead", count, note=reason) for reason, count in dead.items()),
            row("level", *LEVELS),
            *(row(name, *levels, note=_SHARES[name]) for name, levels in shares.items()),
            row("fairness", most, least, note="most and fewest items of one worker"),
        ],
        by_name(_faults(plan, evidence)),
    )


def _counts(plan: WorkersPlan, evidence: WorkersEvidence) -> dict[str, int]:
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


def _share_counts(plan: WorkersPlan, evidence: WorkersEvidence) -> dict[str, tuple[int, ...]]:
    items = len(list(plan.shared()))
    rows = [[n for (at, _), n in evidence.taken.items() if at == level] for level in LEVELS]
    return {
        "planned": tuple(items for _ in rows),
        "taken": tuple(len(times) for times in rows),
        "again": tuple(sum(times) - len(times) for times in rows),
        "lost": tuple(items - len(times) for times in rows),
    }


def _faults(plan: WorkersPlan, evidence: WorkersEvidence) -> Iterator[tuple[str, str]]:
    """Return the faults, each as its name and the item, worker or level that it concerns."""
    runs, commits = Counter[str](), Counter[str]()
    for each in evidence.worked:
        runs[each.item] += each.runs
        commits[each.item] += each.commits
        if each.state is JobState.DELETION_REQUESTED:
            yield "deletion neither confirmed nor refused", f"{each.item} at {each.worker}"
    for publication in plan.jobs():
        item = publication.item
        for fault in _job_faults(plan, evidence, item, runs[item], commits[item]):
            yield fault, f"{item} {publication.way.value}"
    planned = {publication.item for publication in plan.jobs()}
    yield from (("worked on, but never planned", item) for item in sorted(set(runs) - planned))
    for item, why in evidence.left.items():
        yield "left in the queue", f"{item}: {why}"
    yield from _share_faults(plan.shared(), evidence)
    yield from _unfairness(evidence.fair)


def _job_faults(
    plan: WorkersPlan, evidence: WorkersEvidence, item: str, runs: int, commits: int
) -> list[str]:
    tries, dead = evidence.published.get(item, 0), evidence.dead.get(item)
    poison = plan.poison(item)
    alive = dead is None and not poison
    few = dead is not None and dead.deliveries < evidence.most_deliveries
    facts = {
        "never published": not tries,
        "deleted more often than it was published": commits > tries,
        "dead after fewer deliveries than the node allows": few,
        "dead, but not in the event log": dead is not None and not dead.logged,
        "deleted, but also dead": dead is not None and commits >= tries,
        "not dead, although no worker can complete it": dead is None and poison,
        "never worked on": alive and not runs,
        "never deleted": alive and not commits,
        "done, although no worker can complete it": poison and (runs or commits) > 0,
    }
    return [name for name, is_so in facts.items() if is_so]


def _share_faults(
    shared: Iterable[Publication], evidence: WorkersEvidence
) -> Iterator[tuple[str, str]]:
    planned = set()
    for publication in shared:
        item, tries = publication.item, evidence.published.get(publication.item, 0)
        planned.add(item)
        if not tries:
            yield "never published", f"{item} {publication.way.value}"
        for level in LEVELS:
            found = evidence.taken.get((level, item), 0)
            if tries and level and not found:
                yield f"not received by any member of the share of level {level}", item
            if found > tries and level != 1:
                yield f"received more often than it was published, at level {level}", item
    strays = sorted({item for _, item in evidence.taken} - planned)
    yield from (("received, but never planned", item) for item in strays)
    for level, count in evidence.shares.items():
        if count:
            yield "left in a share", f"{count} at level {level}"


def _unfairness(fair: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Return a fault if two workers' numbers of items differ by more than is allowed."""
    if fair:
        most, least = max(fair.values()), min(fair.values())
        if most - least > max(1.0, UNFAIR * most):
            yield "unfair", f"one worker finished {most} items, another only {least}"
