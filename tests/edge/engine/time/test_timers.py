from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from edge.engine.rules.service_time import Now
from edge.engine.time import timers
from edge.engine.time.timers import Timer
from tests.helpers.store import Clock

WAIT_S = 10.0


class ObservedClock(Clock):
    """A clock that sets an event when it is read."""

    def __init__(self, service: float) -> None:
        super().__init__(service)
        self.read = asyncio.Event()

    def __call__(self) -> Now:
        """Return the current moment."""
        self.read.set()
        return super().__call__()


class TimerFixture:
    """A timer on a clock that the test sets, and an event for its firing."""

    def __init__(self) -> None:
        self.clock = ObservedClock(1000.0)
        self.fired = asyncio.Event()
        self.timer = Timer(self.clock, self.fired.set)

    async def wait_until_fired(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.fired.wait()
        self.fired.clear()


@pytest.fixture
async def fixture() -> AsyncIterator[TimerFixture]:
    timer_fixture = TimerFixture()
    yield timer_fixture
    timer_fixture.timer.cancel()


async def test_a_due_timer_fires_once(fixture: TimerFixture) -> None:
    fixture.timer.set(999.0)
    await fixture.wait_until_fired()
    fixture.timer.set(1000.0)
    await fixture.wait_until_fired()


async def test_a_timer_fires_at_its_earliest_moment(fixture: TimerFixture) -> None:
    fixture.timer.set(2000.0)
    fixture.timer.set(1000.0)
    fixture.timer.set(3000.0)
    await fixture.wait_until_fired()


async def test_a_wait_that_was_too_short_is_continued(fixture: TimerFixture) -> None:
    """The event loop's clock may be ahead of service seconds."""
    fixture.timer.set(1000.01)
    for _ in range(3):
        fixture.clock.read.clear()
        async with asyncio.timeout(WAIT_S):
            await fixture.clock.read.wait()
    assert not fixture.fired.is_set()
    fixture.clock.service = 1000.01
    await fixture.wait_until_fired()


async def test_time_in_which_the_machine_was_suspended_counts(
    fixture: TimerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer of a machine that was suspended for days does not wait for them again."""
    monkeypatch.setattr(timers, "LONGEST_WAIT", 0.01)
    fixture.timer.set(1000.0 + 7 * 86_400)
    fixture.clock.service += 7 * 86_400
    await fixture.wait_until_fired()


async def test_a_cancelled_timer_does_not_fire(fixture: TimerFixture) -> None:
    fixture.timer.set(1000.0)
    fixture.timer.cancel()
    later = TimerFixture()
    later.timer.set(1000.001)
    later.clock.service = 1000.001
    await later.wait_until_fired()
    assert not fixture.fired.is_set()
