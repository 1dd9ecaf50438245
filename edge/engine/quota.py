"""How much a source may have in custody, and who makes room when it is full; how much is stored for
an account that is away.

Messages are charged with the bytes of their body and their key. An eighth of the total is kept for
sources that hold few messages, so that some who fill everything cannot shut out the others. Source:
XEP QoS, "Memory attacks", 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

RESERVED_SHARE: Final = 8
"""One part in so many of the total limits is for sources that hold less than `FEW` messages."""

FEW_MESSAGES: Final = 4


ROW_OVERHEAD: Final = 64
"""Bytes that a stored message is charged with beside its body and its key."""


def charge(msg_id: str, body: bytes) -> int:
    """Return the bytes that storing a message is charged with."""
    return len(body) + len(msg_id.encode()) + ROW_OVERHEAD


class Usage(NamedTuple):
    """How many messages are held and how many bytes they are charged with."""

    messages: int = 0
    bytes: int = 0


class CustodyLimits(Protocol):
    """The limits of messages in custody; `edge.config.limits.Limits` has them.

    `_per_source` limits one source, the others all sources together.
    """

    @property
    def held_messages_per_source(self) -> int:
        """Messages of one source."""

    @property
    def held_bytes_per_source(self) -> int:
        """Bytes of one source."""

    @property
    def held_messages(self) -> int:
        """Messages of all sources."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all sources."""


class WaitingUsage(NamedTuple):
    """What is stored: for one account, from one source, and in all; or the most of each."""

    account: Usage
    source: Usage
    total: Usage


class ExceededLimit(NamedTuple):
    """The limit that a message would exceed: whose it is, and its figure."""

    name: str
    value: int


class EvictionCandidate(NamedTuple):
    """A held message that might make room: its row, its charge in bytes, its age in seconds."""

    row: int
    bytes: int
    age: float


class EvictionPlan(NamedTuple):
    """What becomes of an offer: the limit it would exceed, or the rows that make room for it."""

    over: ExceededLimit | None
    evict: tuple[int, ...] = ()


FITS: Final = EvictionPlan(None)
"""There is room, and nothing has to go for it."""


def plan_eviction(
    size: int,
    source: Usage,
    total: Usage,
    limits: CustodyLimits,
    oldest: Callable[[], Iterable[EvictionCandidate]],
    grace: float,
) -> EvictionPlan:
    """Decide on a further message of `size` bytes.

    `oldest` is called where the source is at its own limit: its held messages, oldest first. Those
    older than `grace` seconds make room, as many as it takes; where that is not enough, none goes.
    To replace its own, it may use what is reserved for those who hold few: nobody loses by that.
    """
    rows: list[int] = []
    before = total
    for candidate in oldest() if over_source(size, source, limits) else ():
        if over_source(size, source, limits) is None or candidate.age <= grace:
            break
        rows.append(candidate.row)
        source = Usage(source.messages - 1, source.bytes - candidate.bytes)
        total = Usage(total.messages - 1, total.bytes - candidate.bytes)
    messages, room = _open_to(source, Usage(limits.held_messages, limits.held_bytes))
    if rows:
        messages = limits.held_messages
    if rows and total.bytes + size <= before.bytes:
        room = limits.held_bytes
    over = over_source(size, source, limits) or over_total(size, total, Usage(messages, room))
    if over is not None:
        return EvictionPlan(over)
    return EvictionPlan(None, tuple(rows)) if rows else FITS


def over_source(size: int, source: Usage, limits: CustodyLimits) -> ExceededLimit | None:
    """Tell which of the source's own limits a further message of `size` bytes would exceed."""
    if source.messages + 1 > limits.held_messages_per_source:
        return ExceededLimit("held_messages_per_source", limits.held_messages_per_source)
    if source.bytes + size > limits.held_bytes_per_source:
        return ExceededLimit("held_bytes_per_source", limits.held_bytes_per_source)
    return None


def over_total(size: int, total: Usage, room: Usage) -> ExceededLimit | None:
    """Tell which of the limits of all sources a further message would exceed.

    `room` is what of them is open to its source.
    """
    if total.messages + 1 > room.messages:
        return ExceededLimit("held_messages", room.messages)
    if total.bytes + size > room.bytes:
        return ExceededLimit("held_bytes", room.bytes)
    return None


class LimitNames(NamedTuple):
    """How the options are named that bound what waits somewhere; `{}` is `messages` or `bytes`."""

    account: str
    source: str
    total: str


OFFLINE_LIMITS: Final = LimitNames("offline_{}", "offline_{}_per_source", "offline_total_{}")
"""Of plain messages for accounts that are away. What was stored first is kept (XEP-0160)."""

OUTBOX_LIMITS: Final = LimitNames("outbox_{}_per_account", "outbox_{}_per_source", "outbox_{}")
"""Of messages that are handed on."""


def exceeded_waiting_limit(
    options: LimitNames, size: int, mine: int, waiting: WaitingUsage, limits: WaitingUsage
) -> ExceededLimit | None:
    """Tell which limit a further message of `size` bytes that waits for an account would exceed.

    Args:
        options: the names of the limits.
        size: what the message is charged with, in bytes.
        mine: how many messages of its source wait for that account.
        waiting: what waits for the account, of the source for anybody, and in all.
        limits: the most of each. Of an account's room and of the whole, an eighth is for sources
            that have few messages there, so that nobody shuts the others out. Nothing makes room.
    """
    checks = (
        (waiting.source, limits.source, options.source),
        (waiting.account, _open_to(Usage(mine), limits.account), options.account),
        (waiting.total, _open_to(waiting.source, limits.total), options.total),
    )
    for used, most, option in checks:
        if used.messages + 1 > most.messages:
            return ExceededLimit(option.format("messages"), most.messages)
        if used.bytes + size > most.bytes:
            return ExceededLimit(option.format("bytes"), most.bytes)
    return None


def _open_to(one: Usage, total: Usage) -> Usage:
    """Return what of the total is open to one: all of it to those who hold few messages."""
    if one.messages < FEW_MESSAGES:
        return total
    messages, room = total
    return Usage(messages - messages // RESERVED_SHARE, room - room // RESERVED_SHARE)
