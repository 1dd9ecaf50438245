from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from firmware_sim.device.jobs import JobState
from firmware_sim.scenarios.verdict import SHOWN, Verdict
from firmware_sim.scenarios.workers_plan import LEVELS, WorkersPlan
from firmware_sim.scenarios.workers_verdict import (
    DeadItem,
    WorkerRecord,
    WorkersEvidence,
    judge,
)

PLAN = WorkersPlan(seed=1, workers=2, items=10, members=1, faults=0.1)
POISON = [each.item for each in PLAN.jobs() if PLAN.poison(each.item)]
SHARED = [each.item for each in PLAN.shared()]
ONCE = {each.item: 1 for each in [*PLAN.jobs(), *PLAN.shared()]}
GOOD = {
    each.item: WorkerRecord("worker1", each.item, JobState.DONE, 1, 1)
    for each in PLAN.jobs()
    if not PLAN.poison(each.item)
}
TAKEN = Counter((level, item) for level in LEVELS for item in SHARED)
DEAD = {item: DeadItem(5, "too many deliveries") for item in POISON}


def verdict(
    *worked: WorkerRecord,
    published: Mapping[str, int] | None = None,
    dead: Mapping[str, DeadItem] | None = None,
    taken: Counter[tuple[int, str]] | None = None,
    more: tuple[int, str] | None = None,
    **rest: Mapping[str, str] | Mapping[str, int] | Mapping[int, int],
) -> Verdict:
    """Judge a good run that the arguments change."""
    rows = {**GOOD, **{each.item: each for each in worked}}
    fields: dict[str, Mapping[str, str] | Mapping[str, int] | Mapping[int, int]] = {
        "left": {},
        "fair": {"worker1": 100, "worker2": 91},
        **rest,
    }
    evidence = WorkersEvidence(
        published={**ONCE, **(published or {})},
        worked=list(rows.values()),
        taken=(TAKEN if taken is None else taken) + Counter([more] if more else []),
        dead=DEAD if dead is None else dead,
        **fields,  # type: ignore[arg-type] # each has its own
    )
    return judge(PLAN, evidence)


def job(
    item: str = "j1", state: JobState = JobState.DONE, runs: int = 1, commits: int = 1
) -> WorkerRecord:
    return WorkerRecord("worker1", item, state, runs, commits)


def taken_but_first(level: int) -> Counter[tuple[int, str]]:
    """Return all taken items except the first one at this level."""
    return TAKEN - Counter([(level, SHARED[0])])


def test_run_without_faults_is_exact() -> None:
    found = verdict()
    assert found.faults == {}
    assert found.exact
    assert POISON == ["j10"]
    counts = {"planned": 10, "published": 10, "repeated": 0, "worked on": 9, "again": 0}
    assert found.numbers["queue"] == {**counts, "deleted": 9, "dead": 1}
    assert found.numbers["shares"]["taken"] == (2, 2, 2)
    assert found.lines()[-1] == "verdict          exact"
    assert found.as_json()["dead"] == {"too many deliveries": 1}
    assert found.as_json()["fairness"] == {"most": 100, "least": 91}


@pytest.mark.parametrize(
    ("found", "name", "count"),
    [
        (verdict(job(runs=3)), "again", 2),
        (verdict(job(runs=2, commits=2), published={"j1": 2}), "repeated", 1),
        (verdict(dead={**DEAD, "j1": DeadItem(5, "lock over")}, published={"j1": 2}), "dead", 2),
        (verdict(job(commits=0, state=JobState.UNDONE), dead={**DEAD, "j1": DeadItem(6, "")}),
         "dead", 2),
    ],
)  # fmt: skip
def test_allowed_repetitions_of_a_queue_are_counted(found: Verdict, name: str, count: int) -> None:
    assert found.faults == {}
    assert found.numbers["queue"][name] == count


