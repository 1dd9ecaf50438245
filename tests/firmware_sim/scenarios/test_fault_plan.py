from __future__ import annotations

from collections.abc import Iterable

from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.scenarios.faults import Fault, FaultPlan


def faults_of(plan: FaultPlan, messages: Iterable[int]) -> list[tuple[int, DeliveryStep, Fault]]:
    """Return the faults at every step of these messages, repetitions included."""
    return [
        (number, step, fault)
        for number in messages
        for step in (*DeliveryStep, *DeliveryStep)
        if (fault := plan.at(step, number)) is not None
    ]


def test_faults_depend_on_the_seed_alone() -> None:
    first = faults_of(FaultPlan(1, "a", 0.5), range(200))
    backwards = faults_of(FaultPlan(1, "a", 0.5), reversed(range(200)))
    assert sorted(first, key=str) == sorted(backwards, key=str)
    assert first != faults_of(FaultPlan(2, "a", 0.5), range(200))
    assert first != faults_of(FaultPlan(1, "b", 0.5), range(200))


def test_each_message_meets_at_most_one_fault() -> None:
    plan = FaultPlan(1, "a", 0.25)
    found = faults_of(plan, range(2000))
    assert 400 < len(found) < 600
    assert len({number for number, _, _ in found}) == len(found)
    assert plan.happened.total() == len(found)


def test_every_fault_and_every_step_occur() -> None:
    found = faults_of(FaultPlan(1, "a", 1.0), range(2000))
    assert {fault for _, _, fault in found} == set(Fault)
    assert {step for _, step, _ in found} == set(DeliveryStep)
    lost = {step for _, step, fault in found if fault is Fault.LOSE_ANSWER}
    assert lost == {DeliveryStep.OFFERED, DeliveryStep.RELEASED}


def test_rate_of_zero_plans_no_fault() -> None:
    assert faults_of(FaultPlan(1, "a", 0.0), range(500)) == []


def test_some_chunks_are_delayed_by_a_bounded_time() -> None:
    plan = FaultPlan(1, "a", 0.1)
    delays = [plan.delay() for _ in range(1000)]
    assert 50 < sum(late > 0 for late in delays) < 200
    assert max(delays) <= 0.05
