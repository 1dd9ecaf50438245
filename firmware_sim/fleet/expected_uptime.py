"""What the reports must say of a gateway's life and its clock, by docs/reference/reports.md.

Reckoned from the events that were accepted, one after another. It is written from the document, not
from the centre's code, of which it knows nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firmware_sim.fleet.times import iso, iso_or_none

if TYPE_CHECKING:
    from firmware_sim.fleet.contents import Told

_STEP: Final = "clock_stepped"
_SIGNS: Final = ("start", "heartbeat", "stop", _STEP)
_HEARTBEAT_S: Final = 60.0  # seconds between two heartbeats, before a gateway told its own
_PATIENCE: Final = 2.5  # how many heartbeats, or sealings, may fail to come
_SILENT_S: Final = 750.0  # seconds without an arrival, at least, that are a silence
_SEALINGS: Final = 5  # times between two segments that have to be known for more than that
_SETTLED_MS: Final = 600_000  # ms within which a step may make a clock synchronised


class Between(NamedTuple):
    """The time between two signs of life: its state, as the report has it, and both of them."""

    state: str
    before: Told
    after: Told

    @property
    def length(self) -> int:
        """How long it was by the gateway's clock, in ms."""
        return max(self.after.time - self.before.time, 0)


def between_signs(told: Sequence[Told]) -> Iterator[Between]:
    """Judge the time between each two signs; `told` is all of the system lane, in order."""
    signs = [at for at, each in enumerate(told) if _system(each) and each.row.name in _SIGNS]
    interval = _HEARTBEAT_S
    for first, second in pairwise(signs):
        before, after = told[first], told[second]
        if before.row.name != _STEP and before.row.value:
            interval = before.row.value
        whole = _whole(before, after, second - first)
        yield Between(_state(before, after, interval, whole=whole), before, after)


def _system(each: Told) -> bool:
    return each.row.kind == "system"


def _whole(before: Told, after: Told, apart: int) -> bool:
    """Tell whether nothing is missing between two signs that stand so far `apart`."""
    if before.epoch == after.epoch:
        return after.seq - before.seq == apart
    return before.row.name == "stop" and after.seq == apart


def _state(before: Told, after: Told, interval: float, *, whole: bool) -> str:
    if before.row.clock != after.row.clock or after.row.name == _STEP:
        return "clock"
    if before.row.name == "stop" and whole:
        return "stopped"
    if after.time - before.time <= interval * _PATIENCE * 1000:
        return "running"
    return "outage" if whole else "unknown"


def availability(told: Sequence[Told]) -> dict[str, Any]:
    """Give what `availability` must say of the time, beside what arrivals tell."""
    spans = list(between_signs(told))
    signs = [each for each in told if _system(each) and each.row.name in _SIGNS]
    starts = [each for each in spans if each.after.row.name == "start"]
    gaps = [each.length for each in spans if each.state in ("outage", "unknown")]
    unclean = [
        each
        for each in starts
        if each.before.row.name != "stop" and each.before.epoch == each.after.epoch
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


def outages(told: Sequence[Told]) -> list[dict[str, Any]]:
    """Give the rows that `outages` must have."""
    return [
        {
            "begin": iso(each.before.time),
            "end": iso(each.after.time),
            "seconds": each.length / 1000,
            "ended": "restarted" if each.after.row.name == "start" else "went_on",
        }
        for each in between_signs(told)
        if each.state == "outage"
    ]


def reached(
    told: Sequence[Told], arrivals: Sequence[int], sealed: Sequence[tuple[str, float]], as_of: int
) -> dict[str, Any]:
    """Give what `availability` must say of arrivals, and the state.

    `arrivals` are all of them, in ms since 1970 UTC, and so is `as_of`. `sealed` are the epoch and
    the seconds of service of each segment of the system lane.
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
    names = [each.row.name for each in told if _system(each) and each.row.name in _SIGNS]
    state = "running" if names else "unknown"
    if names and names[-1] == "stop":
        state = "stopped"
    elif (as_of - times[-1]) / 1000 > patience:
        state = "silent"
    return {
        "state": state,
        "last_arrival": iso(times[-1]),
        "silent_after_s": round(patience, 3),
        "silences": len(silences),
        "longest_silence_s": max(silences) if silences else None,
    }


def clock(told: Sequence[Told]) -> dict[str, Any]:
    """Give what `clocks` must say of steps and of being synchronised."""
    beats = [each for each in told if _system(each) and each.row.name == "heartbeat"]
    steps = [each for each in told if _system(each) and each.row.name == _STEP]
    found = [each.time for each in told if _system(each) and each.row.name == "clock_synchronised"]
    moved = [each.row.value or 0.0 for each in steps]
    lost = [each.row.value or _HEARTBEAT_S for each in beats if not each.row.clock]
    return {
        "steps": len(steps),
        "odd_steps": sum(not _settles(each.time, found) for each in steps),
        "step_sum_s": sum(map(abs, moved)),
        "step_max_s": max(moved, key=abs) if moved else None,
        "last_step": iso_or_none(max((each.time for each in steps), default=None)),
        "synchronised": beats[-1].row.clock if beats else None,
        "unsynchronised_s": sum(lost),
    }


def _settles(step: int, found: list[int]) -> bool:
    """Tell whether the clock was synchronised right after that step."""
    ordered = sorted(found)
    at = bisect_right(ordered, step - 1)
    return at < len(ordered) and ordered[at] - step <= _SETTLED_MS
