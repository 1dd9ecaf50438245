from __future__ import annotations

import pytest

from edge.engine.rules.service_time import STEP, Run
from edge.engine.time.clock import SYNC_CHECK, Clock, MachineClocks
from tests.helpers.garbage import garbage
from tests.helpers.machine import EPOCH, SimulatedMachine


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(synchronised=True)


def test_service_seconds_follow_the_uptime_not_the_wall_clock(machine: SimulatedMachine) -> None:
    clock = Clock(50.0, machine.clocks)
    assert clock() == (50.0, EPOCH * 1000, True)
    machine.true_time, machine.error = 10.0, 3600.0
    assert clock() == (60.0, (EPOCH + 3610) * 1000, True)
    assert clock.run == Run("boot-1", -50.0)


def test_synchronisation_is_checked_at_an_interval(machine: SimulatedMachine) -> None:
    clock = Clock(0.0, machine.clocks)
    checks_before = machine.synchronised_calls
    machine.synchronised = False
    machine.true_time += SYNC_CHECK
    assert clock().synchronised
    machine.true_time += 0.001
    assert not clock().synchronised
    assert not clock().synchronised
    assert machine.synchronised_calls == checks_before + 1


@pytest.mark.parametrize("moved", [STEP, -STEP])
def test_synchronisation_is_checked_at_once_after_the_clock_was_set(
    machine: SimulatedMachine, moved: float
) -> None:
    clock = Clock(0.0, machine.clocks)
    machine.synchronised = False
    machine.error = moved * 0.9
    assert clock().synchronised
    machine.error = moved
    assert not clock().synchronised


def test_the_wall_clock_is_read_again_after_it_was_set(machine: SimulatedMachine) -> None:
    """A time before the synchronisation is never stamped as synchronised."""
    machine.synchronised, machine.error = False, -1000.0

    def synchronised() -> bool:
        machine.error, machine.synchronised = 0.0, not first
        return machine.synchronised

    first = True
    clock = Clock(0.0, machine.clocks._replace(synchronised=synchronised))
    machine.error, first = -2000.0, False
    assert clock() == (0.0, EPOCH * 1000, True)


def test_the_real_clocks() -> None:
    before, after = MachineClocks().read(), MachineClocks().read()
    assert before.boot == after.boot
    assert 0 < before.uptime <= after.uptime
    assert after.wall > EPOCH * 1000
    clock = Clock(7.0)
    assert clock.run.boot == before.boot
    assert 7.0 <= clock().service <= clock().service


def test_reading_the_clocks_leaves_no_garbage() -> None:
    with garbage() as left:
        MachineClocks().read()
    assert left == []
