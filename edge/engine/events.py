"""The rows of the event log; an event is written in the transaction that it describes.

Each lane has its own sequence counter. A number is used only if its transaction commits, so the
counters have no gaps. Sealing moves events into `segments`. Before it appends events of others, a
feature checks the room in their lane; the gateway's own events are limited here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from edge.engine import meta
from edge.engine.database import Transaction

READINGS: Final = "readings"
LOGS: Final = "logs"
SYSTEM: Final = "system"
LANES: Final = (READINGS, LOGS, SYSTEM)

EVENT_OVERHEAD: Final = 48
"""Bytes that an event takes beside its texts: numbers, times, and its row."""

MAX_SYSTEM_EVENTS: Final = 50_000
"""Most unsealed events of the gateway's own, a month of heartbeats. If their lane cannot be sealed,
further ones are counted and not written."""

_URGENT: Final = "urgent levels"
_UNWRITTEN: Final = "events unwritten"


class NewEvent(NamedTuple):
    """An event without a number yet; docs/reference/segment-format.md describes the fields."""

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


class StoredEvent(NamedTuple):
    """A stored event; `time` is in ms since 1970 UTC."""

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


class LaneStatus(NamedTuple):
    """The unsealed part of a lane.

    Attributes:
        oldest: the service second of the oldest event.
        urgent: the service second of the oldest urgent event.
    """

    lane: str
    events: int
    bytes: int
    oldest: float | None
    urgent: float | None


_COUNT: Final = """
UPDATE lanes SET
    last = ?, bytes = bytes + ?, oldest = coalesce(oldest, ?), urgent = coalesce(urgent, ?)
WHERE lane = ?
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
_LANES: Final = "SELECT lane, last - sealed, bytes, oldest, urgent FROM lanes ORDER BY lane"
_READ: Final = """
SELECT seq, time, clock, kind, source, topic, name, value, unit, level, text, qos, latency_ms, tags,
    bytes
FROM events WHERE lane = ? AND seq > ? ORDER BY seq LIMIT ?
"""


class _Counter:
    """A lane's counters, ahead of its row until the transaction ends.

    Attributes:
        sealed: the last sealed number.
        bytes: bytes that were appended in this transaction.
        urgent: whether an urgent event was appended in this transaction.
    """

    __slots__ = ("bytes", "last", "sealed", "urgent")

    def __init__(self, last: int, sealed: int) -> None:
        self.last = last
        self.sealed = sealed
        self.bytes = 0
        self.urgent = False


class _Levels(NamedTuple):
    """The levels of urgent events; `text` is the same as a JSON array."""

    names: frozenset[str]
    text: str


_to_json: Final = msgspec.json.Encoder().encode


def append(tx: Transaction, lane: str, event: NewEvent) -> int | None:
    """Append an event to a lane, stamped with the transaction's time.

    Return its number, or `None` if there was no room for it.
    """
    now, size = tx.now, _size(event)
    counter = _counters(tx)[lane]
    if lane == SYSTEM and counter.last - counter.sealed >= MAX_SYSTEM_EVENTS:
        meta.write(tx, _UNWRITTEN, meta.read_number(tx, _UNWRITTEN) + 1)
        return None
    counter.last += 1
    counter.urgent = counter.urgent or event.level in _urgent(tx).names
    counter.bytes += size
    *fields, tags = event
    text = _to_json(dict(tags)).decode() if tags else None
    seq, clock = counter.last, now.synchronised
    tx.run(_APPEND, (lane, seq, now.wall, clock, *fields, text, size, now.service))
    if lane == SYSTEM:
        tx.memo.setdefault("logged", []).append((seq, event))
    return seq


def logged(tx: Transaction) -> Sequence[tuple[int, NewEvent]]:
    """Return (number, event) of the gateway's own events that `take_logged` would return."""
    found: Sequence[tuple[int, NewEvent]] = tx.memo.get("logged", ())
    return found


