from __future__ import annotations

import pytest

from firmware_sim.device.sender_rules import State
from firmware_sim.scenarios.custody_plan import Addressing, CustodyPlan, PlannedMessage
from firmware_sim.scenarios.custody_verdict import (
    GATEWAY,
    CustodyEvidence,
    Execution,
    judge,
)
from firmware_sim.scenarios.verdict import SHOWN, Verdict

A = "a@gw/fw"
DONE, FAILED, DOUBT = State.DONE, State.FAILED, State.IN_DOUBT


def verdict(
    planned: PlannedMessage,
    believed: State | None = DONE,
    *executions: Execution,
    reported: bool | None = None,
    waiting: int = 0,
) -> Verdict:
    """Judge one message, number 1 of a."""
    key = (A, 1)
    evidence = CustodyEvidence(
        believed={} if believed is None else {key: believed},
        ran=executions,
        reported={} if reported is None else {key: reported},
        waiting=waiting,
        absent=frozenset({"absent"}),
    )
    return judge([(key, planned)], evidence)


def to(level: int, mode: Addressing = Addressing.ACCOUNT, recipient: str = "b") -> PlannedMessage:
    return PlannedMessage(level, mode, recipient)


def execution(where: str = "b", times: int = 1, number: int = 1) -> Execution:
    return Execution((A, number), where, times)


@pytest.mark.parametrize(
    ("found", "level", "row"),
    [
        (verdict(to(2), DONE, execution()), 2, "ran"),
        (verdict(to(1), DONE, execution(times=3)), 1, "again"),
        (verdict(to(1), DONE, reported=True), 1, "dead"),
        (verdict(to(2), DONE, reported=False), 2, "dead"),
        (verdict(to(2), DONE, execution(), reported=False), 2, "dead"),
        (verdict(to(2, recipient="absent"), DONE, waiting=1), 2, "waiting"),
        (verdict(to(2, Addressing.SESSION), FAILED), 2, "failed"),
        (verdict(to(2, Addressing.SESSION), DOUBT), 2, "in doubt"),
        (verdict(to(2, Addressing.SESSION), DOUBT, execution()), 2, "in doubt"),
        (verdict(to(2, Addressing.GATEWAY, GATEWAY), DONE, execution(GATEWAY)), 2, "ran"),
        (verdict(to(0), DONE), 0, "lost"),
        (verdict(to(0), FAILED), 0, "failed"),
        (verdict(to(0), DONE, execution()), 0, "ran"),
    ],
)
def test_delivery_as_the_level_promises_is_exact(found: Verdict, level: int, row: str) -> None:
    assert found.faults == {}
    assert found.exact
    assert found.numbers["levels"][row][level] >= 1
    assert found.numbers["levels"]["planned"][level] == 1
    assert found.lines()[-1] == "verdict          exact"


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (verdict(to(2), DONE, execution(times=2)), "assured, but executed more than once"),
        (verdict(to(2), DONE),
         "missing: delivered according to its sender, but not executed or kept anywhere"),
        (verdict(to(1), DONE),
         "missing: delivered according to its sender, but not executed or kept anywhere"),
        (verdict(to(1), None), "never accepted by its sender's outbox"),
        (verdict(to(2), State.QUEUED), "still in its sender's outbox"),
        (verdict(to(2), State.RELEASED), "still in its sender's outbox"),
        (verdict(to(2), FAILED), "failed, although the gateway takes custody"),
        (verdict(to(1), DOUBT), "in doubt, although the gateway takes custody"),
        (verdict(to(1, Addressing.SESSION), FAILED, execution()),
         "executed, although its sender recorded that it failed"),
        (verdict(to(2), DONE, execution(), reported=True),
         "executed, although the gateway reports it as not delivered"),
        (verdict(to(2), DONE, execution("c")), "executed at a place that is not its recipient"),
        (verdict(to(0), DONE, execution("c")), "executed at a place that is not its recipient"),
        (verdict(to(2), DONE, execution(), execution(number=9)), "executed, but never planned"),
    ],
)  # fmt: skip
def test_each_broken_promise_is_a_fault(found: Verdict, fault: str) -> None:
    assert fault in found.faults
    assert not found.exact
    assert found.lines()[-1].endswith("NOT exact")
    assert found.as_json()["faults"][fault] == 1


