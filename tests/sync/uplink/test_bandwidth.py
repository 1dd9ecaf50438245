"""The bandwidth limit: pieces, times and timeouts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.uplink.http_client import BandwidthLimiter, HttpsLimits, throttled_pieces


class SleepClock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(
    rate=st.integers(512, 10**8),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(1, 16_384)), max_size=50),
)
def test_rate_is_kept_in_any_period(rate: int, steps: list[tuple[float, int]]) -> None:
    limiter, now = BandwidthLimiter(rate), 0.0
    sent: list[tuple[float, int]] = []
    for idle, size in steps:
        now += idle
        wait = limiter.take(now, size)
        assert wait >= 0
        now += wait
        sent.append((now, size))
    for begin in range(len(sent)):
        span = sent[-1][0] - sent[begin][0]
        assert sum(size for _, size in sent[begin:-1]) <= rate * span * 1.000001 + 1e-3


async def test_throttled_body_is_complete_and_takes_its_time() -> None:
    time, limiter = SleepClock(), BandwidthLimiter(4_096)
    body = bytes(range(256)) * 64
    pieces = [
        piece async for piece in throttled_pieces(memoryview(body), limiter, time.clock, time.sleep)
    ]
    assert b"".join(pieces) == body
    assert {len(piece) for piece in pieces} == {1_024}
    assert time.now == pytest.approx(100 + 3.75)  # no pause follows the last piece
    assert [
        piece async for piece in throttled_pieces(memoryview(b"x"), limiter, time.clock, time.sleep)
    ] == [b"x"]
    assert time.now == pytest.approx(104)


async def test_no_wait_without_limit() -> None:
    time, body = SleepClock(), bytes(40_000)
    pieces = [
        piece
        async for piece in throttled_pieces(
            memoryview(body), BandwidthLimiter(), time.clock, time.sleep
        )
    ]
    assert [len(piece) for piece in pieces] == [16_384, 16_384, 7_232]
    assert time.now == 100


@pytest.mark.parametrize(
    ("rate", "piece"), [(1, 512), (2_048, 512), (8_192, 2_048), (10**9, 16_384)]
)
def test_piece_size(rate: int, piece: int) -> None:
    assert BandwidthLimiter(rate).piece == piece


def test_timeout_includes_pauses() -> None:
    assert HttpsLimits(total=60, rate=1_000).seconds(30_000) == 90
    assert HttpsLimits(total=60, rate=1_000, bandwidth=500).seconds(30_000) == 150


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        *((field, 0, "above 0") for field in ("connect", "total", "rate")),
        ("bandwidth", -1, "bandwidth"),
    ],
)
def test_invalid_limits_are_refused(field: str, value: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        HttpsLimits(**{field: value})
