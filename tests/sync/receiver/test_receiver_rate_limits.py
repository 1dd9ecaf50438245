"""Rate limits and disk quota, with a manual clock."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver import rate_limit
from sync.receiver.disk_quota import DiskQuota
from sync.receiver.rate_limit import RateLimiter
from sync.storage.local import LocalStorage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_burst_passes_and_then_the_rate_applies() -> None:
    clock = Clock()
    rate = RateLimiter(2.0, 5.0, clock)
    assert [rate.take("a", 1) for _ in range(11)] == [0] * 10 + [1]
    assert rate.take("b", 1) == 0, "each name has its own bucket"
    clock.now += 0.5
    assert [rate.take("a", 1) for _ in range(2)] == [0, 1]


def test_cost_above_a_window_leaves_a_debt() -> None:
    clock = Clock()
    rate = RateLimiter(10.0, 1.0, clock)
    assert rate.take("a", 45) == 0
    assert rate.take("a", 45) == 5, "a debt of 3.5 s and a whole window"
    assert rate.take("a", 5) == 4
    clock.now += 4.5
    assert rate.take("a", 45) == 0


def test_bucket_does_not_exceed_its_window() -> None:
    clock = Clock()
    rate = RateLimiter(10.0, 1.0, clock)
    rate.take("a", 1)
    clock.now += 1_000
    assert [rate.take("a", cost) for cost in (10, 1)] == [0, 1]


def test_full_buckets_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "_MAX_BUCKETS", 3)
    clock = Clock()
    rate = RateLimiter(1.0, 1.0, clock)
    for name in ("a", "b"):
        rate.take(name, 1)
    rate.take("c", 5)
    clock.now += 1
    rate.take("d", 1)
    assert rate._buckets.keys() == {"c", "d"}
    assert rate.take("c", 1) == 4


def test_reserve_stays_free(folder: FleetFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(f_bavail=10, f_frsize=100)
    monkeypatch.setattr("os.statvfs", lambda _: disk)
    quota = DiskQuota(folder.incoming, LocalStorage(folder.root), 500)
    assert quota.free() == 1_000
    quota.reserve(500)
    with pytest.raises(OSError, match="reserve") as caught:
        quota.reserve(501)
    assert caught.value.errno == errno.ENOSPC


def test_landing_quota_uses_the_last_measurement(folder: FleetFolder) -> None:
    (folder.landing / "g" / "e").mkdir(parents=True)
    segment = folder.landing / "g" / "e" / "1-2.seg"
    segment.write_bytes(bytes(600))
    quota = DiskQuota(folder.incoming, LocalStorage(folder.root), 0, 1_000)
    quota.measure()
    quota.reserve(300)
    with pytest.raises(OSError, match="landing") as caught:
        quota.reserve(101)
    assert caught.value.errno == errno.EDQUOT
    quota.settle(300, landed=True)
    with pytest.raises(OSError, match="landing"):
        quota.reserve(101)
    segment.unlink()
    quota.measure()
    quota.reserve(1_000)


def test_reservation_without_landing_is_released(folder: FleetFolder) -> None:
    quota = DiskQuota(folder.incoming, LocalStorage(folder.root), 0, 1_000)
    for _ in range(3):
        quota.reserve(900)
        quota.measure()
        with pytest.raises(OSError, match="landing"):
            quota.reserve(900)
        quota.settle(900, landed=False)
