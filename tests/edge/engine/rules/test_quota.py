from __future__ import annotations

from collections.abc import Iterator
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.config.limits import Limits
from edge.engine.rules.quota import (
    FEW_MESSAGES,
    ITEM_LIMITS,
    OFFLINE_LIMITS,
    OUTBOX_LIMITS,
    QUEUE_LIMITS,
    RESERVED_SHARE,
    EvictionCandidate,
    EvictionPlan,
    ExceededLimit,
    LimitNames,
    StoreUsage,
    Usage,
    WaitingUsage,
    exceeded_store_limit,
    exceeded_waiting_limit,
    has_room_for_all,
    plan_eviction,
)

GRACE = 3600.0
SOURCE = Usage(4, 1000)
TOTAL = Usage(16, 4000)


def held_limits(source: Usage, total: Usage) -> Limits:
    """Return limits of the messages held for one source and for all sources."""
    return Limits(
        held_messages_per_source=source.messages,
        held_bytes_per_source=source.bytes,
        held_messages=total.messages,
        held_bytes=total.bytes,
    )


LIMITS = held_limits(SOURCE, TOTAL)


def held(*messages: tuple[int, float]) -> list[EvictionCandidate]:
    """Return candidates from (bytes, age), oldest first; their rows count from 1."""
    return [EvictionCandidate(row, size, age) for row, (size, age) in enumerate(messages, 1)]


def plan(
    size: int,
    own: list[EvictionCandidate],
    others: Usage = Usage(),  # noqa: B008 - a constant
    limits: Limits = LIMITS,
) -> EvictionPlan:
    source = Usage(len(own), sum(message.bytes for message in own))
    total = Usage(source.messages + others.messages, source.bytes + others.bytes)
    return plan_eviction(size, source, total, limits, lambda: own, GRACE)


def test_a_message_that_fits_examines_no_candidates() -> None:
    def fail() -> list[EvictionCandidate]:
        raise AssertionError("below its limit, a source's messages are not examined")

    assert plan_eviction(100, Usage(3, 900), Usage(3, 900), LIMITS, fail, GRACE) == EvictionPlan(
        None
    )


NONE_OF_OTHERS = Usage()
OLD, YOUNG = GRACE + 0.001, GRACE
FULL = held_limits(Usage(6, 1000), Usage(40, 400))
"""Limits that `ALL_OF_OTHERS` and a source with six messages reach together."""
ALL_OF_OTHERS = Usage(34, 0)


def exceeded(limit: str, value: int) -> EvictionPlan:
    return EvictionPlan(ExceededLimit(limit, value))


@pytest.mark.parametrize(
    ("size", "own", "others", "limits", "expected"),
    [
        # a source at its limits
        (100, held((900, 0.0)), NONE_OF_OTHERS, LIMITS, EvictionPlan(None)),
        (1000, [], NONE_OF_OTHERS, LIMITS, EvictionPlan(None)),
        (1, held(*[(1, 0.0)] * 4), NONE_OF_OTHERS, LIMITS, exceeded("held_messages_per_source", 4)),
        (101, held((900, 0.0)), NONE_OF_OTHERS, LIMITS, exceeded("held_bytes_per_source", 1000)),
        (1001, [], NONE_OF_OTHERS, LIMITS, exceeded("held_bytes_per_source", 1000)),
        # messages older than the grace are evicted, no more than needed, and only if it helps
        (1, held((1, YOUNG), *[(1, 0.0)] * 3), NONE_OF_OTHERS, LIMITS,
         exceeded("held_messages_per_source", 4)),
        (1, held((1, OLD), *[(1, 0.0)] * 3), NONE_OF_OTHERS, LIMITS, EvictionPlan(None, (1,))),
        (500, held(*[(300, OLD)] * 3, (100, OLD)), NONE_OF_OTHERS, LIMITS,
         EvictionPlan(None, (1, 2))),
        (500, held((300, OLD), (300, 0.0), (300, 0.0)), NONE_OF_OTHERS, LIMITS,
         exceeded("held_bytes_per_source", 1000)),
        (1, held(*[(1, OLD)] * 4), Usage(12, 0), held_limits(SOURCE, Usage(15, 4000)),
         exceeded("held_messages", 15)),
        # a source may replace its own messages in a full store
        (10, held(*[(10, OLD)] * 6), ALL_OF_OTHERS, FULL, EvictionPlan(None, (1,))),
        (11, held(*[(10, OLD)] * 6), ALL_OF_OTHERS, FULL, EvictionPlan(None, (1,))),
        (10, held(*[(10, OLD)] * 6), Usage(30, 340), FULL, EvictionPlan(None, (1,))),
        (11, held(*[(10, OLD)] * 6), Usage(30, 340), FULL, exceeded("held_bytes", 350)),
        (10, held(*[(10, OLD)] * 5), ALL_OF_OTHERS, FULL, exceeded("held_messages", 35)),
        (10, held(*[(10, 0.0)] * 6), ALL_OF_OTHERS, FULL, exceeded("held_messages_per_source", 6)),
    ],
)  # fmt: skip
def test_plans_at_the_limits(
    size: int, own: list[EvictionCandidate], others: Usage, limits: Limits, expected: EvictionPlan
) -> None:
    assert plan(size, own, others, limits) == expected


