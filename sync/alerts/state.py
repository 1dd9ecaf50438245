"""What the alerts know of a fleet: of each gateway no more than the rules need, and bounded.

Taking the same events in another order gives the same state: of each thing the latest are kept,
by their numbers or their times, never the ones that came last. Judges nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from sync.reports.shared.thresholds import CLOCK_STEPPED, LIFE_EVENTS, RESET_EVENTS

MAX_GATEWAYS: Final = 5_000
"""Gateways that are watched: some 10 kB each are held in memory."""

MAX_QUEUES: Final = 128
"""Queues of a gateway that are watched: it tells of 65 at a time, and of others later."""

MAX_RULES: Final = 64
"""Rules of a gateway whose refusals are counted: it has some thirty."""

MAX_SENSORS: Final = 1_024
"""Sensors of a gateway that are watched: a device may make up names."""

MAX_NAME: Final = 512
"""Characters of a queue's, a rule's or a sensor's name: what is longer is not watched."""

MAX_DEPTHS: Final = 64
"""Events of a queue that are kept: five hours of them, and half an hour makes it stuck."""

MAX_SEGMENTS: Final = 32
"""Segments of a lane that are kept: two hours and a half at the usual cadence."""

MAX_READINGS: Final = 16
"""Moments of a sensor's readings that are kept: their median interval is robust against seven."""

MAX_DAYS: Final = 9
"""Days (UTC) that refusals are kept of: today, and what is usual by the eight before."""

MAX_ARRIVAL_MINUTES: Final = 1_440
"""Minutes in which something arrived of the fleet that are kept: a day of them."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


class Event(NamedTuple):
    """An event of the tables, as far as it matters. Times are milliseconds since 1970 UTC."""

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
    """An accepted segment of a lane: its numbers, when it was sealed, in service seconds too."""

    epoch: str
    first: int
    last: int
    sealed: int
    service: float
    arrived: int


class EventPosition(NamedTuple):
    """An event's place in its lane, and when it was."""

    epoch: str
    seq: int
    time: int


class Heartbeat(NamedTuple):
    """A sign of life."""

    epoch: str
    seq: int
    name: str


class QueueDepth(NamedTuple):
    """What a queue told. `stalled`: items are due, and none was delivered since it told before."""

    epoch: str
    seq: int
    time: int
    stalled: bool
    depth: int
    members: int


class RefusalCounts(msgspec.Struct):
    """Refusals by a rule, by the hour since 1970; the last one, and whom it was told of."""

    hours: dict[int, int]
    last: EventPosition
    source: str


class Sensor(msgspec.Struct):
    """The last reading of a sensor, and the seconds since 1970 of some before, in their order."""

    last: EventPosition
    seconds: list[int]


class GatewayState(msgspec.Struct):
    """What is known of a gateway; `arrived` is its last arrival that is in the tables.

    `told` is its last event in the system lane, `read` the one in the lane of readings, `reset` the
    last one before which no silence is counted. `late` is when a segment of readings last came
    late. `beyond` counts events of what is not watched.
    """

    arrived: int = 0
    sign: Heartbeat | None = None
    told: EventPosition | None = None
    read: EventPosition | None = None
    reset: EventPosition | None = None
    late: int = 0
    system: list[Segment] = []
    readings: list[Segment] = []
    days: list[int] = []
    queues: dict[str, list[QueueDepth]] = {}
    rules: dict[str, RefusalCounts] = {}
    sensors: dict[str, Sensor] = {}
    beyond: int = 0


class FleetState(msgspec.Struct):
    """What is known of the fleet. `heard` are minutes since 1970 in which something arrived.

    `followed` is the last batch of each query of the ingest that is in here.
    """

    gateways: dict[str, GatewayState] = {}
    heard: list[int] = []
    followed: dict[str, int] = {}
    beyond: int = 0


_Item = TypeVar("_Item", int, Segment, QueueDepth)


def insert_bounded(items: list[_Item], item: _Item, most: int) -> None:
    """Put an item into a list that is in order, once; the `most` greatest stay."""
    if not items or item > items[-1]:
        items.append(item)
    else:
        at = bisect_left(items, item)
        if items[at] == item:
            return
        items.insert(at, item)
    if len(items) > most:
        del items[0]


