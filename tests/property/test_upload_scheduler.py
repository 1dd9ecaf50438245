"""The upload scheduler keeps its shares for any sizes and order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.uplink.interfaces import SendOrder
from sync.uplink.scheduler import UploadScheduler

LARGEST = 300_000
sizes = st.integers(1, LARGEST)


@given(share=st.floats(0.1, 0.9), lengths=st.lists(sizes, min_size=1, max_size=200))
def test_both_sides_get_their_share(share: float, lengths: list[int]) -> None:
    scheduler = UploadScheduler(share)
    sent = dict.fromkeys(SendOrder, 0)
    for size in lengths:
        scheduler.sealed()  # there is always a new segment
        order = scheduler.next()
        scheduler.sent(order, size)
        sent[order] += size
        ahead = sent[SendOrder.NEWEST] - share * sum(sent.values())
        assert abs(ahead) <= LARGEST


@given(
    share=st.floats(0.1, 0.9),
    steps=st.lists(
        st.one_of(sizes, st.sampled_from(["sealed", "disconnected", "emptied"])), max_size=200
    ),
)
def test_unused_share_is_not_saved_up(share: float, steps: list[int | str]) -> None:
    scheduler = UploadScheduler(share)
    for step in steps:
        if isinstance(step, int):
            scheduler.sent(scheduler.next(), step)
        else:
            getattr(scheduler, step)()
    first = [scheduler.next() for _ in range(2)]
    assert first[0] is first[1]  # asking changes nothing
    scheduler.sealed()
    owed = 0
    while scheduler.next() is SendOrder.OLDEST:
        scheduler.sent(SendOrder.OLDEST, 1_000)
        owed += 1_000
    assert owed <= LARGEST * (1 - share) / share + 2_000


@given(backlog=st.lists(sizes, min_size=1, max_size=60), live=st.lists(sizes, max_size=20))
def test_all_are_sent_and_the_backlog_oldest_first(backlog: list[int], live: list[int]) -> None:
    scheduler = UploadScheduler()
    waiting = deque(enumerate(backlog + live))
    for _ in live:
        scheduler.sealed()
    past = []
    while waiting:
        order = scheduler.next()
        number, size = waiting.pop() if order is SendOrder.NEWEST else waiting.popleft()
        scheduler.sent(order, size)
        if order is SendOrder.OLDEST:
            past.append(number)
    scheduler.emptied()
    assert past == list(range(len(past)))


def test_current_segments_go_first_and_interleave() -> None:
    scheduler = UploadScheduler(0.25)
    scheduler.disconnected()
    orders = []
    for _ in range(10):
        order = scheduler.next()
        scheduler.sent(order, 100)
        orders.append(order is SendOrder.NEWEST)
    assert orders == [True, False, False, False, True, False, False, False, True, False]


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_share_must_be_between_0_and_1(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        UploadScheduler(share)