def test_no_more_candidates_are_examined_than_needed() -> None:
    def candidates() -> Iterator[EvictionCandidate]:
        yield EvictionCandidate(1, 10, 9e9)
        yield EvictionCandidate(2, 10, 1.0)
        raise AssertionError("the candidate before this one was too young")

    source = Usage(4, 995)
    assert plan_eviction(20, source, source, LIMITS, candidates, GRACE).evict == ()


def test_a_share_is_reserved_for_sources_with_few_messages() -> None:
    messages = TOTAL.messages - TOTAL.messages // RESERVED_SHARE
    limits = held_limits(Usage(100, 100_000), TOTAL)
    many = held(*[(1, 0.0)] * FEW_MESSAGES)
    few = held(*[(1, 0.0)] * (FEW_MESSAGES - 1))
    assert plan(1, many, Usage(messages - FEW_MESSAGES, 0), limits) == EvictionPlan(
        ExceededLimit("held_messages", messages)
    )
    assert plan(1, few, Usage(messages - FEW_MESSAGES + 1, 0), limits) == EvictionPlan(None)
    last = Usage(TOTAL.messages - len(few), 0)
    assert plan(1, few, last, limits) == EvictionPlan(
        ExceededLimit("held_messages", TOTAL.messages)
    )
    max_bytes = TOTAL.bytes - TOTAL.bytes // RESERVED_SHARE
    assert plan(1, many, Usage(0, max_bytes - FEW_MESSAGES), limits) == EvictionPlan(
        ExceededLimit("held_bytes", max_bytes)
    )
    assert plan(1, few, Usage(0, max_bytes - FEW_MESSAGES + 1), limits) == EvictionPlan(None)


MESSAGES = st.lists(st.tuples(st.integers(0, 60), st.floats(0, 2 * GRACE)), max_size=8)


@given(
    size=st.integers(0, 120),
    own=MESSAGES,
    others=st.builds(Usage, st.integers(0, 20), st.integers(0, 400)),
    limits=st.builds(
        held_limits,
        st.builds(Usage, st.integers(1, 8), st.integers(1, 200)),
        st.builds(Usage, st.integers(8, 24), st.integers(64, 500)),
    ),
)
def test_a_plan_keeps_all_limits(
    size: int, own: list[tuple[int, float]], others: Usage, limits: Limits
) -> None:
    messages = sorted(held(*own), key=lambda message: -message.age)
    decision = plan(size, messages, others, limits)
    rows = [message.row for message in messages]
    evicted = [message for message in messages if message.row in decision.evict]
    assert list(decision.evict) == rows[: len(evicted)], "the oldest first, in order"
    assert all(message.age > GRACE for message in evicted)
    if decision.exceeded is not None:
        assert not evicted
        return
    remaining = [message for message in messages if message.row not in decision.evict]
    source = Usage(len(remaining) + 1, sum(message.bytes for message in remaining) + size)
    assert source.messages <= limits.held_messages_per_source
    assert source.bytes <= limits.held_bytes_per_source
    before = Usage(len(own), sum(message.bytes for message in messages))
    for used, used_before, most, used_by_others in zip(
        source, before, Usage(limits.held_messages, limits.held_bytes), others, strict=True
    ):
        replaces = bool(evicted) and used <= used_before
        share = 0 if len(remaining) < FEW_MESSAGES or replaces else most // RESERVED_SHARE
        assert used_by_others + used <= most - share
    if evicted:  # evicting one message less would exceed a limit
        fewer = Usage(source.messages + 1, source.bytes + evicted[-1].bytes)
        assert (
            fewer.messages > limits.held_messages_per_source
            or fewer.bytes > limits.held_bytes_per_source
        )


