"""Generate the events of the lane `system`: heartbeats, clocks, sessions, queues, limits, wear."""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import merge
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.fleet.rows import Stream, Timed, event_at
from firmware_sim.fleet.sessions import session_events
from firmware_sim.fleet.settings import DAY_S

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan, Run

QUEUE: Final = "jobs/pumps"
"""The queue node of each gateway."""

RULE: Final = "rate"
"""The limit that a device exceeds during the fault `refusals`."""

_DEPTH_INTERVAL_S: Final = 300.0  # seconds between two events of a queue in which something waits
_WORK_S: Final = 6 * 3_600.0  # seconds between two times at which something waits
_TIMEOUTS: Final = 2  # locks that time out between two such events, at most
_STUCK: Final = 40  # items that wait in a stuck queue
_REFUSALS: Final = 200  # in an hour, by one device
_REPEATS: Final = 300  # offers that were suppressed in an hour, of one device
_WRITTEN: Final = 400_000_000  # bytes that a gateway writes in a day


def system_events(plan: Plan, more: Iterable[Timed] = ()) -> Stream:
    """Generate all events of the lane `system` in order, including those in `more`."""
    streams = (
        _runs(plan),
        _clock(plan),
        _wear(plan),
        session_events(plan),
        _work(plan),
        _stuck(plan),
        _hourly(plan, "queue-dead", _DEAD_ITEM),
        _hourly(plan, "refusals", _REFUSED),
        _hourly(plan, "repeats", _REPEATED),
        more,
    )
    length = plan.settings.length
    for moment, row in merge(*streams, key=itemgetter(0)):
        if moment > length:
            return
        if plan.life.running(moment) == moment:
            yield moment, row


def _runs(plan: Plan) -> Stream:
    interval = plan.settings.heartbeat
    before: Run | None = None
    for run in plan.life.runs:
        if run.renewed and before is not None:
            tags = {"reason": "restored", "before": before.epoch}
            yield event_at(plan, run.on, "uplink", "epoch", level="Warning", tags=tags)
        off = run.on - before.off if before else None
        tags = {"version": run.version, "boot": run.boot, "python": "3.11.2"}
        tags |= {"previous": run.previous, "off_known": "uptime" if before else "unknown"}
        if off is not None:
            tags["off"] = f"{off:.3f}"
        yield event_at(plan, run.on, "system", "start", value=interval, unit="s", tags=tags)
        for number in count(1):
            moment = run.on + number * interval
            if moment >= run.off:
                break
            yield event_at(plan, moment, "system", "heartbeat", value=interval, unit="s")
            if moment > plan.settings.length:
                return
        if run.clean:
            yield event_at(plan, run.off, "system", "stop")
        before = run


def _clock(plan: Plan) -> Stream:
    events: list[Timed] = []
    for moment, seconds in plan.clock.steps:
        events.append(
            event_at(
                plan, moment, "system", "clock_stepped", value=seconds, unit="s", level="Notice"
            )
        )
    for begin, end in plan.clock.lost:
        if begin:
            events.append(event_at(plan, begin, "system", "clock_lost", level="Warning"))
        events.append(event_at(plan, end, "system", "clock_synchronised", level="Informational"))
    return iter(sorted(events, key=itemgetter(0)))


def _wear(plan: Plan) -> Stream:
    dice = plan.chance("wear")
    for day in range(1, plan.settings.days):
        written = float(int(_WRITTEN * dice.uniform(0.9, 1.1)))
        tags = {"pages": str(int(written) // 4_096), "commits": "90000", "seconds": "86400"}
        yield event_at(plan, day * DAY_S + 1, "system", "wear", value=written, unit="B", tags=tags)


def _work(plan: Plan) -> Stream:
    """Generate events of a queue's depth; a few times a day, items wait for ten minutes."""
    if "queue-stuck" in plan.faults:
        return
    dice = plan.chance("work")
    moment = dice.uniform(0, _WORK_S)
    while moment < plan.settings.length:
        delivered = timeouts = 0
        for depth in (dice.randint(3, 20), dice.randint(1, 3), 0):
            yield _depth(plan, moment, depth, delivered, timeouts)
            moment, delivered = moment + _DEPTH_INTERVAL_S, dice.randint(3, 20)
            timeouts = dice.randint(0, _TIMEOUTS)
        moment += dice.uniform(0.5, 1.0) * _WORK_S


def _stuck(plan: Plan) -> Stream:
    window = plan.window("queue-stuck")
    if window is None:
        return
    moment = window[0]
    while moment < window[1]:
        yield _depth(plan, moment, _STUCK, oldest=moment - window[0])
        moment += _DEPTH_INTERVAL_S


def _depth(
    plan: Plan,
    moment: float,
    depth: int,
    delivered: int = 0,
    timeouts: int = 0,
    oldest: float = 30.0,
) -> Timed:
    """Return an event with the queue's depth; items whose lock timed out count as redelivered."""
    dead = sum(at < moment for at in _hours(plan, "queue-dead"))
    tags = {"ready": str(depth), "locked": "0", "delayed": "0", "dead": str(dead)}
    tags |= {"oldest_s": f"{oldest if depth else 0:.0f}", "members": "2"}
    tags |= {"delivered": str(delivered), "redelivered": str(timeouts)}
    tags |= {"timeouts": str(timeouts)}
    return event_at(
        plan, moment, "queue", "depth", topic=QUEUE, value=float(depth), unit="items", tags=tags
    )


def subject(plan: Plan) -> str:
    """Return the bare JID of the device to which the faults `refusals` and `repeats` apply."""
    return f"pump-1@{plan.name}"


def _hourly(plan: Plan, fault: str, fields: dict[str, Any]) -> Stream:
    for moment in _hours(plan, fault):
        yield event_at(plan, moment, source=subject(plan), **fields)


def _hours(plan: Plan, fault: str) -> list[float]:
    """Return the moments, an hour apart, at which the events of `fault` occur; empty if none."""
    begin, end = plan.window(fault) or (0.0, 0.0)
    return [begin + 3_600.0 * hour for hour in range(math.ceil((end - begin) / 3_600))]


_DEAD_ITEM: Final = {
    "kind": "message",
    "name": "queue_dead",
    "topic": QUEUE,
    "level": "Warning",
    "text": "it was delivered too often",
    "tags": {"item": "01", "deliveries": "5"},
}

_REFUSED: Final = {
    "kind": "limit",
    "name": RULE,
    "value": float(_REFUSALS),
    "level": "Warning",
    "tags": {"limit": "20"},
}

_REPEATED: Final = {
    "kind": "message",
    "name": "repeated",
    "value": float(_REPEATS),
    "level": "Informational",
}
