"""The event log: every notable thing a row, written in the transaction of what it tells of.

Each lane has its own counter, and a number is used only in a transaction that commits: so the
counters have no gaps. Sealed events leave for `segments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge.store.database import Transaction

READINGS: Final = "readings"
LOGS: Final = "logs"
SYSTEM: Final = "system"
LANES: Final = (READINGS, LOGS, SYSTEM)

OVERHEAD: Final = 48
"""Bytes that an event costs beside its texts: numbers, times, and its row."""


class NewEvent(NamedTuple):
    """An event that has no number yet; fields as docs/segment-format.md has them."""

    kind: str
    source: str | None = None
    topic: str | None = None
    name: str | None = None
    value: float | None = None
    unit: str | None = None
    level: str | None = None
    text: str | None = None
    qos: int | None = None
    latency_ms: int | None = None
    tags: Mapping[str, str] | None = None


class Row(NamedTuple):
    """An event as it is stored; `time` in ms UTC, `tags` a mapping."""

    seq: int
    time: int
    clock: bool
    kind: str
    source: str | None
    topic: str | None
    name: str | None
    value: float | None
    unit: str | None
    level: str | None
    text: str | None
    qos: int | None
    latency_ms: int | None
    tags: dict[str, str]


class Lane(NamedTuple):
    """What of a lane is not sealed yet; `oldest` is in service seconds."""

    lane: str
    events: int
    bytes: int
    oldest: float | None


_COUNT: Final = """
UPDATE lanes SET last = ?, bytes = bytes + ?, oldest = coalesce(oldest, ?) WHERE lane = ?
"""
_APPEND: Final = """
INSERT INTO events (
    lane, seq, time, clock, kind, source, topic, name, value, unit, level, text, qos, latency_ms,
    tags, bytes, since
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNT_ANEW: Final = """
UPDATE lanes SET
    last = 0, sealed = 0, previous = zeroblob(32), bytes = 0, oldest = NULL, urgent = NULL
"""
_COUNTERS: Final = "SELECT lane, last, sealed FROM lanes"
_LANES: Final = "SELECT lane, last - sealed, bytes, oldest FROM lanes ORDER BY lane"
_READ: Final = """
SELECT seq, time, clock, kind, source, topic, name, value, unit, level, text, qos, latency_ms, tags,
    bytes
FROM events WHERE lane = ? AND seq > ? ORDER BY seq LIMIT ?
"""


class _Counter:
    """A lane's last number and the last sealed one, and bytes that its row does not count yet."""

    __slots__ = ("bytes", "last", "sealed")

    def __init__(self, last: int, sealed: int) -> None:
        self.last = last
        self.sealed = sealed
        self.bytes = 0


_to_json: Final = msgspec.json.Encoder().encode


def append(tx: Transaction, lane: str, event: NewEvent) -> None:
    """Write an event to the log, stamped with the transaction's time."""
    now, size = tx.now, _size(event)
    counter = _counters(tx)[lane]
    counter.last += 1
    counter.bytes += size
    *fields, tags = event
    text = _to_json(dict(tags)).decode() if tags else None
    seq, clock = counter.last, now.synchronised
    tx.run(_APPEND, (lane, seq, now.wall, clock, *fields, text, size, now.service))
    if lane == SYSTEM:
        tx.memo.setdefault("noted", []).append((seq, event))


def noted(tx: Transaction) -> list[tuple[int, NewEvent]]:
    """Return what the gateway itself has logged in this transaction since this was last asked, and
    the numbers in its lane."""
    found: list[tuple[int, NewEvent]] = tx.memo.pop("noted", [])
    return found


def _counters(tx: Transaction) -> dict[str, _Counter]:
    """Return the lanes' counters: read once a transaction, and written at its end."""
    found: dict[str, _Counter] | None = tx.memo.get("lanes")
    if found is None:
        found = {lane: _Counter(last, sealed) for lane, last, sealed in tx.rows(_COUNTERS)}
        tx.memo["lanes"] = found
        tx.before_commit(settle)
    return found


def settle(tx: Transaction) -> None:
    """Write the lanes' counters, and read them anew when they are next asked for."""
    for lane, counter in tx.memo.pop("lanes", {}).items():
        if counter.bytes:
            tx.run(_COUNT, (counter.last, counter.bytes, tx.now.service, lane))


def count_anew(tx: Transaction) -> None:
    """Begin each lane with 1; all that was counted before is sealed."""
    settle(tx)
    tx.run(_COUNT_ANEW)


def _size(event: NewEvent) -> int:
    size = OVERHEAD
    for field in (event.source, event.topic, event.name, event.unit, event.level, event.text):
        if field:
            size += len(field)
    if event.tags:
        size += sum(len(key) + len(value) for key, value in event.tags.items())
    return size


def unsealed(tx: Transaction, lane: str) -> int:
    """Return how many events of a lane are not in a segment yet."""
    counter = _counters(tx)[lane]
    return counter.last - counter.sealed


def fullest(tx: Transaction) -> int:
    """Return how many unsealed events the fuller one of the lanes has that messages go to."""
    return max(unsealed(tx, READINGS), unsealed(tx, LOGS))


def lanes(tx: Transaction) -> list[Lane]:
    """Return what waits to be sealed, lane by lane."""
    return [Lane(*row) for row in tx.rows(_LANES)]


def read(tx: Transaction, lane: str, after: int, count: int, max_bytes: int) -> list[Row]:
    """Return events of a lane with numbers above `after`: at most `count`, and of `max_bytes`.

    There is always one, if there is any.
    """
    found: list[Row] = []
    room = max_bytes
    for *fields, tags, size in tx.run(_READ, (lane, after, count)):
        room -= size
        if found and room < 0:
            break
        found.append(_row(fields, tags))
    return found


def _row(fields: list[Any], tags: str | None) -> Row:
    seq, time, clock, *rest = fields
    return Row._make((seq, time, bool(clock), *rest, msgspec.json.decode(tags) if tags else {}))