WAITING = WaitingUsage(Usage(16, 1600), Usage(12, 1200), Usage(80, 8000))


@pytest.mark.parametrize(
    ("size", "own", "account", "source", "total", "expected"),
    [
        (100, 0, Usage(), Usage(), Usage(), None),
        (1, 0, Usage(), Usage(12, 12), Usage(), ("source", "messages", 12)),
        (101, 0, Usage(), Usage(11, 1100), Usage(), ("source", "bytes", 1200)),
        (100, 4, Usage(13, 1300), Usage(4, 400), Usage(), None),
        (1, 4, Usage(14, 14), Usage(4, 4), Usage(), ("account", "messages", 14)),
        (1, 4, Usage(5, 1400), Usage(4, 4), Usage(), ("account", "bytes", 1400)),
        (1, 3, Usage(15, 15), Usage(3, 3), Usage(), None),
        (1, 3, Usage(16, 16), Usage(3, 3), Usage(), ("account", "messages", 16)),
        (1, 0, Usage(), Usage(4, 4), Usage(70, 70), ("total", "messages", 70)),
        (1, 0, Usage(), Usage(4, 4), Usage(7, 7000), ("total", "bytes", 7000)),
        (1, 0, Usage(), Usage(3, 3), Usage(79, 7999), None),
        (1, 0, Usage(), Usage(3, 3), Usage(80, 80), ("total", "messages", 80)),
    ],
)
@pytest.mark.parametrize("options", [OFFLINE_LIMITS, OUTBOX_LIMITS])
def test_waiting_messages_are_limited_and_a_share_is_reserved(
    options: LimitNames,
    size: int,
    own: int,
    account: Usage,
    source: Usage,
    total: Usage,
    expected: tuple[str, str, int] | None,
) -> None:
    reached = exceeded_waiting_limit(
        options, size, own, WaitingUsage(account, source, total), WAITING
    )
    if expected is None:
        assert reached is None
    else:
        scope, unit, figure = expected
        assert reached == ExceededLimit(getattr(options, scope).format(unit), figure)


@pytest.mark.parametrize("options", [OFFLINE_LIMITS, OUTBOX_LIMITS])
@pytest.mark.parametrize("unit", ["messages", "bytes"])
def test_limits_are_named_after_options(options: LimitNames, unit: str) -> None:
    assert {option.format(unit) for option in options} <= set(Limits.__struct_fields__)


USAGE = st.builds(Usage, st.integers(0, 40), st.integers(0, 400))


@given(growth=USAGE, own=USAGE, others=USAGE, per_source=USAGE, limit=USAGE)
def test_a_store_with_room_for_all_exceeds_no_limit(
    growth: Usage, own: Usage, others: Usage, per_source: Usage, limit: Usage
) -> None:
    """So the usage of the source need not be read."""
    total = Usage(own.messages + others.messages, own.bytes + others.bytes)
    most, grows = StoreUsage(per_source, limit), StoreUsage(growth, growth)
    exceeded = exceeded_store_limit(ITEM_LIMITS, grows, StoreUsage(own, total), most)
    if all(map(has_room_for_all, map(add, total, growth), per_source, limit)):
        assert exceeded is None
    if exceeded is None and growth.messages:
        assert own.messages + growth.messages <= per_source.messages
        assert total.messages + growth.messages <= limit.messages


def test_a_source_that_uses_little_of_a_large_store_may_use_the_reserved_share() -> None:
    most = StoreUsage(Usage(100_000, 10**9), Usage(204_800, 10**9))
    grows = StoreUsage(Usage(1, 1), Usage(1, 1))

    def exceeded(own: int, total: int) -> ExceededLimit | None:
        used = StoreUsage(Usage(own), Usage(total))
        return exceeded_store_limit(QUEUE_LIMITS, grows, used, most)

    assert exceeded(99, 204_799) is None
    assert exceeded(99, 204_800) == ExceededLimit("queue_items", 204_800)
    assert exceeded(100, 204_799) == ExceededLimit("queue_items", 179_200)
    assert exceeded(100_000, 100_000) == ExceededLimit("queue_items_per_source", 100_000)
