"""Compute the values that reports must show for a gateway, from the events of its lane `system`.

Written from docs/reference/reports.md, independently of the centre's code.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from statistics import median, median_low
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firmware_sim.fleet.times import DAY_MS, iso, iso_or_none

if TYPE_CHECKING:
    from firmware_sim.fleet.contents import SystemEvent

_STEP: Final = "clock_stepped"
_SIGNS: Final = ("start", "heartbeat", "stop", _STEP)
_HEARTBEAT_S: Final = 60.0  # seconds between two heartbeats, until a gateway reports its own
_PATIENCE: Final = 2.5  # how many heartbeats, or sealings, may fail to come
_SILENT_S: Final = 750.0  # seconds without an arrival, at least, that are a silence
_SEALINGS: Final = 5  # times between two segments that have to be known for more than that
_SETTLED_MS: Final = 600_000  # ms within which a step may make a clock synchronised
_STUCK_MS: Final = 1_800_000  # for which items are due and none is delivered
_TOGETHER_MS: Final = 750_000  # between two depths_logged, beyond which nothing is known
_BEFORE_MS: Final = 366 * DAY_MS  # before its arrival, from which an event's time is plausible
_LOST: Final = ("lost", "not-resumed", "connection-timeout", "keep_alive_timeout")
_NAMED: Final = 5  # devices that a row names
_MOMENT: Final = ("ready", "locked", "delayed", "dead", "oldest_s", "members")
_SUMS: Final = ("delivered", "redelivered", "timeouts")


class Interval(NamedTuple):
    """The time between two successive heartbeats, starts, stops or clock steps.

    `state` is `running`, `stopped`, `outage`, `clock` (the clock changed) or `unknown`.
    """

    state: str
    before: SystemEvent
    after: SystemEvent

    @property
    def length(self) -> int:
        """The length of the interval by the gateway's clock, in milliseconds; at least 0."""
        return max(self.after.time - self.before.time, 0)


def intervals(events: Sequence[SystemEvent]) -> Iterator[Interval]:
    """Generate all `Interval`s of a gateway; `events` is its whole lane `system`, in order."""
    signs = [at for at, each in enumerate(events) if _is_named(each, *_SIGNS)]
    interval = _HEARTBEAT_S
    for first, second in pairwise(signs):
        before, after = events[first], events[second]
        if before.event.name != _STEP and before.event.value:
            interval = before.event.value
        whole = _whole(before, after, second - first)
        yield Interval(_state(before, after, interval, whole=whole), before, after)


def _is_named(each: SystemEvent, *names: str) -> bool:
    return each.event.kind == "system" and each.event.name in names


def _named(events: Sequence[SystemEvent], *names: str) -> list[SystemEvent]:
    return [each for each in events if _is_named(each, *names)]


def _whole(before: SystemEvent, after: SystemEvent, apart: int) -> bool:
    """Return whether no event is missing between two events that are `apart` positions apart."""
    if before.epoch == after.epoch:
        return after.event.seq - before.event.seq == apart
    return before.event.name == "stop" and after.event.seq == apart


def _state(before: SystemEvent, after: SystemEvent, interval: float, *, whole: bool) -> str:
    if before.event.clock != after.event.clock or after.event.name == _STEP:
        return "clock"
    if before.event.name == "stop" and whole:
        return "stopped"
    if after.time - before.time <= interval * _PATIENCE * 1000:
        return "running"
    return "outage" if whole else "unknown"


def availability(events: Sequence[SystemEvent]) -> dict[str, Any]:
    """Return the expected row of the table `availability`, without the state and arrivals."""
    spans = list(intervals(events))
    signs = _named(events, *_SIGNS)
    starts = [each for each in spans if each.after.event.name == "start"]
    gaps = [each.length for each in spans if each.state in ("outage", "unknown")]
    unclean = [
        each
        for each in starts
        if each.before.event.name != "stop" and each.before.epoch == each.after.epoch
    ]

    def total(state: str) -> float:
        return sum(each.length for each in spans if each.state == state) / 1000

    return {
        "first_seen": iso_or_none(signs[0].time if signs else None),
        "last_seen": iso_or_none(signs[-1].time if signs else None),
        **{f"{state}_s": total(state) for state in ("running", "stopped", "outage", "unknown")},
        "outages": sum(each.state == "outage" for each in spans),
        "longest_gap_s": max(gaps) / 1000 if gaps else None,
        "restarts": len(starts),
        "unclean_restarts": len(unclean),
        "clock_steps": sum(each.state == "clock" for each in spans),
    }


