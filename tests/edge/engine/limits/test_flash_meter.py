from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge.config.options import Flash
from edge.engine.limits import flash_meter
from edge.engine.limits.flash_meter import KernelCounters, WriteMeter
from edge.engine.limits.flash_wear import WriteCounts
from edge.engine.rules import commit_delay
from edge.engine.store import meta
from edge.engine.store.group_commit import Store

BUDGET = 86_400_000
OPTIONS = Flash(bytes_per_day=BUDGET, commit_wait=0.04)


class Kernel:
    """The kernel's counters and a clock, set by the test."""

    def __init__(self) -> None:
        self.counters = KernelCounters(1000, 1000)
        self.now = 50.0

    def write(self, seconds: float, written: int, submitted: int = 0) -> None:
        self.now += seconds
        before = self.counters
        self.counters = KernelCounters(before.written + written, before.given + submitted)


def new_meter(store: Store, kernel: Kernel) -> WriteMeter:
    return WriteMeter(store, OPTIONS, lambda: kernel.counters, lambda: kernel.now)


async def test_measured_writes_count_until_they_are_logged(store: Store) -> None:
    kernel = Kernel()
    meter = new_meter(store, kernel)
    kernel.write(60, 8192, 5000)
    await store.run(lambda tx: meta.write(tx, "k", 1.0))
    assert meter.measure() == WriteCounts(60.0, 8192, 1, 1)
    kernel.write(60, 4096, 3500)
    counts = meter.measure()
    assert counts == WriteCounts(120.0, 12_288, 2, 1), "the first measurement was not logged"
    meter.mark_logged(counts)
    assert meter.measure() == WriteCounts(0.0, 0, 0, 0)
    kernel.write(60, 0, 4096 - 308)
    assert meter.measure().pages == 1, "fractions of pages add up"


async def test_commits_are_delayed_only_above_the_budget(store: Store) -> None:
    kernel = Kernel()
    meter = new_meter(store, kernel)

    def write_for_hours(count: int, rate: int) -> float:
        for _ in range(60 * count):
            kernel.write(60, rate * 60)
            meter.mark_logged(meter.measure())
        return store.commit_window.min_interval

    assert write_for_hours(10, 1000) == 0, "the budget is 1,000 bytes a second"
    assert 0 < write_for_hours(1, 2000) < 0.04
    assert write_for_hours(20, 3000) == 0.04
    assert write_for_hours(20, 500) == 0


async def test_the_average_covers_the_last_hour(store: Store) -> None:
    kernel = Kernel()
    meter = new_meter(store, kernel)
    kernel.write(commit_delay.HOUR, 3_600_000)
    meter.mark_logged(meter.measure())
    assert meter.average == pytest.approx(1000 * (1 - 1 / 2.718281828))
    meter.mark_logged(meter.measure())


@pytest.mark.parametrize("heavy", [False, True])
async def test_the_kernel_counts_the_writes_of_the_store(store: Store, *, heavy: bool) -> None:
    """Light units are committed by the event loop, heavy ones by the database's thread."""
    await store.run(lambda tx: meta.write(tx, "k", 1.0))
    meter = WriteMeter(store, OPTIONS)
    reply = asyncio.get_running_loop().create_future()
    unit = lambda tx: meta.write(tx, "k", b"x" * 100_000)  # noqa: E731
    store.submit(unit, reply.set_result, heavy=heavy)
    await reply
    counts = meter.measure()
    assert counts.pages >= 25, "a frame of the WAL for each page"
    assert counts.commits == 1


def test_without_kernel_counters_the_counts_are_zero(tmp_path: Path) -> None:
    (tmp_path / "io").write_text("permission denied\n")
    for name in ("io", "missing"):
        assert flash_meter.kernel_counters(tmp_path / name) == (0, 0)
