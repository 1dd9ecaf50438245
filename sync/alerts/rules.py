"""The alert rules, which find problems in the fleet's state. Pure.

They use the thresholds of the reports. Whether a gateway is silent, or the ingest is behind, is
judged by the centre's clock, all else by the gateway's clock, so that an offline gateway causes no
other alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median, median_low
from typing import Final, Literal, NamedTuple

from sync.alerts.state import (
    DAY_MS,
    HOUR_MS,
    LATE_MS,
    MINUTE_MS,
    EventPosition,
    FleetState,
    GatewayState,
    QueueDepth,
    RefusalCounts,
    Segment,
    Sensor,
)
from sync.reports.shared import remedies
from sync.reports.shared.thresholds import (
    DEPTH_GAP_S,
    MIN_INTERVALS,
    MIN_SEALINGS,
    MIN_SILENCE_S,
    MISSED_INTERVALS,
    SILENCE_S,
    SILENT_INTERVALS,
    STUCK_S,
    SURGE_FACTOR,
    SURGE_MIN,
)

Kind = Literal["silent", "queue_stuck", "refusals", "sensor_silent", "ingest_behind", "unmonitored"]

REMEDIES: Final[dict[Kind, str]] = {
    "silent": remedies.SILENT,
    "queue_stuck": remedies.QUEUE_STUCK,
    "refusals": remedies.REFUSALS,
    "sensor_silent": remedies.SENSOR_SILENT,
    "ingest_behind": "Check that `fieldpost-fleet ingest --continuous` runs at the centre. Until "
    "it does, there are only alerts about silent gateways.",
    "unmonitored": "Raise `fieldpost-fleet alerts --gateways`; each gateway takes some 10 kB of "
    "memory.",
}

FLEET_SILENT_REMEDY: Final = (
    "Check that `fieldpost-fleet serve` runs at the centre, that its disk has free space, and that "
    "gateways can reach its port."
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

INGEST_BEHIND_S: Final = 900.0
"""Seconds that a segment may wait in the landing before an alert. A continuous ingest takes about
two minutes, and maintenance may lock the tables for some minutes."""

NEW_GATEWAY_TIMEOUT_S: Final = 3_600.0
"""Minimum silence timeout in seconds while a gateway has too few segments to show how often it
seals them. At the usual interval there are enough after half an hour."""

MAX_TIMEOUT_S: Final = 30 * 86_400.0
"""Maximum silence timeout in seconds. A gateway without data for longer is no longer monitored."""


class Subject(NamedTuple):
    """The kind of a problem, its gateway ("" for the centre), and the name of what has the problem.

    The name is that of a queue, limit, sensor or silent gateway, or `fleet` or `ingest`.
    """

    kind: Kind
    gateway: str
    subject: str


FLEET_SILENT: Final = Subject("silent", "", "fleet")
INGEST_BEHIND: Final = Subject("ingest_behind", "", "ingest")
UNMONITORED: Final = Subject("unmonitored", "", "fleet")


class Problem(NamedTuple):
    """A problem that began at `since` and lasted at least until `until` (ms since 1970 UTC).

    If `late`, it is known from delayed segments, and may have ended meanwhile.
    """

    key: Subject
    since: int
    until: int
    late: bool
    text: str
    remedy: str


class AllClear(NamedTuple):
    """The statement that a subject has no problem at `until` (ms since 1970 UTC)."""

    key: Subject
    until: int
    text: str


Verdict = Problem | AllClear
"""The result of a rule for a subject. Without a verdict, the subject's alert does not change."""


def problem(key: Subject, since: int, until: int, text: str, *, late: bool = False) -> Problem:
    """Return a `Problem` of these values, with the remedy from `REMEDIES` for its kind."""
    return Problem(key, since, until, late, text, REMEDIES[key.kind])