def outages(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `outages` must have."""
    return [
        {
            "begin": iso(each.before.time),
            "end": iso(each.after.time),
            "seconds": each.length / 1000,
            "ended": "restarted" if each.after.event.name == "start" else "went_on",
        }
        for each in intervals(events)
        if each.state == "outage"
    ]


def arrivals_and_state(
    events: Sequence[SystemEvent],
    arrivals: Sequence[int],
    sealed: Sequence[tuple[str, float]],
    as_of: int,
) -> dict[str, Any]:
    """Return the columns of the table `availability` about arrivals, and the gateway's state.

    `arrivals` are the times at which files arrived, `as_of` is the time of the report, both in
    milliseconds since 1970 UTC. `sealed` has (epoch, service seconds) of each segment of the lane
    `system`.
    """
    lasted = [
        after[1] - before[1]
        for before, after in pairwise(sorted(sealed))
        if before[0] == after[0] and after[1] > before[1]
    ]
    patience = _SILENT_S
    if len(lasted) >= _SEALINGS:
        patience = max(patience, _PATIENCE * median_low(lasted))
    times = sorted(set(arrivals))
    silences = [
        gap
        for gap in ((after - before) / 1000 for before, after in pairwise([*times, as_of]))
        if gap > patience
    ]
    signs = _named(events, *_SIGNS)
    state = "running" if signs else "unknown"
    if signs and signs[-1].event.name == "stop":
        state = "stopped"
    elif (as_of - times[-1]) / 1000 > patience:
        state = "silent"
    return {
        "state": state,
        "last_arrival": iso(times[-1]),
        "silent_after_s": _milliseconds(patience),
        "silences": len(silences),
        "longest_silence_s": max(silences) if silences else None,
    }


def _milliseconds(seconds: float) -> float:
    """Round to milliseconds as Spark does: half of one up, where Python's `round` goes to even."""
    return float(Decimal(repr(seconds)).quantize(Decimal("0.001"), ROUND_HALF_UP))


def clock(events: Sequence[SystemEvent]) -> dict[str, Any]:
    """Compute what the report `clocks` must show of a clock's steps and synchronisation."""
    beats, steps = _named(events, "heartbeat"), _named(events, _STEP)
    found = [each.time for each in _named(events, "clock_synchronised")]
    moved = [each.event.value or 0.0 for each in steps]
    lost = [each.event.value or _HEARTBEAT_S for each in beats if not each.event.clock]
    return {
        "steps": len(steps),
        "odd_steps": sum(not _becomes_synchronised(each.time, found) for each in steps),
        "step_sum_s": sum(map(abs, moved)),
        "step_max_s": max(moved, key=abs) if moved else None,
        "last_step": iso_or_none(max((each.time for each in steps), default=None)),
        "synchronised": beats[-1].event.clock if beats else None,
        "unsynchronised_s": sum(lost),
    }


def _becomes_synchronised(step: int, found: list[int]) -> bool:
    """Return whether the clock became synchronised within ten minutes after the step."""
    ordered = sorted(found)
    at = bisect_right(ordered, step - 1)
    return at < len(ordered) and ordered[at] - step <= _SETTLED_MS


def queues(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `queues` must have; `events` is the lane `system`."""
    depths = _by(events, lambda each: each.event.topic, "queue", "depth")
    dead = _by(events, lambda each: each.event.topic, "message", "queue_dead")
    rows = []
    for queue, depths_logged in sorted(depths.items()):
        last = depths_logged[-1]
        row = {
            "queue": queue,
            "depth": round(last.event.value or 0),
            "depth_max": max(round(each.event.value or 0) for each in depths_logged),
            **{name: last.tag(name) for name in _MOMENT},
            **{name: sum(each.tag(name) for each in depths_logged) for name in _SUMS},
            "dead_items": len(dead.get(queue, ())),
            "last_told": iso(last.time),
            **_stuck_periods(depths_logged),
        }
        if row["state"] != "stuck":
            row["state"] = "ok" if row["depth"] else "idle"
        rows.append(row)
    return rows


def _stuck_periods(depths_logged: Sequence[SystemEvent]) -> dict[str, Any]:
    """Return the columns of `queues` about periods when undelayed items wait undelivered."""
    stretches: list[list[SystemEvent]] = []
    before: SystemEvent | None = None
    for each in depths_logged:
        apart = each.time - before.time if before else -1
        goes_on = before and _stalled(before) == _stalled(each) and 0 <= apart <= _TOGETHER_MS
        if goes_on:
            stretches[-1].append(each)
        else:
            stretches.append([each])
        before = each
    lengths = [of[-1].time - of[0].time if _stalled(of[0]) else 0 for of in stretches]
    stuck = [at for at, length in enumerate(lengths) if length >= _STUCK_MS]
    moved = [at for at, of in enumerate(stretches) if not _stalled(of[0])]
    now = len(stretches) - 1 in stuck
    return {
        "state": "stuck" if now else "",
        "since": iso(stretches[-1][0].time) if now else None,
        "stuck": len(stuck),
        "recovered": sum(any(later > at for later in moved) for at in stuck),
        "longest_stuck_s": max(lengths[at] for at in stuck) / 1000 if stuck else None,
    }


def _stalled(each: SystemEvent) -> bool:
    due = round(each.event.value or 0) - each.tag("delayed")
    return due > 0 and each.tag("delivered") == 0


def sessions(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `sessions` must have."""

    def protocol_of(each: SystemEvent) -> tuple[str | None, ...]:
        tags = each.event.tags
        return tags.get("protocol", "xmpp"), tags.get("version"), tags.get("transport")

    found = _by(events, protocol_of, "session")
    rows = []
    for (protocol, version, transport), logged in sorted(found.items(), key=str):
        began: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        for each in logged:
            if each.event.name == "began" or each.event.tags["reason"] in _LOST:
                counter = began if each.event.name == "began" else lost
                counter[each.event.source or ""] += round(each.event.value or 0)
        worst = sorted(lost, key=lambda source: (-lost[source], source))
        row = {"protocol": protocol, "version": version, "transport": transport}
        row |= {"devices": len(began), "sessions": began.total(), "lost": lost.total()}
        rows.append(row | {"which": ", ".join(worst[:_NAMED]), **_period(logged)})
    return rows


def refusals(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the number of refusals by source and rule, with the first and last time."""
    found = _by(events, lambda each: (each.event.source, each.event.name), "limit")
    return [{"source": of[0], "rule": of[1], **_times(each)} for of, each in sorted(found.items())]


def repeats(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the number of repeated offers by source, with the first and last time."""
    found = _by(events, lambda each: each.event.source, "message", "repeated")
    return [{"source": source, **_times(each)} for source, each in sorted(found.items())]


def notices(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `notices` must have."""
    rows = []
    for kind in ("limit", "message"):
        found = _by(events, lambda each: each.event.name, kind)
        found.pop("repeated", None)
        rows += [
            {"kind": kind, "name": name, **_times(each)} for name, each in sorted(found.items())
        ]
    return rows


def _by(
    events: Iterable[SystemEvent],
    key: Callable[[SystemEvent], Hashable],
    kind: str,
    name: str | None = None,
) -> dict[Any, list[SystemEvent]]:
    """Group the events of a kind, and of a name if given, by a key."""
    found: defaultdict[Hashable, list[SystemEvent]] = defaultdict(list)
    for each in events:
        if each.event.kind == kind and name in (None, each.event.name):
            found[key(each)].append(each)
    return dict(found)


def _times(events: Sequence[SystemEvent]) -> dict[str, Any]:
    counts = [1 if each.event.value is None else round(each.event.value) for each in events]
    return {"times": sum(counts), **_period(events)}


def _period(events: Iterable[SystemEvent]) -> dict[str, str]:
    times = [each.time for each in events]
    return {"since": iso(min(times)), "until": iso(max(times))}


def counted_at(time: int, arrived: int) -> int:
    """Return the time that determines an event's day: its own, or an implausible one's arrival."""
    plausible = arrived - _BEFORE_MS <= time <= arrived + DAY_MS
    return time if plausible else arrived


def growth(
    events: Sequence[SystemEvent],
    sizes: Sequence[tuple[int, int]],
    times: Iterable[int],
    disk_used: int,
) -> dict[str, Any]:
    """Return the row that the report's table `growth` must have.

    `sizes` has the time of sealing and the bytes of each segment, `times` the times at which all
    events count (`counted_at`), in milliseconds since 1970 UTC. `disk_used` is the value in the
    last segment's header, in bytes.
    """
    shipped: defaultdict[int, int] = defaultdict(int)
    for sealed, size in sizes:
        shipped[sealed // DAY_MS] += size
    daily: defaultdict[int, int] = defaultdict(int)
    for time in times:
        daily[time // DAY_MS] += 1
    evicted = _by(events, lambda each: each.event.topic, "uplink", "evicted").get(None, [])
    return {
        "days": max(len(shipped) - 2, 0),
        "shipped": sum(shipped.values()),
        "shipped_day": _ordinary(shipped),
        "events_day": _ordinary(daily),
        "disk_used": disk_used,
        "evicted": sum(round(each.event.value or 0) for each in evicted),
        "last_evicted": iso_or_none(max((each.time for each in evicted), default=None)),
    }


def _ordinary(days: dict[int, int]) -> float:
    """Return the median of the days' values; with more than two days, omit the first and last."""
    ordered = [days[day] for day in sorted(days)]
    return float(median(ordered[1:-1] or ordered))
