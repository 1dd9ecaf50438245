"""The way to the centre: whether there is one, whether it is open, and how much waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from edge.engine.service_time import DAY_MS
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.status import NOT_RUNNING, Status
from edge.ops.uplink import Uplink
from sync.common.text import duration, plural, size

SOON: Final = 30
"""Days before the gateway's certificate at the centre ends from which on it is told: by then it
should have been renewed."""

QUIET: Final = 2 * 3600.0
"""Seconds without anything taken while something waits: a segment is sealed every five minutes."""

LONG: Final = 24 * 3600.0
"""Seconds of the same after which somebody has to know."""

STUCK: Final = 3.0
"""Times `uplink.segment_age` that an event waits for its segment at a gateway that runs, from which
on that is told: it is sealed after one, and tried again if that fails."""

HALF: Final = 0.5
"""The part of the backlog's bound at which it is told."""


class Way(NamedTuple):
    """What the configuration says of the way: where to (empty: nowhere), why it cannot be gone,
    when the gateway's certificate ends, in ms since 1970 UTC, and what to do about the trouble."""

    to: str
    trouble: str | None = None
    certificate_ends: int | None = None
    remedy: str = "enrol the gateway anew"


def way(found: Way, now: int) -> Iterator[Finding]:
    """Look at the enrolment; `now` in ms since 1970."""
    if found.trouble is not None:
        yield Finding("uplink", WRONG, found.trouble, found.remedy)
    elif not found.to:
        text = "there is no way to the centre: segments are kept here"
        yield Finding("uplink", NOTICE, text, "enrol it, or `fieldpost uplink export`")
    else:
        yield Finding("uplink", OK, f"segments go to {found.to}")
    if found.certificate_ends is not None:
        days = (found.certificate_ends - now) // DAY_MS
        remedy = "the gateway renews it when it reaches the centre; else enrol it anew"
        if days < 0:
            yield Finding("uplink", WRONG, "its certificate at the centre has ended", remedy)
        elif days < SOON:
            text = f"its certificate at the centre ends in {plural(days, 'day')}"
            yield Finding("uplink", NOTICE, text, remedy)


def unsealed(found: Uplink, segment_age: float, status: Status, now: int) -> Iterator[Finding]:
    """Look at the events that are in no segment yet: a gateway seals them as long as it runs.

    `segment_age` is in seconds, `now` in ms since 1970.
    """
    count, since, service = found.unsealed
    events = plural(count, "event is", "events are")
    if not count:
        return
    if status.state == NOT_RUNNING:
        age = "" if since is None else f", the first for {duration(max(0, now - since) / 1000)}"
        text = f"{events} in no segment{age}, since no gateway runs"
        remedy = "`systemctl start fieldpost`: nothing of them is shipped or exported before"
        yield Finding("backlog", NOTICE, text, remedy)
    elif service is not None and status.service - service > STUCK * segment_age:
        text = f"{events} in no segment, the first for {duration(status.service - service)}"
        remedy = "`fieldpost events` has `lane-stuck`, which says why; look at the disk"
        yield Finding("backlog", WRONG, text, remedy)


def backlog(found: Uplink, to: str, now: int) -> Iterator[Finding]:
    """Look at what waits, and since when the centre has taken nothing."""
    waiting = sum(lane.bytes for lane in found.lanes)
    text = f"{size(waiting)} of {size(found.bound)} wait"
    if to and waiting:
        yield from _silence(found, now)
    if waiting < HALF * found.bound:
        yield Finding("backlog", OK, text)
    else:
        hours = "" if found.hours is None else f", full in {duration(3600 * found.hours)}"
        remedy = "see to the link, or `fieldpost uplink export`: the oldest go when it is full"
        verdict = WRONG if waiting > 0.9 * found.bound else NOTICE
        yield Finding("backlog", verdict, text + hours, remedy)
    if found.aside:
        count = sum(aside.segments for aside in found.aside)
        segments = plural(count, "segment was", "segments were")
        text = f"{segments} set aside, since the centre refused what it was offered for good"
        yield Finding("backlog", NOTICE, text, "`fieldpost uplink status` says why")
    if found.dropped:
        ranges = plural(len(found.dropped), "range of events is", "ranges of events are")
        text = f"{ranges} lost, and the centre is yet to be told"
        yield Finding("backlog", NOTICE, text, "`fieldpost uplink status` names them")


def _silence(found: Uplink, now: int) -> Iterator[Finding]:
    oldest = min((lane.oldest for lane in found.lanes if lane.oldest is not None), default=now)
    since = max(found.taken or 0, oldest)  # what was sealed just now need not be there yet
    silent = (now - since) / 1000
    if silent < QUIET:
        return
    told = found.told  # if anything was taken after it, it is not the reason
    why = "" if told is None or told.time < (found.taken or 0) else f" ({told.name}: {told.text})"
    text = f"the centre has taken nothing for {duration(silent)}{why}"
    verdict = NOTICE if silent < LONG else WRONG
    yield Finding("uplink", verdict, text, "`fieldpost uplink status`, and the link")
