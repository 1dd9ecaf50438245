"""The event log: every notable thing a row, written in the transaction of what it tells of.

Each lane has its own counter, and a number is used only in a transaction that commits: so the
counters have no gaps. Sealed events leave for `segments`. Who brings events of others asks first
whether there is room for them; the gateway's own are bounded here.
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
"""Bytes that an event costs beside its texts: numbers, times, and its row."""


MAX_SYSTEM_EVENTS: Final = 50_000
"""Events of the gateway's own that wait to be sealed, a month of heartbeats: beyond, if its lane
cannot be sealed, they are counted and not written."""

_URGENT: Final = "urgent levels"
_UNWRITTEN: Final = "events unwritten"


class NewEvent(NamedTuple):
    """An event that has no number yet; fields as docs/reference/segment-format.md has them."""

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


class LaneStatus(NamedTuple):
    """What of a lane is not sealed yet; `oldest`, and `urgent`, the oldest urgent event, are in
    service seconds."""

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
    """A lane's last number and the last sealed one, and what its row does not have yet: bytes, and
    that an event is urgent."""

    __slots__ = ("bytes", "last", "sealed", "urgent")

    def __init__(self, last: int, sealed: int) -> None:
        self.last = last
        self.sealed = sealed
        self.bytes = 0
        self.urgent = False


class _Levels(NamedTuple):
    """From which levels on events are urgent; `text` is a JSON array of the same."""

    names: frozenset[str]
    text: str


_to_json: Final = msgspec.json.Encoder().encode


def append(tx: Transaction, lane: str, event: NewEvent) -> int | None:
    """Write an event to the log, stamped with the transaction's time.

    Returns its number, `None` if there was no room for it.
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
        tx.memo.setdefault("noted", []).append((seq, event))
    return seq


def take_logged(tx: Transaction) -> list[tuple[int, NewEvent]]:
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
        tx.before_commit(write_counters)
    return found


def write_counters(tx: Transaction) -> None:
    """Write the lanes' counters, and read them anew when they are next asked for."""
    for lane, counter in tx.memo.pop("lanes", {}).items():
        if counter.bytes:
            since = tx.now.service
            urgent = since if counter.urgent else None
            tx.run(_COUNT, (counter.last, counter.bytes, since, urgent, lane))


def log_unwritten(tx: Transaction) -> None:
    """Log how many events of the gateway's own were not written, now that there is room again."""
    count = meta.read_number(tx, _UNWRITTEN)
    if count:
        meta.write(tx, _UNWRITTEN, 0.0)
        append(tx, SYSTEM, NewEvent("uplink", name="unwritten", value=count, level="Error"))


def set_urgent(tx: Transaction, levels: Sequence[str]) -> None:
    """Take events of these levels for urgent from now on."""
    text = _to_json(levels).decode()
    if text != urgent_levels(tx):
        meta.write(tx, _URGENT, text)
        tx.known.pop(_URGENT, None)


def urgent_levels(tx: Transaction) -> str:
    """Return the levels of urgent events, as a JSON array."""
    return _urgent(tx).text


def _urgent(tx: Transaction) -> _Levels:
    """Return the same; they are read once."""
    found: _Levels | None = tx.known.get(_URGENT)
    if found is None:
        text = meta.find_text(tx, _URGENT) or "[]"
        found = tx.known[_URGENT] = _Levels(frozenset(msgspec.json.decode(text)), text)
    return found


def reset_counters(tx: Transaction) -> None:
    """Begin each lane with 1; all that was counted before is sealed."""
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
    """Return how many events of a lane are not in a segment yet."""
    counter = _counters(tx)[lane]
    return counter.last - counter.sealed


def fullest_message_lane(tx: Transaction) -> int:
    """Return how many unsealed events the fuller one of the lanes has that messages go to."""
    return max(unsealed(tx, READINGS), unsealed(tx, LOGS))


def lane_status(tx: Transaction) -> list[LaneStatus]:
    """Return what waits to be sealed, lane by lane."""
    return [LaneStatus(*row) for row in tx.rows(_LANES)]


def read(tx: Transaction, lane: str, after: int, count: int, max_bytes: int) -> list[StoredEvent]:
    """Return events of a lane with numbers above `after`: at most `count`, and of `max_bytes`.

    There is always one, if there is any.
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
