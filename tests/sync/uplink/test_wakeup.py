"""A wait that a wakeup ends."""

from __future__ import annotations

import asyncio

import pytest

from sync.uplink.wakeup import Wakeup
from tests.helpers.manual_time import ManualTime


async def test_time_ends_a_wait() -> None:
    time = ManualTime()
    task = asyncio.create_task(Wakeup(time.sleep).wait(5))
    sleep = await time.next_sleep()
    assert (sleep.seconds, task.done()) == (5, False)
    sleep.end()
    await task


async def test_wakeup_ends_one_wait() -> None:
    time = ManualTime()
    wakeup = Wakeup(time.sleep)
    task = asyncio.create_task(wakeup.wait(5))
    await time.next_sleep()
    wakeup.wake()
    await task
    task = asyncio.create_task(wakeup.wait(6))
    assert (await time.next_sleep()).seconds == 6
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_wakeup_before_the_wait_ends_it_at_once() -> None:
    time = ManualTime()
    wakeup = Wakeup(time.sleep)
    wakeup.wake()
    wakeup.wake()
    await wakeup.wait(5)
    assert time.sleeps.empty()


async def test_wakeup_during_a_pause_ends_the_next_wait() -> None:
    time = ManualTime()
    wakeup = Wakeup(time.sleep)
    task = asyncio.create_task(wakeup.pause(7))
    sleep = await time.next_sleep()
    wakeup.wake()
    sleep.end()
    await task
    await wakeup.wait(5)
    assert time.sleeps.empty()
