"""The rows of the event log; an event is written in the transaction that it describes.

Each lane has its own sequence counter. A number is used only if its transaction commits, so the
counters have no gaps. A row of `event_batches` holds, in MessagePack, one or more events that a
transaction appended to a lane. The counters are computed from the rows once and then kept in
memory. Sealing moves events into `segments`. A feature checks the room in a lane before it appends
events of devices. This module limits the gateway's own events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.engine.store.event_types import NewEvent as NewEvent

READINGS: Final = "readings"
LOGS: Final = "logs"
SYSTEM: Final = "system"
LANES: Final = (READINGS, LOGS, SYSTEM)

EVENT_OVERHEAD: Final = 48
"""Bytes counted for each event in addition to its texts: for numbers, times, and its row."""

MAX_SYSTEM_EVENTS: Final = 50_000
"""Maximum unsealed events in the lane `system`, which has the gateway's own events: a month of
heartbeats. If the lane cannot be sealed and reaches it, further events are only counted."""

PROTOCOL_TAGS: Final[tuple[str, ...]] = ("protocol", "version", "transport")
"""The tags by which events name a protocol that is not XMPP. Peers do not choose their values, so
there are few, and events for many sources have them, too."""

_URGENT: Final = "urgent levels"
_UNWRITTEN: Final = "events unwritten"
_LANES: Final = "lanes"


_Fields: TypeAlias = NewEvent | tuple[Any, ...]
"""A `NewEvent`, or a tuple of its fields."""


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


class UnsealedLane(NamedTuple):
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


_INSERT: Final = """
INSERT INTO event_batches (lane, last, first, time, clock, since, urgent, total, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNTERS: Final = "SELECT lane, last, sealed, total FROM lane_counters"
_STATUS: Final = """
SELECT lane, last - sealed, bytes, oldest, urgent FROM lane_counters ORDER BY lane
"""
_READ: Final = """
SELECT b.first, b.time, b.clock, b.data, l.sealed
FROM lanes AS l JOIN event_batches AS b ON b.lane = l.lane
WHERE l.lane = ? AND b.last > ? ORDER BY b.last
"""
_CONTAINING: Final = """
SELECT last, total, data FROM event_batches WHERE lane = ? AND last >= ? ORDER BY last LIMIT 1
"""
_SEAL: Final = "UPDATE lanes SET sealed = ?, sealed_bytes = ? WHERE lane = ?"
_DELETE: Final = "DELETE FROM event_batches WHERE lane = ? AND last <= ?"
_RESTART: Final = "UPDATE lanes SET sealed = 0, sealed_bytes = 0, previous = zeroblob(32)"


class _Lane:
    """The counters of a lane in memory, including its events that have no row yet.

    Attributes:
        last: the last number.
        sealed: the last sealed number.
        total: the bytes of the epoch's events up to `last`.
        unwritten: events that have no row yet.
        urgent: the number of the last urgent event without a row, if any.
    """

    __slots__ = ("lane", "last", "sealed", "total", "unwritten", "urgent")

    def __init__(self, lane: str, last: int, sealed: int, total: int) -> None:
        self.lane = lane
        self.last = last
        self.sealed = sealed
        self.total = total
        self.unwritten: list[_Fields] = []
        self.urgent: int | None = None

    def write(self, tx: Transaction) -> None:
        found, urgent, now = self.unwritten, self.urgent, tx.now
        if found:
            self.unwritten, self.urgent = [], None
            numbers = self.lane, self.last, self.last - len(found) + 1
            times = now.wall, now.synchronised, now.service
            tx.run(_INSERT, (*numbers, *times, urgent, self.total, _pack(found)))

    def take_back(self, size: int, urgent: int | None) -> None:
        """Undo the last append (an event of `size` bytes); restore the old value of `urgent`."""
        del self.unwritten[-1:]
        self.last -= 1
        self.total -= size
        self.urgent = urgent


_to_json: Final = msgspec.json.Encoder().encode
_pack: Final = msgspec.msgpack.Encoder(enc_hook=dict).encode  # tags of any mapping type
_unpack: Final = msgspec.msgpack.Decoder(list[NewEvent]).decode


def append(tx: Transaction, lane: str, event: NewEvent) -> int | None:
    """Append an event to a lane, with the transaction's time.

    Return its number, or `None` if it was not written because the lane `system` is full.
    """
    counters = _lanes(tx)[lane]
    if lane != SYSTEM:
        return _append(tx, counters, event)
    if counters.last - counters.sealed >= MAX_SYSTEM_EVENTS:
        meta.write(tx, _UNWRITTEN, meta.read_number(tx, _UNWRITTEN) + 1)
        return None
    number = _append(tx, counters, event)
    appended: list[tuple[int, NewEvent]] = tx.memo.setdefault("logged", [])
    appended.append((number, event))
    tx.on_undo(appended.pop)
    return number


def append_received(
    tx: Transaction,
    lane: str,
    event: NewEvent,
    source: str,
    topic: str | None,
    qos: int | None,
    latency_ms: int | None,
) -> None:
    """Append an event, decoded from a message or an item, to the lane `readings` or `logs`.

    The arguments after `event` replace its fields of the same names.
    """
    kind, _source, _topic, name, value, unit, level, text, _qos, _latency, tags = event
    complete = (kind, source, topic, name, value, unit, level, text, qos, latency_ms, tags)
    _append(tx, _lanes(tx)[lane], complete)


def _append(tx: Transaction, lane: _Lane, event: _Fields) -> int:
    size, levels = _size(event), urgent_levels(tx)  # may need the database: change nothing before
    tx.on_undo(lane.take_back, size, lane.urgent)
    if not lane.unwritten:
        tx.write_later(lane.write)
    lane.last += 1
    lane.total += size
    if event[6] in levels:
        lane.urgent = lane.last
    lane.unwritten.append(event)
    return lane.last


def logged(tx: Transaction) -> Sequence[tuple[int, NewEvent]]:
    """Return (number, event) of each of the gateway's own events in this transaction.

    The events are kept for `take_logged`. A sequence that is not empty grows with further events.
    """
    found: Sequence[tuple[int, NewEvent]] = tx.memo.get("logged", ())
    return found


def take_logged(tx: Transaction) -> list[tuple[int, NewEvent]]:
    """Return the gateway's own events in this transaction as (number, event), and forget them."""
    found: list[tuple[int, NewEvent]] = tx.memo.pop("logged", [])
    return found


def _lanes(tx: Transaction) -> dict[str, _Lane]:
    """Return the counters of each lane; their rows are read once."""
    found: dict[str, _Lane] | None = tx.cache.get(_LANES)
    if found is None:
        found = tx.cache[_LANES] = {row[0]: _Lane(*row) for row in tx.rows(_COUNTERS)}
    return found


def log_unwritten(tx: Transaction) -> None:
    """Log how many events of the gateway's own were not written for lack of room, if any."""
    count = meta.read_number(tx, _UNWRITTEN)
    if count:
        meta.write(tx, _UNWRITTEN, 0.0)
        append(tx, SYSTEM, NewEvent("uplink", name="unwritten", value=count, level="Error"))


def set_urgent(tx: Transaction, levels: Sequence[str]) -> None:
    """Set the levels of urgent events, which the uplink seals sooner, for events from now on."""
    if frozenset(levels) != urgent_levels(tx):
        meta.write(tx, _URGENT, _to_json(levels).decode())
        tx.cache.pop(_URGENT, None)


def urgent_levels(tx: Transaction) -> frozenset[str]:
    """Return the levels of urgent events; their row, a JSON array, is read once."""
    found: frozenset[str] | None = tx.cache.get(_URGENT)
    if found is None:
        text = meta.find_text(tx, _URGENT) or "[]"
        found = tx.cache[_URGENT] = frozenset(msgspec.json.decode(text))
    return found


def delete_sealed(tx: Transaction, lane: str, last: int) -> None:
    """Delete the events of a lane up to the number `last`, because they are sealed or lost.

    A row stays if it also has a later event.
    """
    end, total, data = tx.row(_CONTAINING, (lane, last))
    later = _unpack(data)[last - end :] if end > last else ()
    tx.run(_SEAL, (last, total - sum(map(_size, later)), lane))
    tx.run(_DELETE, (lane, last))
    _lanes(tx)[lane].sealed = last


def reset_counters(tx: Transaction) -> None:
    """Restart the counter of each lane at 1; all events must be sealed."""
    tx.run(_RESTART)
    tx.cache.pop(_LANES, None)


def _size(event: _Fields) -> int:
    _kind, source, topic, name, _value, unit, level, text, _qos, _latency, tags = event
    size = EVENT_OVERHEAD
    for field in (source, topic, name, unit, level, text):
        if field:
            size += len(field)
    if tags:
        for key, value in tags.items():
            size += len(key) + len(value)
    return size


def last_numbers(tx: Transaction, lane: str) -> tuple[int, int]:
    """Return the number of the last sealed event of a lane, and of its last event."""
    counters = _lanes(tx)[lane]
    return counters.sealed, counters.last


def unsealed(tx: Transaction, lane: str) -> int:
    """Return the number of unsealed events of a lane."""
    counters = _lanes(tx)[lane]
    return counters.last - counters.sealed


def fullest_message_lane(tx: Transaction) -> int:
    """Return the number of unsealed events in `readings` or in `logs`, whichever has more."""
    lanes = _lanes(tx)
    readings, logs = lanes[READINGS], lanes[LOGS]
    return max(readings.last - readings.sealed, logs.last - logs.sealed)


def unsealed_lanes(tx: Transaction) -> list[UnsealedLane]:
    """Return the number, size and age of the unsealed events of each lane."""
    return [UnsealedLane(*row) for row in tx.rows(_STATUS)]


def read(tx: Transaction, lane: str, after: int, count: int, max_bytes: int) -> list[StoredEvent]:
    """Return at most `count` events of a lane, in order, with numbers above `after`.

    Together they have at most `max_bytes`, but the first is always returned.
    """
    found: list[StoredEvent] = []
    room = max_bytes
    for first, time, clock, data, sealed in tx.run(_READ, (lane, after)):
        for seq, event in enumerate(_unpack(data), first):
            if seq <= after or seq <= sealed:
                continue
            room -= _size(event)
            if found and (room < 0 or len(found) >= count):
                return found
            *fields, tags = event
            found.append(StoredEvent._make((seq, time, bool(clock), *fields, tags or {})))
    return found
