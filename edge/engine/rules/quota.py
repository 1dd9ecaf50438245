"""Rules for how much a source or an account may store, and which messages are evicted for room.

A source is the sender of messages or the publisher of items (a bare JID). A message is charged with
the bytes of its body and its key. The same rule holds for all stores: a source has a limit of its
own, and a part of each total (1 / `RESERVED_SHARE`) is kept for sources that use little, so that
those who fill the total cannot shut out the others. Source: XEP QoS, "Memory attacks", 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from edge.config.limits import Limits

RESERVED_SHARE: Final = 8

FEW_MESSAGES: Final = 4
"""Number of messages of a source below which it may always use the reserved share of a total."""

FEW_PART: Final = 2048
"""Divisor of a total: a source with less than this part may use the total's reserved share, too. So
256 such sources fit into the reserved share."""

ROW_OVERHEAD: Final = 64
"""Bytes that a stored message counts towards limits in addition to its body and a text."""


def charge(text: str, body: bytes) -> int:
    """Return the bytes charged for a stored message: its body, its id or the session that it is
    for, which a peer has chosen, and `ROW_OVERHEAD`."""
    return len(body) + len(text.encode()) + ROW_OVERHEAD


class Usage(NamedTuple):
    """A number of messages, and the bytes that are charged for them."""

    messages: int = 0
    bytes: int = 0

    def divided_by(self, divisor: int) -> Usage:
        """Return a part of this size."""
        return Usage(self.messages // divisor, self.bytes // divisor)

    def has_room(self, used: Usage, size: int) -> bool:
        """Return whether a message of `size` bytes fits into this size in addition to `used`; the
        first message always fits."""
        if not used.messages:
            return True
        return used.messages < self.messages and used.bytes + size <= self.bytes


NO_USAGE: Final = Usage()


class ExceededLimit(NamedTuple):
    """A limit that a message would exceed: the option's name and its value."""

    name: str
    value: int

    @property
    def text(self) -> str:
        """The text of an error for people: the limit and its value."""
        return f"the limit {self.name} = {self.value} is reached"


# Messages in custody


class EvictionCandidate(NamedTuple):
    """A held message that may be evicted: its row, its charge in bytes, its age in seconds."""

    row: int
    bytes: int
    age: float


class EvictionPlan(NamedTuple):
    """The decision on a new message: the limit that refuses it, or the rows to evict for it."""

    exceeded: ExceededLimit | None
    evict: tuple[int, ...] = ()


FITS: Final = EvictionPlan(None)
"""The decision if there is room, so that nothing is evicted."""


def plan_eviction(
    size: int,
    source: tuple[int, int],
    total: tuple[int, int],
    limits: Limits,
    oldest: Callable[[], Iterable[EvictionCandidate]],
    grace: float,
) -> EvictionPlan:
    """Decide whether one more message of a source is taken, and which are evicted for it.

    A source at its own limit evicts its oldest messages, as many as needed, if they are older than
    `grace`. If that is not enough, none is evicted. A message that replaces others may use the room
    that is reserved for sources with few messages, because it takes nothing from them.

    Args:
        size: the charge of the message, in bytes.
        source, total: the held messages of the source (the sender), and of all sources, as number
            and bytes.
        oldest: yields the messages of the source, oldest first; called only if needed.
        grace: the age in seconds below which a message is not evicted.
    """
    (messages, used), (all_messages, all_used) = source, total
    if (
        messages < limits.held_messages_per_source
        and used + size <= limits.held_bytes_per_source
        and all_messages < limits.held_messages - limits.held_messages // RESERVED_SHARE
        and all_used + size <= limits.held_bytes - limits.held_bytes // RESERVED_SHARE
    ):
        return FITS  # the usual case, in the room that is open to every source
    return _plan_by_limits(size, Usage(*source), Usage(*total), limits, oldest, grace)


def _plan_by_limits(
    size: int,
    source: Usage,
    total: Usage,
    limits: Limits,
    oldest: Callable[[], Iterable[EvictionCandidate]],
    grace: float,
) -> EvictionPlan:
    rows: list[int] = []
    before = total
    per_source = Usage(limits.held_messages_per_source, limits.held_bytes_per_source)
    exceeded = _exceeded("held_{}_per_source", size, source, per_source)
    for candidate in () if exceeded is None else oldest():
        if exceeded is None or candidate.age <= grace:
            break
        rows.append(candidate.row)
        source = Usage(source.messages - 1, source.bytes - candidate.bytes)
        total = Usage(total.messages - 1, total.bytes - candidate.bytes)
        exceeded = _exceeded("held_{}_per_source", size, source, per_source)
    room = _share_of(source, Usage(limits.held_messages, limits.held_bytes))
    if rows:
        room = room._replace(messages=limits.held_messages)
    if rows and total.bytes + size <= before.bytes:
        room = room._replace(bytes=limits.held_bytes)
    exceeded = exceeded or _exceeded("held_{}", size, total, room)
    if exceeded is not None:
        return EvictionPlan(exceeded)
    return EvictionPlan(None, tuple(rows)) if rows else FITS