def take_logged(tx: Transaction) -> list[tuple[int, NewEvent]]:
    """Return (number, event) of the gateway's own events since the last call."""
    found: list[tuple[int, NewEvent]] = tx.memo.pop("logged", [])
    return found


def _counters(tx: Transaction) -> dict[str, _Counter]:
    """Return the lanes' counters, which are read once a transaction and written at its end."""
    found: dict[str, _Counter] | None = tx.memo.get("lanes")
    if found is None:
        found = {lane: _Counter(last, sealed) for lane, last, sealed in tx.rows(_COUNTERS)}
        tx.memo["lanes"] = found
        tx.before_commit(write_counters)
    return found


def write_counters(tx: Transaction) -> None:
    """Write the lanes' counters to their rows, and drop them from the transaction."""
    for lane, counter in tx.memo.pop("lanes", {}).items():
        if counter.bytes:
            since = tx.now.service
            urgent = since if counter.urgent else None
            tx.run(_COUNT, (counter.last, counter.bytes, since, urgent, lane))


def log_unwritten(tx: Transaction) -> None:
    """Log how many events of the gateway's own were not written for lack of room, if any."""
    count = meta.read_number(tx, _UNWRITTEN)
    if count:
        meta.write(tx, _UNWRITTEN, 0.0)
        append(tx, SYSTEM, NewEvent("uplink", name="unwritten", value=count, level="Error"))


def set_urgent(tx: Transaction, levels: Sequence[str]) -> None:
    """Treat events of these levels as urgent from now on."""
    text = _to_json(levels).decode()
    if text != urgent_levels(tx):
        meta.write(tx, _URGENT, text)
        tx.cache.pop(_URGENT, None)


def urgent_levels(tx: Transaction) -> str:
    """Return the levels of urgent events, as a JSON array."""
    return _urgent(tx).text


def _urgent(tx: Transaction) -> _Levels:
    found: _Levels | None = tx.cache.get(_URGENT)
    if found is None:
        text = meta.find_text(tx, _URGENT) or "[]"
        found = tx.cache[_URGENT] = _Levels(frozenset(msgspec.json.decode(text)), text)
    return found


def reset_counters(tx: Transaction) -> None:
    """Restart the counter of each lane at 1; all events must be sealed."""
    write_counters(tx)
    tx.run(_COUNT_ANEW)


def _size(event: NewEvent) -> int:
    size = EVENT_OVERHEAD
    for field in (event.source, event.topic, event.name, event.unit, event.level, event.text):
        if field:
            size += len(field)
    if event.tags:
        size += sum(len(key) + len(value) for key, value in event.tags.items())
    return size


def unsealed(tx: Transaction, lane: str) -> int:
    """Return the number of unsealed events of a lane."""
    counter = _counters(tx)[lane]
    return counter.last - counter.sealed


def fullest_message_lane(tx: Transaction) -> int:
    """Return the unsealed events of the fuller of the two lanes for messages."""
    return max(unsealed(tx, READINGS), unsealed(tx, LOGS))


def lane_status(tx: Transaction) -> list[LaneStatus]:
    """Return the unsealed part of each lane."""
    return [LaneStatus(*row) for row in tx.rows(_LANES)]


def read(tx: Transaction, lane: str, after: int, count: int, max_bytes: int) -> list[StoredEvent]:
    """Return events of a lane with numbers above `after`, at most `count`.

    Together they have at most `max_bytes`, but the first is always returned.
    """
    found: list[StoredEvent] = []
    room = max_bytes
    for *fields, tags, size in tx.run(_READ, (lane, after, count)):
        room -= size
        if found and room < 0:
            break
        found.append(_row(fields, tags))
    return found


def _row(fields: list[Any], tags: str | None) -> StoredEvent:
    seq, time, clock, *rest = fields
    return StoredEvent._make(
        (seq, time, bool(clock), *rest, msgspec.json.decode(tags) if tags else {})
    )
