"""Tests of a store that is killed at any write or sync.

While a group is committed, units of other senders run in memory. Afterwards the senders repeat
unanswered requests: no answered message is lost, and no message is stored twice.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

from tests.helpers.write_faults import CALLS, WRITES, FaultyProcess, Run, recover, recover_both


def was_killed(run: Run, kinds: str, number: int) -> bool:
    """Return whether a run was killed at a call; one that made fewer calls ended before."""
    return run.status == -signal.SIGKILL or (run.status == 0 and run.count(kinds) < number)


async def test_a_kill_before_any_call_loses_and_repeats_nothing(
    process: FaultyProcess,
    whole: Run,
    points: Callable[[int], list[int]],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    for number in points(whole.count(CALLS)):
        run = process.run(f"kill {number}")
        assert was_killed(run, CALLS, number), number
        await recover_both(process, run, tmp_path, chance)


async def test_a_kill_in_the_middle_of_any_write_loses_and_repeats_nothing(
    process: FaultyProcess, whole: Run, points: Callable[[int], list[int]]
) -> None:
    for number in points(whole.count(WRITES)):
        run = process.run(f"torn {number}")
        assert was_killed(run, WRITES, number), number
        await recover(process.path, run.done)