def format_time(ms: int) -> str:
    """Format a time (ms since 1970 UTC) for people, to the second, with `UTC`."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_iso(ms: int) -> str:
    """Format a time (ms since 1970 UTC) for programs: ISO 8601, UTC, to the millisecond."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def format_duration(ms: float) -> str:
    """Format a duration in whole seconds, minutes or hours, rounded down."""
    for unit, size in (("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * size:
            return f"{ms // size:.0f} {unit}"
    return f"{ms // 1000:.0f} s"


# Queues, refusals and sensors


def judge_events(state: FleetState, active: Mapping[Subject, int]) -> Iterator[Verdict]:
    """Judge each queue, limit and sensor. `active` has the start (ms) of each active alert."""
    for name, gateway in sorted(state.gateways.items()):
        for queue, depths in sorted(gateway.queues.items()):
            yield from judge_queue(Subject("queue_stuck", name, queue), gateway, depths)
        for limit, counts in sorted(gateway.refusals.items()):
            yield from judge_refusals(Subject("refusals", name, limit), gateway, counts)
        until = known_until(gateway)
        resumed = _readings_resumed(gateway)
        for subject, sensor in sorted(gateway.sensors.items()):
            key = Subject("sensor_silent", name, subject.strip())
            yield from judge_sensor(key, gateway, sensor, until, resumed, active.get(key))


def judge_queue(
    key: Subject, gateway: GatewayState, depths: Sequence[QueueDepth]
) -> Iterator[Verdict]:
    """Judge whether a queue is stuck: it has items, and none was delivered for `STUCK_S` seconds.

    Delayed items do not count. There is no verdict if the time without deliveries is shorter.
    """
    last = depths[-1]
    if not last.stalled:
        text = f"Items are delivered again, or only delayed ones are left; items: {last.depth}."
        yield AllClear(key, last.time, text)
        return
    since = _stuck_since(depths)
    if since is not None:
        text = (
            f"No delivery from {format_time(since)} to {format_time(last.time)}; "
            f"items: {last.depth}, members: {last.members}."
        )
        late = _is_late(gateway.system_segments, last)
        yield problem(key, since, last.time, text, late=late)


def _stuck_since(depths: Sequence[QueueDepth]) -> int | None:
    """Return since when (ms) a stuck queue has delivered nothing; None if it is not stuck.

    If two depth events are too far apart, nothing is known about the time between them: the time
    without deliveries then begins at the later one.
    """
    begin: int | None = None
    stuck: int | None = None
    before: QueueDepth | None = None
    for each in depths:
        if not each.stalled:
            begin = stuck = before = None
            continue
        connected = before is not None and 0 <= each.time - before.time <= 1000 * DEPTH_GAP_S
        if begin is None or not connected:
            begin = each.time
        if stuck is None and each.time - begin >= 1000 * STUCK_S:
            stuck = begin
        before = each
    return stuck


def judge_refusals(key: Subject, gateway: GatewayState, counts: RefusalCounts) -> Iterator[Verdict]:
    """Judge whether this or the previous hour has far more refusals than a usual day's worst hour.

    The usual worst hour is known after a whole day; before that, there is no problem.
    """
    if gateway.last_event is None:
        return
    hour = gateway.last_event.time // HOUR_MS
    usual = _usual_worst_hour(gateway, counts, hour)
    latest = max(counts.hours.get(hour, 0), counts.hours.get(hour - 1, 0))
    if usual is None or latest < SURGE_MIN or latest <= SURGE_FACTOR * usual:
        yield AllClear(
            key, counts.last.time, f"Refusals are at a usual level: {latest} in an hour."
        )
        return
    since = hour if counts.hours.get(hour, 0) == latest else hour - 1
    while counts.hours.get(since - 1, 0) >= max(SURGE_MIN, SURGE_FACTOR * usual + 1):
        since -= 1
    source = f" from {counts.source}" if counts.source else ""
    text = (
        f"{latest} refusals because of {key.subject} in an hour; the worst hour of a usual day has "
        f"{usual}. The last one was{source} at {format_time(counts.last.time)}."
    )
    late = _is_late(gateway.system_segments, gateway.last_event)
    yield problem(key, since * HOUR_MS, counts.last.time, text, late=late)


def _usual_worst_hour(gateway: GatewayState, counts: RefusalCounts, hour: int) -> int | None:
    """Return the median of the greatest hourly counts of previous days; None if none is known."""
    days = [day for day in gateway.days if day < hour // 24]
    worst = dict.fromkeys(days, 0)
    for each, count in counts.hours.items():
        day = each // 24
        if day in worst and each < hour - 1:
            worst[day] = max(worst[day], count)
    return median_low(worst.values()) if worst else None


class KnownUntil(NamedTuple):
    """Time (ms) until which no reading is missing; `late` if the event showing it arrived late."""

    time: int
    late: bool


def known_until(gateway: GatewayState) -> KnownUntil | None:
    """Return the time until which a gateway's readings are complete.

    That is the later of two times: the last reading, and the last system event minus the silence
    timeout, because readings from before then would have arrived before that event. While readings
    arrive late, only the last reading counts.
    """
    segments = (*gateway.system_segments, *gateway.reading_segments)
    newest = max((each.arrived for each in segments), default=0)
    behind = bool(gateway.last_late) and newest - gateway.last_late <= 2 * LATE_MS
    known = []
    if gateway.last_reading is not None:
        late = _is_late(gateway.reading_segments, gateway.last_reading)
        known.append(KnownUntil(gateway.last_reading.time, late))
    if gateway.last_event is not None and not behind:
        time = gateway.last_event.time - silence_timeout_ms(gateway)
        known.append(KnownUntil(time, _is_late(gateway.system_segments, gateway.last_event)))
    return max(known, default=None)


def _readings_resumed(gateway: GatewayState) -> int:
    """Return when (ms) readings resumed after the last gap in their sequence numbers; else 0.

    That is when the segment after the gap was sealed or, if the gateway's clock is fast, arrived.
    """
    sealed = [
        min(after.sealed, after.arrived)
        for before, after in pairwise(gateway.reading_segments)
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
    active_since: int | None,
) -> Iterator[Verdict]:
    """Judge whether a sensor was silent for much longer than its usual interval, up to `until`: the
    time to which all readings of its gateway are known.

    `resumed` is when (ms) readings resumed after a gap in their sequence numbers, `active_since`
    when an active alert began. There is no verdict if the usual interval is not known yet, or if
    the silence may be due to the gap or to a start. An active alert ends only with a new reading.
    """
    seconds = sensor.seconds
    last = sensor.last.time
    if until is None or len(seconds) <= MIN_INTERVALS:
        return
    usual = median(after - before for before, after in pairwise(seconds))
    limit = 1000 * max(usual * SILENT_INTERVALS, MIN_SILENCE_S)
    reset = gateway.last_reset.time if gateway.last_reset else 0
    if until.time - max(last, reset, resumed) > limit:
        text = (
            f"No reading from {format_time(last)} to {format_time(until.time)}; the usual "
            f"interval is {format_duration(1000 * usual)}."
        )
        yield problem(key, last, until.time, text, late=until.late)
    elif until.time - last <= limit and active_since != last:
        yield AllClear(
            key, last, f"Readings arrive again; the last one was at {format_time(last)}."
        )


def _is_late(segments: Sequence[Segment], position: EventPosition | QueueDepth) -> bool:
    """Return whether an event arrived late: its segment was delayed, or is not among `segments`."""
    for each in reversed(segments):
        if each.epoch == position.epoch and each.first <= position.seq <= each.last:
            return each.arrived - each.sealed > LATE_MS
    return True


# Silent gateways, a silent fleet, and an ingest that falls behind


class LandingBacklog(NamedTuple):
    """The segments of a gateway that wait in the landing: first and last arrival (ms).

    `stopped` is true if their last event is a clean stop. `minutes` are the minutes since 1970 in
    which a segment arrived.
    """

    first: int
    last: int
    stopped: bool = False
    minutes: frozenset[int] = frozenset()


def silence_timeout_ms(gateway: GatewayState) -> int:
    """Return the ms without an arrival after which a gateway counts as silent.

    The timeout is that of the availability report, but longer for a new gateway.
    """
    intervals = [
        after.service - before.service
        for before, after in pairwise(gateway.system_segments)
        if before.epoch == after.epoch
    ]
    known = [each for each in intervals if each > 0]
    if len(known) < MIN_SEALINGS:
        timeout = max(NEW_GATEWAY_TIMEOUT_S, MISSED_INTERVALS * max(known, default=0.0))
    else:
        timeout = max(SILENCE_S, MISSED_INTERVALS * median(known))
    return round(1000 * min(MAX_TIMEOUT_S, timeout))


class _Presence(NamedTuple):
    last_arrival: int
    timeout: int
    stopped: bool


def judge_silence(
    state: FleetState,
    landing: Mapping[str, LandingBacklog],
    now: int,
    is_revoked: Callable[[str], bool],
    active: Mapping[Subject, int],
) -> Iterator[Verdict]:
    """Judge each gateway, the fleet and the ingest at `now`.

    `landing` has the waiting segments by gateway. `active` has the start (ms) of each active
    alert; a gateway with an alert stays silent until its next arrival. If several gateways are
    overdue and nothing arrives from the others either, the centre is the probable cause, and there
    is one alert for the fleet. When segments arrive again, the timeout of each gateway starts anew.
    """
    presences = dict(_presences(state, landing, now, is_revoked))
    newest = max((each.last_arrival for each in presences.values()), default=now)
    alerted = {key for key, each in presences.items() if each.last_arrival <= active.get(key, -1)}
    expected = [presences[key] for key in presences.keys() - alerted]
    receiving_since = _receiving_since(state, landing, expected)
    overdue: list[tuple[Subject, int]] = []
    present: list[tuple[Subject, int]] = []
    for key, each in sorted(presences.items()):
        last = max(each.last_arrival, receiving_since)
        if each.stopped:
            yield AllClear(key, now, "The gateway stopped cleanly, or was revoked.")
        elif key not in alerted and newest - last > each.timeout:
            yield _silent(key, each.last_arrival, now)
        elif key not in alerted:
            (overdue if now - last > each.timeout else present).append((key, each.last_arrival))
    for key, last in present:
        yield AllClear(key, last, f"Segments arrive again; the last one at {format_time(last)}.")
    yield from _judge_fleet(overdue, len(present), newest, now)
    yield from _judge_ingest(landing, now)
    yield _judge_unmonitored(state, now)


def _presences(
    state: FleetState,
    landing: Mapping[str, LandingBacklog],
    now: int,
    is_revoked: Callable[[str], bool],
) -> Iterator[tuple[Subject, _Presence]]:
    for name in state.gateways.keys() | landing.keys():
        gateway = state.gateways.get(name) or GatewayState()
        backlog = landing.get(name)
        last_arrival = max(gateway.last_arrival, backlog.last if backlog else 0)
        stopped = gateway.heartbeat is not None and gateway.heartbeat.name == "stop"
        if backlog is not None and backlog.last > gateway.last_arrival:
            stopped = backlog.stopped
        timeout = silence_timeout_ms(gateway)
        if not stopped and now - last_arrival > timeout:
            stopped = is_revoked(name)
        yield Subject("silent", name, name), _Presence(last_arrival, timeout, stopped)


def _receiving_since(
    state: FleetState, landing: Mapping[str, LandingBacklog], expected: Sequence[_Presence]
) -> int:
    """Return since when (ms) the centre has received segments without a pause.

    A pause is a time without arrivals that is longer than the median timeout of the gateways in
    `expected`, which have no active alert.
    """
    timeout = median_low([each.timeout for each in expected if not each.stopped] or [0])
    minutes = set(state.arrival_minutes).union(*(each.minutes for each in landing.values()))
    since = max(minutes, default=0)
    for minute in sorted(minutes, reverse=True):
        if (since - minute) * MINUTE_MS > timeout:
            break
        since = minute
    return since * MINUTE_MS


def _silent(key: Subject, last_arrival: int, now: int) -> Verdict:
    text = (
        f"Nothing has arrived since {format_time(last_arrival)} "
        f"({format_duration(now - last_arrival)}), and the gateway did not stop cleanly."
    )
    return problem(key, last_arrival, now, text)


def _judge_fleet(
    overdue: Sequence[tuple[Subject, int]], present: int, newest: int, now: int
) -> Iterator[Verdict]:
    """Judge the `overdue` gateways; nothing has arrived from any gateway since `newest` (ms).

    `present` is the number of gateways that are not overdue. If several are overdue, and at least
    as many as are present, the fleet is silent. If the only gateway is overdue, it is silent.
    Otherwise the overdue gateways are not judged before the next arrival.
    """
    if len(overdue) > 1 and len(overdue) >= present:
        text = (
            f"Nothing has arrived from any of {len(overdue) + present} gateways since "
            f"{format_time(newest)} ({format_duration(now - newest)})."
        )
        yield problem(FLEET_SILENT, newest, now, text)._replace(remedy=FLEET_SILENT_REMEDY)
        return
    yield AllClear(FLEET_SILENT, newest, "Segments arrive.")
    if not present:
        for key, last_arrival in overdue:
            yield _silent(key, last_arrival, now)


def _judge_ingest(landing: Mapping[str, LandingBacklog], now: int) -> Iterator[Verdict]:
    first = min((each.first for each in landing.values()), default=now)
    if now - first <= 1000 * INGEST_BEHIND_S:
        yield AllClear(INGEST_BEHIND, now, "The ingest keeps up.")
        return
    text = (
        f"Segments have waited for the ingest since {format_time(first)} "
        f"({format_duration(now - first)})."
    )
    yield problem(INGEST_BEHIND, first, now, text)


def _judge_unmonitored(state: FleetState, now: int) -> Verdict:
    """Judge whether there are more gateways than are monitored, by the arrivals of a day."""
    is_full = len(state.gateways) >= state.max_gateways
    if not is_full or now - state.unmonitored_until > DAY_MS:
        return AllClear(UNMONITORED, now, "All gateways are monitored.")
    text = (
        f"More than {state.max_gateways} gateways send segments; the others cause no alerts except "
        "while segments wait in the landing."
    )
    return problem(UNMONITORED, state.unmonitored_since, now, text)