def _exceeded(name: str, size: int, used: Usage, limit: Usage) -> ExceededLimit | None:
    """Return the limit that one more message would exceed; `name` is as in `LimitNames`."""
    if used.messages + 1 > limit.messages:
        return ExceededLimit(name.format("messages"), limit.messages)
    if used.bytes + size > limit.bytes:
        return ExceededLimit(name.format("bytes"), limit.bytes)
    return None


# Messages that wait for an account


class WaitingUsage(NamedTuple):
    """Numbers and bytes of waiting messages of an account, of a source, in total; or limits."""

    account: Usage
    source: Usage
    total: Usage


class LimitNames(NamedTuple):
    """The option names of the limits in `WaitingUsage`; `{}` stands for `messages` or `bytes`."""

    account: str
    source: str
    total: str


OFFLINE_LIMITS: Final = LimitNames("offline_{}", "offline_{}_per_source", "offline_total_{}")
"""The limits of plain messages stored for offline accounts (XEP-0160); above them, messages are
refused."""

OUTBOX_LIMITS: Final = LimitNames("outbox_{}_per_account", "outbox_{}_per_source", "outbox_{}")
"""The option names of the limits of guaranteed messages that wait in outboxes."""


def exceeded_waiting_limit(
    names: LimitNames, size: int, mine: int, waiting: WaitingUsage, limits: WaitingUsage
) -> ExceededLimit | None:
    """Return the limit that a message for an account would exceed, if any.

    A share of the account's limit, and of the total limit, is reserved for sources with few
    messages. Nothing is evicted.

    Args:
        size: the charge of the message, in bytes.
        mine: the number of messages of its source that wait for this account.
    """
    return (
        _exceeded(names.source, size, waiting.source, limits.source)
        or _exceeded(names.account, size, waiting.account, _share_of(Usage(mine), limits.account))
        or _exceeded(names.total, size, waiting.total, _share_of(waiting.source, limits.total))
    )


def _share_of(source: Usage, total: Usage) -> Usage:
    """Return the part of `total` that a source may use; the whole if it has few messages."""
    if source.messages < max(FEW_MESSAGES, total.messages // FEW_PART):
        return total
    messages, room = total
    return Usage(messages - messages // RESERVED_SHARE, room - room // RESERVED_SHARE)


# Nodes, subscriptions and items


class StoreLimitNames(NamedTuple):
    """The option names of the limits of a store: numbers and bytes of one source, and in total."""

    source: tuple[str, str]
    total: tuple[str, str]


ITEM_LIMITS: Final = StoreLimitNames(
    ("items_per_source", "items_bytes_per_source"), ("items", "items_bytes")
)
QUEUE_LIMITS: Final = StoreLimitNames(
    ("queue_items_per_source", "queue_bytes_per_source"), ("queue_items", "queue_bytes")
)
NODE_LIMITS: Final = StoreLimitNames(("nodes_per_account", ""), ("nodes", ""))
SUBSCRIPTION_LIMITS: Final = StoreLimitNames(
    ("subscriptions_per_account", ""), ("subscriptions", "")
)
DURABLE_SESSION_LIMITS: Final = StoreLimitNames(
    ("durable_sessions_per_account", ""), ("durable_sessions", "")
)
WILL_LIMITS: Final = StoreLimitNames(("will_bytes_per_account", ""), ("will_bytes", ""))


class StoreUsage(NamedTuple):
    """Usage of a store by one source and by all together; or its growth, or the limits of both."""

    source: Usage
    total: Usage


def has_room_for_all(used: int, of_source: int, limit: int) -> bool:
    """Return whether a store that uses so much has so much room that no source can exceed a limit,
    so that the usage of the source need not be known."""
    return used <= of_source and used <= limit - limit // RESERVED_SHARE


def exceeded_store_limit(
    names: StoreLimitNames, growth: StoreUsage, used: StoreUsage, most: StoreUsage
) -> ExceededLimit | None:
    """Return the limit that a store would exceed if it grew, if any; what does not grow exceeds
    nothing, so that everybody can replace an item by a smaller one."""
    return _exceeded_by_growth(
        names.source, growth.source, used.source, most.source
    ) or _exceeded_by_growth(
        names.total, growth.total, used.total, _share_of(used.source, most.total)
    )


def exceeded_number(
    names: StoreLimitNames, source: int, total: int, per_source: int, limit: int, more: int = 1
) -> ExceededLimit | None:
    """Return the limit that a source would exceed with `more` rows or bytes, if any, in a store
    that limits only the one or the other."""
    growth, used = Usage(more), StoreUsage(Usage(source), Usage(total))
    most = StoreUsage(Usage(per_source), Usage(limit))
    return exceeded_store_limit(names, StoreUsage(growth, growth), used, most)


def _exceeded_by_growth(
    names: tuple[str, str], growth: Usage, used: Usage, limit: Usage
) -> ExceededLimit | None:
    for name, more, before, most in zip(names, growth, used, limit, strict=True):
        if more > 0 and before + more > most:
            return ExceededLimit(name, most)
    return None