def test_stored_messages_must_be_the_expected_ones() -> None:
    few = verdict(to(2, recipient="absent"), DONE, waiting=0)
    assert not few.exact
    assert few.faults == {
        "the gateway keeps more or fewer messages than expected": [
            "the gateway keeps 0 messages for devices that never connected; 1 expected"
        ]
    }
    assert not verdict(to(2), DONE, execution(), waiting=1).exact
    assert verdict(to(0, recipient="absent"), DONE, waiting=0).exact


def test_messages_stored_twice_were_sent_twice_at_level_1() -> None:
    key = (A, 1)
    for waiting, exact in ((0, False), (1, True), (2, True), (3, False)):
        evidence = CustodyEvidence({key: DONE}, [], {}, waiting, frozenset({"absent"}), repeated=1)
        found = judge([(key, to(1, recipient="absent"))], evidence)
        assert found.exact is exact
        assert found.as_json()["waiting_repeated"] == 1


def _in_order(*numbers: int, mode: Addressing = Addressing.ACCOUNT, level: int = 1) -> Verdict:
    keys = [(A, number) for number in (1, 2, 3)]
    evidence = CustodyEvidence(
        dict.fromkeys(keys, DONE), [execution(number=n) for n in numbers], {}, 0, frozenset()
    )
    return judge([(key, to(level, mode)) for key in keys], evidence)


def test_order_of_one_sender_is_judged_by_first_executions() -> None:
    assert _in_order(1, 2, 3).exact
    assert _in_order(1, 2, 1, 3).exact  # a repetition of the first, at level 1
    assert _in_order(1, 3, 2).faults["out of order"] == [f"{A} n=2 level 1 account b after n=3"]
    assert _in_order(1, 3, 2, mode=Addressing.SESSION).exact  # sessions come and go
    assert _in_order(1, 3, 2, level=0).exact


def test_number_of_examples_is_bounded_and_all_are_counted() -> None:
    keys = [(A, number) for number in range(1, 101)]
    found = judge(
        [(key, to(2)) for key in keys],
        CustodyEvidence(dict.fromkeys(keys, DONE), [], {}, 0, frozenset()),
    )
    (rows,) = found.faults.values()
    assert len(rows) == 100
    assert len(found.lines()) < 2 * SHOWN
    assert [len(each) for each in found.as_json()["examples"].values()] == [SHOWN]


# The plan.


def test_plan_depends_on_the_seed_alone() -> None:
    plan = CustodyPlan(seed=7, devices=20, messages=500)
    assert dict(plan.all()) == dict(CustodyPlan(seed=7, devices=20, messages=500).all())
    assert dict(plan.all()) != dict(CustodyPlan(seed=8, devices=20, messages=500).all())


def test_plan_has_all_levels_addressings_and_kinds_of_devices() -> None:
    plan = CustodyPlan(seed=1, devices=40, messages=2_001)
    rows = dict(plan.all())
    assert len(rows) == 2_001 == sum(plan.count(name) for name in plan.names)
    assert {row.level for row in rows.values()} == {0, 1, 2}
    assert {row.way for row in rows.values()} == set(Addressing)
    assert len(plan.absent) == len(plan.slow) == 2
    assert not set(plan.absent) & set(plan.slow)
    senders = {source.partition("@")[0] for source, _ in rows}
    assert senders == set(plan.present)
    to_absent = [row for row in rows.values() if row.recipient in plan.absent]
    assert {row.way for row in to_absent} == {Addressing.ACCOUNT}
    assert all(key[0].partition("@")[0] != row.recipient for key, row in rows.items())


def test_address_follows_the_addressing() -> None:
    plan = CustodyPlan(seed=1, devices=2, messages=1)
    assert plan.absent == plan.slow == ()
    assert plan.address(to(1)) == "b@gw.example"
    assert plan.address(to(1, Addressing.SESSION)) == "b@gw.example/fw"
    assert plan.address(to(1, Addressing.GATEWAY, "")) == "gw.example"
