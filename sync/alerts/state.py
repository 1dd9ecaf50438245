"""The state that the alert rules evaluate: bounded facts about each gateway.

Events may be added in any order: of each kind of fact, those with the highest numbers or times are
kept, not those that were added last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from sync.reports.shared.thresholds import BACKLOG_S, CLOCK_STEPPED, LIFE_EVENTS, RESET_EVENTS

MAX_GATEWAYS: Final = 5_000
"""Default maximum number of gateways that are monitored, with some 10 kB of memory each. Option
`alerts --gateways`."""

MAX_QUEUES: Final = 128
"""Maximum number of monitored queues of a gateway. It reports 65 at once, later perhaps others."""

MAX_LIMITS: Final = 64
"""Maximum number of limits of a gateway whose refusals are counted. A gateway has some thirty."""

MAX_SENSORS: Final = 1_024
"""Maximum number of monitored sensors of a gateway: a device can invent any number of names."""

MAX_NAME: Final = 512
"""Longest name of a queue, limit or sensor that is monitored, in characters."""

MAX_DEPTHS: Final = 64
"""Number of events with the depth of a queue that are kept of it: those of the last five hours. A
queue counts as stuck after half an hour."""

MAX_SEGMENTS: Final = 32
"""Number of the last segments kept of a lane: at the usual interval, two and a half hours."""

MAX_READINGS: Final = 16
"""Number of the last readings of a sensor whose times are kept. Their median interval tolerates
seven outliers."""

MAX_DAYS: Final = 9
"""Number of days (UTC) whose refusals are kept: today, and eight days before it as the baseline."""

MAX_ARRIVAL_MINUTES: Final = 1_440
"""Number of the last minutes kept in which a gateway's file arrived: they span a day or more."""

