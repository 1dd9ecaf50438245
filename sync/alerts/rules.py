"""Which queues are stuck, which refusals surge, which sensors are silent: the rules of the reports.

Pure, and by the gateways' own time: a gateway that is off or away makes none of them wrong. Here a
report's day is an hour, so that minutes count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median, median_low
from typing import Final, NamedTuple

from sync.alerts.silence import silent_after_ms
from sync.alerts.state import (
    HOUR_MS,
    EventPosition,
    FleetState,
    GatewayState,
    QueueDepth,
    RefusalCounts,
    Segment,
    Sensor,
)
from sync.alerts.verdict import (
    AllClear,
    Subject,
    Verdict,
    format_duration,
    format_time,
    problem,
)
from sync.reports.shared.thresholds import (
    BACKLOG_S,
    DEPTH_GAP_S,
    MIN_INTERVALS,
    MIN_SILENCE_S,
    SILENT_INTERVALS,
    STUCK_S,
    SURGE_FACTOR,
    SURGE_MIN,
)

LATE_MS: Final = round(1000 * BACKLOG_S)


def judge_events(seen: FleetState, on: Mapping[Subject, int]) -> Iterator[Verdict]:
    """Say of each queue, rule and sensor how it is.

    `on` maps what is told as wrong to since when it is.
    """
    for name, gateway in sorted(seen.gateways.items()):
        for queue, told in sorted(gateway.queues.items()):
            yield from judge_queue(Subject("queue_stuck", name, queue), gateway, told)
        for rule, refusals in sorted(gateway.rules.items()):
            yield from judge_refusals(Subject("refusals", name, rule), gateway, refusals)
        until = known_until(gateway)
        resumed = _resumed(gateway)
        for subject, sensor in sorted(gateway.sensors.items()):
            key = Subject("sensor_silent", name, subject.strip())
            yield from judge_sensor(key, gateway, sensor, until, resumed, on.get(key))


def judge_queue(
    key: Subject, gateway: GatewayState, told: Sequence[QueueDepth]
) -> Iterator[Verdict]:
    """Say whether a queue is stuck: items are due, and none was delivered for `STUCK_S`.

    Nothing is said while items wait for less than that.
    """
    last = told[-1]
    if not last.stalled:
        yield AllClear(
            key, last.time, f"Items are delivered again, or none waits: {last.depth} left."
        )
        return
    stuck = _stuck(told)
    if stuck is not None:
        text = (
            f"No delivery from {format_time(stuck)} to {format_time(last.time)}; "
            f"items: {last.depth}, "
            f"members: {last.members}."
        )
        yield problem(key, stuck, last.time, text, late=_held_up(gateway.system, last))


def _stuck(told: Sequence[QueueDepth]) -> int | None:
    """Tell since when a queue is stuck, by what it told since its last delivery.

    Where events are too far apart nothing is known between them, and time is counted anew.
    """
    begin: int | None = None
    found: int | None = None
    before: QueueDepth | None = None
    for each in told:
        if not each.stalled:
            begin = found = before = None
            continue
        together = before is not None and 0 <= each.time - before.time <= 1000 * DEPTH_GAP_S
        if begin is None or not together:
            begin = each.time
        if found is None and each.time - begin >= 1000 * STUCK_S:
            found = begin
        before = each
    return found


def judge_refusals(key: Subject, gateway: GatewayState, rule: RefusalCounts) -> Iterator[Verdict]:
    """Say whether far more is refused in this hour, or the last, than in the worst of usual days.

    Nothing is usual before a whole day is known: then nothing is wrong.
    """
    if gateway.told is None:
        return
    hour = gateway.told.time // HOUR_MS
    most = _most(gateway, rule, hour)
    latest = max(rule.hours.get(hour, 0), rule.hours.get(hour - 1, 0))
    if most is None or latest < SURGE_MIN or latest <= SURGE_FACTOR * most:
        yield AllClear(key, rule.last.time, f"{latest} an hour is not out of the ordinary.")
        return
    since = hour if rule.hours.get(hour, 0) == latest else hour - 1
    while rule.hours.get(since - 1, 0) >= max(SURGE_MIN, SURGE_FACTOR * most + 1):
        since -= 1
    text = (
        f"Refused by {key.subject}: {latest} in an hour, where {most} in the worst hour of a day "
        f"are usual; the last of {rule.source or 'a source that is not told'}, "
        f"{format_time(rule.last.time)}."
    )
    late = _held_up(gateway.system, gateway.told)
    yield problem(key, since * HOUR_MS, rule.last.time, text, late=late)


def _most(gateway: GatewayState, rule: RefusalCounts, hour: int) -> int | None:
    """Give the median, over the days before, of the worst hour of each; None without such a day."""
    days = [day for day in gateway.days if day < hour // 24]
    worst = dict.fromkeys(days, 0)
    for each, times in rule.hours.items():
        day = each // 24
        if day in worst and each < hour - 1:
            worst[day] = max(worst[day], times)
    return median_low(worst.values()) if worst else None


class KnownUntil(NamedTuple):
    """Up to when a gateway's readings are in; `late`: known from what was held up on its way."""

    time: int
    late: bool


