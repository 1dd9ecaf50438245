from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.rules.quota import ExceededLimit
from edge.engine.rules.space_rules import (
    WAL_SHARE,
    SpaceLimits,
    SpaceUsage,
    can_ever_accept,
    exceeded_limit,
    free_room,
    shortage,
)

MIB = 1024 * 1024
LIMITS = SpaceLimits(database=100 * MIB, reserve=10 * MIB, wal=20 * MIB)
USABLE = 90 * MIB
DISK = 1000 * MIB
DATABASE = ExceededLimit("database_bytes", 100 * MIB)
WAL = ExceededLimit("wal_bytes", 20 * MIB)
RESERVE = ExceededLimit("database_reserve", 10 * MIB)


@pytest.mark.parametrize(
    ("size", "space", "expected"),
    [
        (1, SpaceUsage(0, 0, 0, DISK), None),
        (10, SpaceUsage(USABLE - WAL_SHARE - 10, 0, 0, DISK), None),
        (11, SpaceUsage(USABLE - WAL_SHARE - 10, 0, 0, DISK), DATABASE),
        (11, SpaceUsage(USABLE - WAL_SHARE - 10, 0, WAL_SHARE, DISK), DATABASE),
        (10, SpaceUsage(USABLE - 20 * MIB - 10, 0, 20 * MIB, DISK), None),
        (11, SpaceUsage(USABLE - 20 * MIB - 10, 0, 20 * MIB, DISK), DATABASE),
        (1, SpaceUsage(0, 0, 20 * MIB + 1, DISK), WAL),
        (10, SpaceUsage(0, 0, WAL_SHARE, 10 * MIB + 10), None),
        (11, SpaceUsage(0, 0, WAL_SHARE, 10 * MIB + 10), RESERVE),
        (11, SpaceUsage(0, 1, WAL_SHARE, 10 * MIB + 10), None),
        (11, SpaceUsage(0, 1, WAL_SHARE - 1, 10 * MIB + 10), RESERVE),
        (0, SpaceUsage(0, 0, 0, -1), RESERVE),
    ],
)
def test_each_limit_applies(size: int, space: SpaceUsage, expected: ExceededLimit | None) -> None:
    assert exceeded_limit(size, space, LIMITS) == expected


@pytest.mark.parametrize(
    ("usage", "over", "text", "remedy"),
    [
        (
            SpaceUsage(0, 0, 0, 12 * MIB), RESERVE,
            "12.0 MiB are free on the disk, and new messages need more than 15.0 MiB",
            "free disk space, or lower limits.database_reserve",
        ),
        (
            SpaceUsage(88 * MIB, 0, MIB, DISK), DATABASE,
            "the database uses 89.0 MiB of 100.0 MiB, of which 10.0 MiB are reserved",
            "raise limits.database_bytes",
        ),
        (
            SpaceUsage(0, 0, 21 * MIB, DISK), WAL,
            "the write-ahead log uses 21.0 MiB of 20.0 MiB", "end the process that reads",
        ),
    ],
)  # fmt: skip
def test_a_shortage_is_explained(
    usage: SpaceUsage, over: ExceededLimit, text: str, remedy: str
) -> None:
    assert exceeded_limit(1, usage, LIMITS) == over
    why, what_to_do = shortage(usage, LIMITS, over)
    assert why.startswith(text)
    assert why.endswith(": new messages are refused")
    assert what_to_do.startswith(remedy)


def test_a_disk_that_is_smaller_than_the_reserve_can_never_accept_messages() -> None:
    assert not can_ever_accept(LIMITS.reserve + WAL_SHARE, LIMITS)
    assert can_ever_accept(LIMITS.reserve + WAL_SHARE + 1, LIMITS)


SIZES = st.integers(0, 200 * MIB)


@given(size=SIZES, space=st.builds(SpaceUsage, SIZES, SIZES, SIZES, SIZES))
def test_accepted_messages_leave_the_reserve(size: int, space: SpaceUsage) -> None:
    assert (exceeded_limit(size, space, LIMITS) is None) is (size <= free_room(space, LIMITS))
    if exceeded_limit(size, space, LIMITS) is None:
        assert space.wal <= LIMITS.wal
        assert space.live + space.wal + size + LIMITS.reserve <= LIMITS.database
        assert space.free + space.disk - size >= LIMITS.reserve