LATE_MS: Final = round(1000 * BACKLOG_S)
"""Time in ms from sealing to arrival after which a segment counts as delayed."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


class Event(NamedTuple):
    """The relevant columns of an event in the tables. Times are milliseconds since 1970 UTC."""

    gateway: str
    epoch: str
    lane: str
    seq: int
    time: int
    kind: str
    source: str | None
    topic: str | None
    name: str | None
    value: float | None
    tags: Mapping[str, str]
    arrived: int


class Segment(NamedTuple):
    """An accepted segment of a lane, with its first and last sequence number.

    `sealed` and `arrived` are in ms since 1970 UTC; `service` is `sealed` in service seconds.
    """

    epoch: str
    first: int
    last: int
    sealed: int
    service: float
    arrived: int


class EventPosition(NamedTuple):
    """The position of an event in its lane, and its time."""

    epoch: str
    seq: int
    time: int


class Heartbeat(NamedTuple):
    """A system event of a running gateway or, if `name` is `stop`, of its clean stop."""

    epoch: str
    seq: int
    name: str


class QueueDepth(NamedTuple):
    """An event that reports the depth (number of items) of a queue.

    `stalled` is true if not all items are delayed and none was delivered since the previous event.
    """

    epoch: str
    seq: int
    time: int
    stalled: bool
    depth: int
    members: int


class RefusalCounts(msgspec.Struct):
    """Refusals because of one limit: counts by hour since 1970, last refusal, and its source."""

    hours: dict[int, int]
    last: EventPosition
    source: str


class Sensor(msgspec.Struct):
    """The last reading of a sensor, and the sorted times of recent ones in seconds since 1970."""

    last: EventPosition
    seconds: list[int]


class GatewayState(
    msgspec.Struct,
    rename={  # the names in the state file
        "last_arrival": "arrived",
        "heartbeat": "sign",
        "last_event": "told",
        "last_reading": "read",
        "last_reset": "reset",
        "last_late": "late",
        "system_segments": "system",
        "reading_segments": "readings",
        "refusals": "rules",
        "unmonitored": "beyond",
    },
):
    """The facts about a gateway.

    `last_arrival` is when its last segment in the tables arrived (ms), `last_late` when its last
    delayed segment of readings arrived (ms). `last_event` is its last event in the system lane,
    `last_reading` the last one in the readings lane, `last_reset` the last of `RESET_EVENTS`:
    a sensor's silence is measured from then at the earliest. `days` are the days since 1970 with
    system events. `unmonitored` counts events of queues, limits and sensors not monitored.
    """

    last_arrival: int = 0
    heartbeat: Heartbeat | None = None
    last_event: EventPosition | None = None
    last_reading: EventPosition | None = None
    last_reset: EventPosition | None = None
    last_late: int = 0
    system_segments: list[Segment] = []
    reading_segments: list[Segment] = []
    days: list[int] = []
    queues: dict[str, list[QueueDepth]] = {}
    refusals: dict[str, RefusalCounts] = {}
    sensors: dict[str, Sensor] = {}
    unmonitored: int = 0


class FleetState(
    msgspec.Struct,
    rename={  # the names in the state file
        "arrival_minutes": "heard",
        "unmonitored": "beyond",
    },
):
    """The facts about the fleet.

    `arrival_minutes` are the minutes since 1970 in which something arrived. `versions` has, by
    table, the last version that was read. At most `max_gateways` gateways are monitored.
    `unmonitored` counts arrivals of others, of which `unmonitored_since` and `unmonitored_until`
    are the first and the last (ms); a new count begins after a day without one.
    """

    gateways: dict[str, GatewayState] = {}
    arrival_minutes: list[int] = []
    versions: dict[str, int] = {}
    max_gateways: int = MAX_GATEWAYS
    unmonitored: int = 0
    unmonitored_since: int = 0
    unmonitored_until: int = 0


_Item = TypeVar("_Item", int, Segment, QueueDepth)
_Position = TypeVar("_Position", EventPosition, Heartbeat)


def insert_bounded(items: list[_Item], item: _Item, limit: int) -> None:
    """Insert an item into a sorted list unless present; keep the `limit` greatest."""
    at = bisect_left(items, item)
    if items[at : at + 1] != [item]:
        items.insert(at, item)
        del items[:-limit]


def add_arrival(state: FleetState, gateway: str, arrived: int) -> GatewayState | None:
    """Record that a segment arrived; return the gateway's state, None if it is not monitored."""
    insert_bounded(state.arrival_minutes, arrived // MINUTE_MS, MAX_ARRIVAL_MINUTES)
    if gateway not in state.gateways and len(state.gateways) >= state.max_gateways:
        if arrived - state.unmonitored_until > DAY_MS:
            state.unmonitored, state.unmonitored_since = 0, arrived
        state.unmonitored += 1
        state.unmonitored_until = max(state.unmonitored_until, arrived)
        return None
    known = state.gateways.setdefault(gateway, GatewayState())
    known.last_arrival = max(known.last_arrival, arrived)
    return known


def add_segment(gateway: GatewayState, lane: str, segment: Segment) -> None:
    """Record an accepted segment of a lane; segments of the lane `logs` are ignored."""
    if lane == "system":
        insert_bounded(gateway.system_segments, segment, MAX_SEGMENTS)
    elif lane == "readings":
        insert_bounded(gateway.reading_segments, segment, MAX_SEGMENTS)
        if segment.arrived - segment.sealed > LATE_MS:
            gateway.last_late = max(gateway.last_late, segment.arrived)


def add_event(gateway: GatewayState, event: Event) -> None:
    """Add an event of the lane `system` or `readings`.

    An event dated after its arrival gets the time of its arrival, so that a fast clock hides
    nothing.
    """
    position = EventPosition(event.epoch, event.seq, min(event.time, event.arrived))
    if event.lane == "readings":
        gateway.last_reading = _later(gateway.last_reading, position)
        if event.kind == "reading":
            _add_reading(gateway, event, position)
        return
    gateway.last_event = _later(gateway.last_event, position)
    _add_day(gateway, position.time // DAY_MS)
    name = event.name or ""
    if event.kind == "system":
        if name in LIFE_EVENTS or name == CLOCK_STEPPED:
            heartbeat = Heartbeat(event.epoch, event.seq, name)
            gateway.heartbeat = _later(gateway.heartbeat, heartbeat)
        if name in RESET_EVENTS:
            gateway.last_reset = _later(gateway.last_reset, position)
    elif event.kind == "limit":
        _add_refusal(gateway, name, event, position)
    elif event.kind == "queue" and name == "depth":
        _add_depth(gateway, event, position)


def _later(before: _Position | None, position: _Position) -> _Position:
    return position if before is None or position > before else before


def _add_day(gateway: GatewayState, day: int) -> None:
    """Note a day with events; delete the refusals of days that are no longer kept."""
    if day in gateway.days:
        return
    insert_bounded(gateway.days, day, MAX_DAYS)
    first = gateway.days[0] * 24
    for counts in gateway.refusals.values():
        counts.hours = {hour: count for hour, count in counts.hours.items() if hour >= first}


def _add_refusal(gateway: GatewayState, name: str, event: Event, position: EventPosition) -> None:
    if not _is_monitored(gateway, gateway.refusals, name, MAX_LIMITS):
        return
    new = RefusalCounts({}, position, event.source or "")
    counts = gateway.refusals.setdefault(name, new)
    if position >= counts.last:
        counts.last, counts.source = position, event.source or ""
    hour = position.time // HOUR_MS
    if hour >= gateway.days[0] * 24:
        counts.hours[hour] = counts.hours.get(hour, 0) + int(event.value or 1)


def _add_depth(gateway: GatewayState, event: Event, position: EventPosition) -> None:
    queue = event.topic or ""
    if not _is_monitored(gateway, gateway.queues, queue, MAX_QUEUES):
        return
    depth = int(event.value or 0)
    due = depth - _number(event.tags, "delayed")
    stalled = due > 0 and _number(event.tags, "delivered") == 0
    row = QueueDepth(*position, stalled, depth, _number(event.tags, "members"))
    insert_bounded(gateway.queues.setdefault(queue, []), row, MAX_DEPTHS)


def _add_reading(gateway: GatewayState, event: Event, position: EventPosition) -> None:
    """Add a reading to its sensor, identified as in the sensors report."""
    source = (event.source or "").partition("/")[0]
    parts = (event.topic, event.tags.get("node"), event.name)
    name = f"{source} {' '.join(part for part in parts if part is not None)}"
    if not _is_monitored(gateway, gateway.sensors, name, MAX_SENSORS):
        return
    sensor = gateway.sensors.setdefault(name, Sensor(position, []))
    sensor.last = max(sensor.last, position)
    insert_bounded(sensor.seconds, position.time // 1_000, MAX_READINGS)


def _is_monitored(
    gateway: GatewayState, known: Mapping[str, object], name: str, limit: int
) -> bool:
    """Return whether `name` is known or there is room for it; if not, count its event."""
    fits = name in known or (len(known) < limit and len(name) <= MAX_NAME)
    gateway.unmonitored += not fits
    return fits


def _number(tags: Mapping[str, str], name: str) -> int:
    """Return a whole number from a tag; 0 if it is absent or invalid."""
    text = tags.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def is_ahead_of(state: FleetState, now: int) -> bool:
    """Return whether an arrival is over an hour after `now`: the centre's clock was set back."""
    return bool(state.arrival_minutes) and state.arrival_minutes[-1] * MINUTE_MS > now + HOUR_MS


def cap_times(state: FleetState, now: int) -> None:
    """Move arrivals after `now` to `now`, so that they do not hide silence after a clock change."""
    state.arrival_minutes = sorted(
        {min(minute, now // MINUTE_MS) for minute in state.arrival_minutes}
    )
    state.unmonitored_since = min(state.unmonitored_since, now)
    state.unmonitored_until = min(state.unmonitored_until, now)
    for each in state.gateways.values():
        each.last_arrival, each.last_late = min(each.last_arrival, now), min(each.last_late, now)


def forget(state: FleetState, now: int, after: int) -> None:
    """Delete gateways, and their queues, limits and sensors, without new data for `after` ms.

    For queues, limits and sensors, that time is measured back from their gateway's last event, so
    that an offline gateway keeps them.
    """
    state.gateways = {
        name: each for name, each in state.gateways.items() if each.last_arrival >= now - after
    }
    for each in state.gateways.values():
        positions = (each.last_event, each.last_reading)
        since = max((position.time for position in positions if position), default=0) - after
        each.queues = {name: rows for name, rows in each.queues.items() if rows[-1].time >= since}
        each.refusals = {
            name: counts for name, counts in each.refusals.items() if counts.last.time >= since
        }
        each.sensors = {
            name: sensor for name, sensor in each.sensors.items() if sensor.last.time >= since
        }