@pytest.mark.parametrize(
    ("found", "name", "level"),
    [
        (verdict(taken=taken_but_first(0)), "lost", 0),
        (verdict(more=(1, SHARED[0])), "again", 1),
    ],
)
def test_allowed_losses_and_repetitions_of_a_share_are_counted(
    found: Verdict, name: str, level: int
) -> None:
    assert found.faults == {}
    assert found.numbers["shares"][name][level] == 1
    assert sum(found.numbers["shares"][name]) == 1


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (verdict(job(runs=0, commits=0, state=JobState.UNDONE)), "never worked on"),
        (verdict(job(commits=0, state=JobState.UNDONE)), "never deleted"),
        (verdict(job(runs=2, commits=2)), "deleted more often than it was published"),
        (verdict(job(state=JobState.DELETION_REQUESTED)), "deletion neither confirmed nor refused"),
        (verdict(job(item="j99")), "worked on, but never planned"),
        (verdict(published={"j1": 0}), "never published"),
        (verdict(published={SHARED[0]: 0}), "never published"),
        (verdict(left={"j1": "locked"}), "left in the queue"),
        (verdict(dead={}), "not dead, although no worker can complete it"),
        (verdict(job(item="j10")), "done, although no worker can complete it"),
        (verdict(dead={**DEAD, "j1": DeadItem(5, "")}), "deleted, but also dead"),
        (verdict(job(commits=0, state=JobState.UNDONE), dead={**DEAD, "j1": DeadItem(4, "")}),
         "dead after fewer deliveries than the node allows"),
        (verdict(dead={"j10": DeadItem(5, "", logged=False)}), "dead, but not in the event log"),
        (verdict(taken=taken_but_first(1)), "not received by any member of the share of level 1"),
        (verdict(taken=taken_but_first(2)), "not received by any member of the share of level 2"),
        (verdict(more=(2, SHARED[0])),
         "received more often than it was published, at level 2"),
        (verdict(more=(0, SHARED[0])),
         "received more often than it was published, at level 0"),
        (verdict(more=(0, "s99")), "received, but never planned"),
        (verdict(shares={1: 3}), "left in a share"),
        (verdict(fair={"worker1": 100, "worker2": 89}), "unfair"),
        (verdict(fair={"worker1": 5, "worker2": 3}), "unfair"),
    ],
)  # fmt: skip
def test_each_broken_promise_of_a_queue_or_share_is_a_fault(found: Verdict, fault: str) -> None:
    assert fault in found.faults
    assert not found.exact
    assert found.lines()[-1] == "verdict      NOT exact"
    assert found.as_json()["faults"][fault] == len(found.faults[fault])


def test_one_item_more_is_fair() -> None:
    assert verdict(fair={"worker1": 4, "worker2": 3}).exact


def test_number_of_shown_faults_is_bounded() -> None:
    found = verdict(left={f"j{n}": "" for n in range(SHOWN + 5)})
    assert found.as_json()["faults"]["left in the queue"] == SHOWN + 5
    assert len(found.as_json()["examples"]["left in the queue"]) == SHOWN


def test_plan_depends_on_the_seed_and_has_each_item_once() -> None:
    plan = WorkersPlan(seed=7, workers=4, items=101, members=2, faults=0.5)
    rough = list(plan.rough())
    items = [each.item for each in [*plan.fair(), *rough]]
    assert sorted(items) == sorted(each.item for each in [*plan.jobs(), *plan.shared()])
    assert len(items) == 121
    assert len(set(items)) == 121
    again = WorkersPlan(seed=7, workers=4, items=101, members=2, faults=0.5)
    assert list(again.rough()) == rough
    assert [again.fault("w", f"j{n}", 0) for n in range(101)] == [
        plan.fault("w", f"j{n}", 0) for n in range(101)
    ]
    assert all(plan.fault("w", each.item, 0) is None for each in plan.fair())
    assert any(plan.fault("w", each.item, 0) for each in rough if each.item[0] == "j")
    assert list(WorkersPlan(seed=7, workers=4, items=4, members=0, faults=0.5).shared()) == []
