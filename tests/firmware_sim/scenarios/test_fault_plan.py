from __future__ import annotations

from collections.abc import Iterable

from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.scenarios.faults import Fault, FaultPlan


def lived(plan: FaultPlan, messages: Iterable[int]) -> list[tuple[int, DeliveryStep, Fault]]:
    """Ask the plan at every moment of these messages, repetitions included."""
    return [
        (number, moment, fault)
        for number in messages
        for moment in (*DeliveryStep, *DeliveryStep)
        if (fault := plan.at(moment, number)) is not None
    ]


def test_faults_depend_on_the_seed_alone() -> None:
    first = lived(FaultPlan(1, "a", 0.5), range(200))
    backwards = lived(FaultPlan(1, "a", 0.5), reversed(range(200)))
    assert sorted(first, key=str) == sorted(backwards, key=str)
    assert first != lived(FaultPlan(2, "a", 0.5), range(200))
    assert first != lived(FaultPlan(1, "b", 0.5), range(200))


def test_each_message_meets_at_most_one_fault() -> None:
    plan = FaultPlan(1, "a", 0.25)
    found = lived(plan, range(2000))
    assert 400 < len(found) < 600
    assert len({number for number, _, _ in found}) == len(found)
    assert plan.happened.total() == len(found)


def test_every_fault_and_every_moment_occur() -> None:
    found = lived(FaultPlan(1, "a", 1.0), range(2000))
    assert {fault for _, _, fault in found} == set(Fault)
    assert {moment for _, moment, _ in found} == set(DeliveryStep)
    lost = {moment for _, moment, fault in found if fault is Fault.LOSE_ANSWER}
    assert lost == {DeliveryStep.OFFERED, DeliveryStep.RELEASED}


def test_rate_of_zero_plans_no_fault() -> None:
    assert lived(FaultPlan(1, "a", 0.0), range(500)) == []


def test_some_chunks_are_delayed_by_a_bounded_time() -> None:
    plan = FaultPlan(1, "a", 0.1)
    delays = [plan.delay() for _ in range(1000)]
    assert 50 < sum(late > 0 for late in delays) < 200
    assert max(delays) <= 0.05
