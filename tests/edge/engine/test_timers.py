"""Tests of the process's one timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from edge.engine import timers
from edge.engine.service_time import Now
from edge.engine.timers import Timer
from tests.helpers.store import Clock

WAIT_S = 10.0


class Watched(Clock):
    """A clock that tells when it was looked at."""

    def __init__(self, service: float) -> None:
        super().__init__(service)
        self.looked = asyncio.Event()

    def __call__(self) -> Now:
        """Return the moment."""
        self.looked.set()
        return super().__call__()


class Bell:
    """An alarm on a clock that a test sets, and what it does when it rings."""

    def __init__(self) -> None:
        self.clock = Watched(1000.0)
        self.rang = asyncio.Event()
        self.alarm = Timer(self.clock, self.rang.set)

    async def rings(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.rang.wait()
        self.rang.clear()


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    made = Bell()
    yield made
    made.alarm.cancel()


async def test_a_due_timer_fires_once(bell: Bell) -> None:
    bell.alarm.set(999.0)
    await bell.rings()
    bell.alarm.set(1000.0)
    await bell.rings()


async def test_the_earliest_moment_counts(bell: Bell) -> None:
    bell.alarm.set(2000.0)
    bell.alarm.set(1000.0)
    bell.alarm.set(3000.0)
    await bell.rings()


async def test_a_wait_that_was_too_short_is_continued(bell: Bell) -> None:
    """The event loop's clock may be ahead of the service's."""
    bell.alarm.set(1000.01)
    for _ in range(3):
        bell.clock.looked.clear()
        async with asyncio.timeout(WAIT_S):
            await bell.clock.looked.wait()
    assert not bell.rang.is_set()
    bell.clock.service = 1000.01
    await bell.rings()


async def test_time_in_which_the_machine_was_suspended_counts(
    bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was suspended for days does not wait for those days again."""
    monkeypatch.setattr(timers, "LONGEST_WAIT", 0.01)
    bell.alarm.set(1000.0 + 7 * 86_400)
    bell.clock.service += 7 * 86_400
    await bell.rings()


async def test_a_cancelled_timer_does_not_fire(bell: Bell) -> None:
    bell.alarm.set(1000.0)
    bell.alarm.cancel()
    later = Bell()
    later.alarm.set(1000.001)
    later.clock.service = 1000.001
    await later.rings()
    assert not bell.rang.is_set()
