"""Reading the machine's clocks."""

from __future__ import annotations

import pytest

from edge.engine.clock import SYNC_CHECK, Clock, MachineClocks
from edge.engine.service_time import STEP, Run
from tests.helpers.machine import EPOCH, World


@pytest.fixture
def world() -> World:
    return World(synchronised=True)


def test_service_seconds_go_with_the_uptime_and_not_with_the_wall_clock(world: World) -> None:
    clock = Clock(50.0, world.machine)
    assert clock() == (50.0, EPOCH * 1000, True)
    world.true, world.error = 10.0, 3600.0
    assert clock() == (60.0, (EPOCH + 3610) * 1000, True)
    assert clock.run == Run("boot-1", -50.0)


def test_the_kernel_is_asked_once_in_a_while(world: World) -> None:
    clock = Clock(0.0, world.machine)
    asked = world.asked
    world.synchronised = False
    world.true += SYNC_CHECK
    assert clock().synchronised
    world.true += 0.001
    assert not clock().synchronised
    assert not clock().synchronised
    assert world.asked == asked + 1


@pytest.mark.parametrize("moved", [STEP, -STEP])
def test_a_clock_that_was_set_is_not_trusted_for_a_moment_longer(
    world: World, moved: float
) -> None:
    clock = Clock(0.0, world.machine)
    world.synchronised = False
    world.error = moved * 0.9
    assert clock().synchronised
    world.error = moved
    assert not clock().synchronised


def test_a_time_that_became_right_while_it_was_read_is_read_again(world: World) -> None:
    """What is stamped as of a synchronised clock is never the time of before that."""
    world.synchronised, world.error = False, -1000.0

    def synchronised() -> bool:
        world.error, world.synchronised = 0.0, not first
        return world.synchronised

    first = True
    clock = Clock(0.0, world.machine._replace(synchronised=synchronised))
    world.error, first = -2000.0, False
    assert clock() == (0.0, EPOCH * 1000, True)


def test_the_clocks_of_this_machine() -> None:
    before, after = MachineClocks().read(), MachineClocks().read()
    assert before.boot == after.boot
    assert 0 < before.uptime <= after.uptime
    assert after.wall > EPOCH * 1000
    clock = Clock(7.0)
    assert clock.run.boot == before.boot
    assert 7.0 <= clock().service <= clock().service
