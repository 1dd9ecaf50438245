"""What the reports must say of a gateway's queues, refusals, repeats and growth.

By docs/reference/reports.md, reckoned from the events that were accepted. It is written from the
document, not from the centre's code, of which it knows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from firmware_sim.fleet.times import DAY_MS, iso, iso_or_none

if TYPE_CHECKING:
    from firmware_sim.fleet.contents import Told

_STUCK_MS: Final = 1_800_000  # for which items are due and none is delivered
_TOGETHER_MS: Final = 750_000  # between two tellings, beyond which nothing is known
_MOMENT: Final = ("ready", "locked", "delayed", "dead", "oldest_s", "members")
_SUMS: Final = ("delivered", "redelivered", "timeouts")


def queues(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Give the rows that `queues` must have; `told` is all of the system lane, in order."""
    depths = _by(told, lambda each: each.row.topic, "queue", "depth")
    dead = _by(told, lambda each: each.row.topic, "message", "queue_dead")
    rows = []
    for queue, tellings in sorted(depths.items()):
        last = tellings[-1]
        row = {
            "queue": queue,
            "depth": round(last.row.value or 0),
            "depth_max": max(round(each.row.value or 0) for each in tellings),
            **{name: last.tag(name) for name in _MOMENT},
            **{name: sum(each.tag(name) for each in tellings) for name in _SUMS},
            "dead_items": len(dead.get(queue, ())),
            "last_told": iso(last.time),
            **_standing(tellings),
        }
        if row["state"] != "stuck":
            row["state"] = "ok" if row["depth"] else "idle"
        rows.append(row)
    return rows


def _standing(tellings: Sequence[Told]) -> dict[str, Any]:
    """Tell when a queue was stuck: stretches in which items were due and none was delivered."""
    stretches: list[list[Told]] = []
    before: Told | None = None
    for each in tellings:
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


def _stalled(each: Told) -> bool:
    due = round(each.row.value or 0) - each.tag("delayed")
    return due > 0 and each.tag("delivered") == 0


def refusals(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Give who was refused by which rule, how often, and when first and last."""
    found = _by(told, lambda each: (each.row.source, each.row.name), "limit")
    return [{"source": of[0], "rule": of[1], **_times(each)} for of, each in sorted(found.items())]


def repeats(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Give whose offers were repeated, how often, and when first and last."""
    found = _by(told, lambda each: each.row.source, "message", "repeated")
    return [{"source": source, **_times(each)} for source, each in sorted(found.items())]


def notices(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Give the rows that `notices` must have."""
    rows = []
    for kind in ("limit", "message"):
        found = _by(told, lambda each: each.row.name, kind)
        found.pop("repeated", None)
        rows += [
            {"kind": kind, "name": name, **_times(each)} for name, each in sorted(found.items())
        ]
    return rows


def _by(
    told: Iterable[Told], key: Callable[[Told], Hashable], kind: str, name: str | None = None
) -> dict[Any, list[Told]]:
    """Put together the events of a kind, or of a name too, by a key."""
    found: defaultdict[Hashable, list[Told]] = defaultdict(list)
    for each in told:
        if each.row.kind == kind and name in (None, each.row.name):
            found[key(each)].append(each)
    return dict(found)


def _times(events: Sequence[Told]) -> dict[str, Any]:
    times = [each.time for each in events]
    counts = [1 if each.row.value is None else round(each.row.value) for each in events]
    return {"times": sum(counts), "since": iso(min(times)), "until": iso(max(times))}


def growth(
    told: Sequence[Told], sizes: Sequence[tuple[int, int]], times: Iterable[int], disk_used: int
) -> dict[str, Any]:
    """Give what `growth` must say.

    `sizes` are the time of sealing of each segment, in ms since 1970 UTC, and its bytes; `times`
    those of all events. `disk_used` is what the last segment says.
    """
    shipped: defaultdict[int, int] = defaultdict(int)
    for sealed, size in sizes:
        shipped[sealed // DAY_MS] += size
    events: defaultdict[int, int] = defaultdict(int)
    for time in times:
        events[time // DAY_MS] += 1
    evicted = _by(told, lambda each: each.row.topic, "uplink", "evicted").get(None, [])
    return {
        "days": max(len(shipped) - 2, 0),
        "shipped": sum(shipped.values()),
        "shipped_day": _ordinary(shipped),
        "events_day": _ordinary(events),
        "disk_used": disk_used,
        "evicted": sum(round(each.row.value or 0) for each in evicted),
        "last_evicted": iso_or_none(max((each.time for each in evicted), default=None)),
    }


def _ordinary(days: dict[int, int]) -> float:
    """Give the median of all days but the first and the last, or of these if there is no other."""
    ordered = [days[day] for day in sorted(days)]
    return float(median(ordered[1:-1] or ordered))
