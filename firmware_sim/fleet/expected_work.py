"""Compute the values that reports must show for a gateway's queues, refusals, repeats and growth.

Written from docs/reference/reports.md, independently of the centre's code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.fleet.times import DAY_MS, iso, iso_or_none

if TYPE_CHECKING:
    from firmware_sim.fleet.contents import SystemEvent

_STUCK_MS: Final = 1_800_000  # for which items are due and none is delivered
_TOGETHER_MS: Final = 750_000  # between two depths_logged, beyond which nothing is known
_BEFORE_MS: Final = 366 * DAY_MS  # before its arrival, from which an event's time is plausible
_MOMENT: Final = ("ready", "locked", "delayed", "dead", "oldest_s", "members")
_SUMS: Final = ("delivered", "redelivered", "timeouts")


def queues(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `queues` must have; `events` is the lane `system`."""
    depths = _by(events, lambda each: each.row.topic, "queue", "depth")
    dead = _by(events, lambda each: each.row.topic, "message", "queue_dead")
    rows = []
    for queue, depths_logged in sorted(depths.items()):
        last = depths_logged[-1]
        row = {
            "queue": queue,
            "depth": round(last.row.value or 0),
            "depth_max": max(round(each.row.value or 0) for each in depths_logged),
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
    due = round(each.row.value or 0) - each.tag("delayed")
    return due > 0 and each.tag("delivered") == 0


def refusals(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the number of refusals by source and rule, with the first and last time."""
    found = _by(events, lambda each: (each.row.source, each.row.name), "limit")
    return [{"source": of[0], "rule": of[1], **_times(each)} for of, each in sorted(found.items())]


def repeats(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the number of repeated offers by source, with the first and last time."""
    found = _by(events, lambda each: each.row.source, "message", "repeated")
    return [{"source": source, **_times(each)} for source, each in sorted(found.items())]


def notices(events: Sequence[SystemEvent]) -> list[dict[str, Any]]:
    """Return the rows that the report's table `notices` must have."""
    rows = []
    for kind in ("limit", "message"):
        found = _by(events, lambda each: each.row.name, kind)
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
        if each.row.kind == kind and name in (None, each.row.name):
            found[key(each)].append(each)
    return dict(found)


def _times(events: Sequence[SystemEvent]) -> dict[str, Any]:
    times = [each.time for each in events]
    counts = [1 if each.row.value is None else round(each.row.value) for each in events]
    return {"times": sum(counts), "since": iso(min(times)), "until": iso(max(times))}


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
    evicted = _by(events, lambda each: each.row.topic, "uplink", "evicted").get(None, [])
    return {
        "days": max(len(shipped) - 2, 0),
        "shipped": sum(shipped.values()),
        "shipped_day": _ordinary(shipped),
        "events_day": _ordinary(daily),
        "disk_used": disk_used,
        "evicted": sum(round(each.row.value or 0) for each in evicted),
        "last_evicted": iso_or_none(max((each.time for each in evicted), default=None)),
    }


def _ordinary(days: dict[int, int]) -> float:
    """Return the median of the days' values; with more than two days, omit the first and last."""
    ordered = [days[day] for day in sorted(days)]
    return float(median(ordered[1:-1] or ordered))
