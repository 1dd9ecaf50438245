"""Rules for how much a source or an account may store, and which messages are evicted for room.

A source is the sender of messages (a bare JID). A message is charged with the bytes of its body and
its key. A part of each total (1 / `RESERVED_SHARE`) is kept for sources with few messages, so that
those who fill the total cannot shut out the others. Source: XEP QoS, "Memory attacks", 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from edge.config.limits import Limits

RESERVED_SHARE: Final = 8

FEW_MESSAGES: Final = 4
"""Number of messages of a source below which it may use the reserved share of a total."""

ROW_OVERHEAD: Final = 64
"""Bytes that a stored message counts towards limits in addition to its body and its id."""


def charge(msg_id: str, body: bytes) -> int:
    """Return the bytes charged for a stored message: its body, its id and `ROW_OVERHEAD`."""
    return len(body) + len(msg_id.encode()) + ROW_OVERHEAD


class Usage(NamedTuple):
    """A number of messages, and the bytes that are charged for them."""

    messages: int = 0
    bytes: int = 0


class ExceededLimit(NamedTuple):
    """A limit that a message would exceed: the option's name and its value."""

    name: str
    value: int


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
    source: Usage,
    total: Usage,
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
        source, total: the held messages of the source (the sender), and of all sources.
        oldest: yields the messages of the source, oldest first; called only if needed.
        grace: the age in seconds below which a message is not evicted.
    """
    if (
        source.messages < limits.held_messages_per_source
        and source.bytes + size <= limits.held_bytes_per_source
        and total.messages < limits.held_messages - limits.held_messages // RESERVED_SHARE
        and total.bytes + size <= limits.held_bytes - limits.held_bytes // RESERVED_SHARE
    ):
        return FITS  # the usual case, in the room that is open to every source
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
    if source.messages < FEW_MESSAGES:
        return total
    messages, room = total
    return Usage(messages - messages // RESERVED_SHARE, room - room // RESERVED_SHARE)