def add_arrival(seen: FleetState, gateway: str, arrived: int) -> GatewayState | None:
    """Note that a file of a gateway arrived; gives the gateway, None beyond `GATEWAYS`."""
    insert_bounded(seen.heard, arrived // MINUTE_MS, MAX_ARRIVAL_MINUTES)
    known = seen.gateways.get(gateway)
    if known is None:
        if len(seen.gateways) >= MAX_GATEWAYS:
            seen.beyond += 1
            return None
        known = seen.gateways[gateway] = GatewayState()
    known.arrived = max(known.arrived, arrived)
    return known


def add_segment(gateway: GatewayState, lane: str, segment: Segment, late_ms: float) -> None:
    """Note an accepted segment; one that arrived `late_ms` after it was sealed was held up."""
    if lane == "system":
        insert_bounded(gateway.system, segment, MAX_SEGMENTS)
    elif lane == "readings":
        insert_bounded(gateway.readings, segment, MAX_SEGMENTS)
        if segment.arrived - segment.sealed > late_ms:
            gateway.late = max(gateway.late, segment.arrived)


def add_event(gateway: GatewayState, event: Event) -> None:
    """Note an event of the lanes `system` and `readings`.

    What is dated after its arrival was when it arrived: a clock that is ahead hides nothing.
    """
    told = EventPosition(event.epoch, event.seq, min(event.time, event.arrived))
    if event.lane == "readings":
        gateway.read = _later(gateway.read, told)
        if event.kind == "reading":
            _take_reading(gateway, event, told)
        return
    gateway.told = _later(gateway.told, told)
    _take_day(gateway, told.time // DAY_MS)
    name = event.name or ""
    if event.kind == "system":
        if name in LIFE_EVENTS or name == CLOCK_STEPPED:
            sign = Heartbeat(event.epoch, event.seq, name)
            gateway.sign = sign if gateway.sign is None else max(gateway.sign, sign)
        if name in RESET_EVENTS:
            gateway.reset = _later(gateway.reset, told)
    elif event.kind == "limit":
        _take_refusal(gateway, name, event, told)
    elif event.kind == "queue" and name == "depth":
        _take_depth(gateway, event, told)


def _later(before: EventPosition | None, told: EventPosition) -> EventPosition:
    return told if before is None or told > before else before


def _take_day(gateway: GatewayState, day: int) -> None:
    """Note a day of which events are known; what was refused on one that goes, goes."""
    if day in gateway.days:
        return
    insert_bounded(gateway.days, day, MAX_DAYS)
    first = gateway.days[0] * 24
    for rule in gateway.rules.values():
        rule.hours = {hour: times for hour, times in rule.hours.items() if hour >= first}


def _take_refusal(gateway: GatewayState, name: str, event: Event, told: EventPosition) -> None:
    times = int(event.value or 1)
    rule = gateway.rules.get(name)
    if rule is None:
        if not _has_room(gateway, gateway.rules, name, MAX_RULES):
            return
        rule = gateway.rules[name] = RefusalCounts({}, told, event.source or "")
    if told >= rule.last:
        rule.last, rule.source = told, event.source or ""
    hour = told.time // HOUR_MS
    if hour >= gateway.days[0] * 24:
        rule.hours[hour] = rule.hours.get(hour, 0) + times


def _take_depth(gateway: GatewayState, event: Event, told: EventPosition) -> None:
    queue = event.topic or ""
    if queue not in gateway.queues:
        if not _has_room(gateway, gateway.queues, queue, MAX_QUEUES):
            return
        gateway.queues[queue] = []
    depth = int(event.value or 0)
    due = depth - _number(event.tags, "delayed")
    stalled = due > 0 and _number(event.tags, "delivered") == 0
    row = QueueDepth(*told, stalled, depth, _number(event.tags, "members"))
    insert_bounded(gateway.queues[queue], row, MAX_DEPTHS)


def _take_reading(gateway: GatewayState, event: Event, told: EventPosition) -> None:
    """Note a reading of what report 7 calls a sensor."""
    source = (event.source or "").partition("/")[0]
    parts = (event.topic, event.tags.get("node"), event.name)
    name = f"{source} {' '.join(part for part in parts if part is not None)}"
    sensor = gateway.sensors.get(name)
    if sensor is None:
        if not _has_room(gateway, gateway.sensors, name, MAX_SENSORS):
            return
        sensor = gateway.sensors[name] = Sensor(told, [])
    sensor.last = max(sensor.last, told)
    insert_bounded(sensor.seconds, told.time // 1_000, MAX_READINGS)


def _has_room(gateway: GatewayState, known: Mapping[str, object], name: str, most: int) -> bool:
    """Tell whether one more can be watched; what cannot be is counted."""
    fits = len(known) < most and len(name) <= MAX_NAME
    gateway.beyond += not fits
    return fits


def _number(tags: Mapping[str, str], name: str) -> int:
    """Read a whole number; what a gateway wrote otherwise is none."""
    text = tags.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def is_ahead_of(seen: FleetState, now: int) -> bool:
    """Tell whether something arrived well after `now`: the centre's clock was set back."""
    return bool(seen.heard) and seen.heard[-1] * MINUTE_MS > now + HOUR_MS


def cap_times(seen: FleetState, now: int) -> None:
    """Have nothing arrive after `now`: it would count as heard until the clock is there again."""
    seen.heard = sorted({min(minute, now // MINUTE_MS) for minute in seen.heard})
    for each in seen.gateways.values():
        each.arrived, each.late = min(each.arrived, now), min(each.late, now)


def forget(seen: FleetState, now: int, after: int) -> None:
    """Drop gateways of which nothing came for `after` ms, and of the others what fell silent.

    There the gateway's own time counts: of one that is away nothing is forgotten.
    """
    seen.gateways = {
        name: each for name, each in seen.gateways.items() if each.arrived >= now - after
    }
    for each in seen.gateways.values():
        since = max((told.time for told in (each.told, each.read) if told), default=0) - after
        each.queues = {name: rows for name, rows in each.queues.items() if rows[-1].time >= since}
        each.rules = {name: rule for name, rule in each.rules.items() if rule.last.time >= since}
        each.sensors = {
            name: sensor for name, sensor in each.sensors.items() if sensor.last.time >= since
        }