def known_until(gateway: GatewayState) -> KnownUntil | None:
    """Tell up to when a gateway's readings are in.

    That is up to the last of them, or to what it told otherwise less the time in which it should
    have shipped more of them. While readings come in late, the former alone is known.
    """
    came = max((each.arrived for each in (*gateway.system, *gateway.readings)), default=0)
    behind = bool(gateway.late) and came - gateway.late <= 2 * LATE_MS
    known = []
    if gateway.read is not None:
        known.append(KnownUntil(gateway.read.time, _held_up(gateway.readings, gateway.read)))
    if gateway.told is not None and not behind:
        time = gateway.told.time - silent_after_ms(gateway)
        known.append(KnownUntil(time, _held_up(gateway.system, gateway.told)))
    return max(known, default=None)


def _resumed(gateway: GatewayState) -> int:
    """Tell when readings began to come without a hole; 0 where none is known.

    That is as of its arrival, as events are, if a clock that is ahead sealed it.
    """
    sealed = [
        min(after.sealed, after.arrived)
        for before, after in pairwise(gateway.readings)
        if (after.epoch, after.first) != (before.epoch, before.last + 1)
        and not (after.epoch != before.epoch and after.first == 1)
    ]
    return max(sealed, default=0)


def judge_sensor(
    key: Subject,
    gateway: GatewayState,
    sensor: Sensor,
    until: KnownUntil | None,
    resumed: int,
    on: int | None,
) -> Iterator[Verdict]:
    """Say whether nothing came of a sensor for much longer than usual, up to `until`.

    Nothing is said where no interval is usual yet, where part of the silence is not known, and of
    one that is told as silent (`on`: since then) until it is heard.
    """
    seconds = sensor.seconds
    last = sensor.last.time
    if until is None or len(seconds) <= MIN_INTERVALS:
        return
    usual = median(after - before for before, after in pairwise(seconds))
    limit = 1000 * max(usual * SILENT_INTERVALS, MIN_SILENCE_S)
    reset = gateway.reset.time if gateway.reset else 0
    if until.time - max(last, reset, resumed) > limit:
        text = (
            f"Last reading {format_time(last)}, nothing up to {format_time(until.time)}; every "
            f"{format_duration(1000 * usual)} is usual."
        )
        yield problem(key, last, until.time, text, late=until.late)
    elif until.time - last <= limit and on != last:
        yield AllClear(key, last, f"It is heard again, last at {format_time(last)}.")


def _held_up(segments: Sequence[Segment], told: EventPosition | QueueDepth) -> bool:
    """Tell whether what was told came late: its segment was in a backlog, or is forgotten."""
    for each in reversed(segments):
        if each.epoch == told.epoch and each.first <= told.seq <= each.last:
            return each.arrived - each.sealed > LATE_MS
    return True
