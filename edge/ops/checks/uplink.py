"""Check the uplink: its configuration, its connection to the centre, and its backlog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.engine.rules.service_time import DAY_MS
from edge.ops.certificates.pki import early
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.gateway.status import NOT_RUNNING, Status
from edge.ops.gateway.uplink import CentreAnswer, Route, UplinkStatus
from sync.common.text import duration, plural, size

EXPIRY_NOTICE_DAYS: Final = 30
"""The gateway's certificate for the centre is reported if it expires in fewer days than this. The
running gateway should have renewed it earlier."""

SILENCE: Final = 2 * 3600.0
"""Seconds without an upload, while segments wait, after which the verdict is `notice`.

By default, a segment is sealed every five minutes.
"""

LONG_SILENCE: Final = 24 * 3600.0
"""Seconds without an upload, while segments wait, after which the verdict is `wrong`."""

STUCK: Final = 3.0
"""Multiple of `uplink.segment_age` above which the age of an unsealed event is reported.

Events are normally sealed when they are `uplink.segment_age` old, or later if an attempt fails.
"""

HALF: Final = 0.5
"""Used fraction of `limits.backlog_bytes` from which the verdict is `notice`."""

ALMOST: Final = 0.9
"""Used fraction of `limits.backlog_bytes` above which the verdict is `wrong`."""


def route(found: Route, now: int) -> Iterator[Finding]:
    """Check the configured route to the centre.

    `now` is in ms since 1970.
    """
    if found.problem is not None:
        yield Finding("uplink", WRONG, found.problem, found.remedy)
    elif not found.target:
        text = "no uplink is configured: segments stay on the gateway"
        remedy = "enrol the gateway at a centre, or use `fieldpost uplink export`"
        yield Finding("uplink", NOTICE, text, remedy)
    else:
        yield Finding("uplink", OK, f"segments go to {found.target}")
    if found.certificate_begin is not None and now < found.certificate_begin:
        what = "the gateway's certificate for the centre"
        yield Finding("uplink", WRONG, *early(what, found.certificate_begin, now))
    if found.certificate_end is not None:
        days = (found.certificate_end - now) // DAY_MS
        remedy = "connect the gateway to the centre, which renews it; if that fails, enrol it again"
        if days < 0:
            text = "the gateway's certificate for the centre has expired"
            yield Finding("uplink", WRONG, text, remedy)
        elif days < EXPIRY_NOTICE_DAYS:
            text = f"the gateway's certificate for the centre expires in {plural(days, 'day')}"
            yield Finding("uplink", NOTICE, text, remedy)


def centre(found: CentreAnswer | None, ships: UplinkStatus, now: int) -> Iterator[Finding]:
    """Report the answer of the centre to a query, if one was sent.

    An unreachable centre is not urgent if it has accepted a segment recently: links fail at times.
    """
    if found is None:
        return
    if found.problem is None:
        yield Finding("uplink", OK, "the centre answers")
    elif found.refused:
        text = f"the centre refuses this gateway: {found.problem}"
        remedy = "see `fieldpost-fleet gateway list` at the centre, and enrol the gateway again"
        yield Finding("uplink", WRONG, text, remedy)
    else:
        last = ships.last_upload
        recent = last is not None and 0 <= (now - last) / 1000 < SILENCE
        text = f"the centre cannot be reached: {found.problem}"
        remedy = "check the link, the URL of the enrolment, and whether the centre runs"
        yield Finding("uplink", NOTICE if recent else WRONG, text, remedy)


def unsealed(
    found: UplinkStatus, segment_age: float, status: Status, now: int
) -> Iterator[Finding]:
    """Check that events are sealed into segments, which only a running gateway does.

    `segment_age` is in seconds, `now` in ms since 1970.
    """
    count, since, service = found.unsealed
    events = plural(count, "event is", "events are")
    if not count:
        return
    if status.state == NOT_RUNNING:
        age = "" if since is None else f", the oldest for {duration(max(0, now - since) / 1000)}"
        text = f"{events} not in a segment yet{age}, because the gateway is not running"
        remedy = "`systemctl start fieldpost`: only a running gateway can seal and ship them"
        yield Finding("backlog", NOTICE, text, remedy)
    elif service is not None and status.service - service > STUCK * segment_age:
        text = f"{events} not in a segment yet, the oldest for {duration(status.service - service)}"
        remedy = "see the events `lane-stuck` in `fieldpost events` for the reason; check the disk"
        yield Finding("backlog", WRONG, text, remedy)


def backlog(found: UplinkStatus, target: str, now: int) -> Iterator[Finding]:
    """Check the backlog's size and, if segments have a `target`, the time since the last upload."""
    waiting = sum(lane.bytes for lane in found.lanes)
    text = f"the backlog uses {size(waiting)} of {size(found.quota)}"
    if target and waiting:
        yield from _silence(found, now)
    if waiting < HALF * found.quota:
        yield Finding("backlog", OK, text)
    else:
        hours = found.hours_until_full
        full = "" if hours is None else f" and is full in {duration(3600 * hours)}"
        remedy = (
            "repair the link, or use `fieldpost uplink export`; a full backlog drops its oldest"
            " segments"
        )
        verdict = WRONG if waiting > ALMOST * found.quota else NOTICE
        yield Finding("backlog", verdict, text + full, remedy)
    if found.rejected:
        count = sum(rejected.segments for rejected in found.rejected)
        text = f"the centre rejected {plural(count, 'segment')}; they are kept on the gateway"
        yield Finding("backlog", NOTICE, text, "see the reason in `fieldpost uplink status`")
    if found.lost:
        ranges = plural(len(found.lost), "range of events was", "ranges of events were")
        text = f"{ranges} dropped, and the centre has not been told yet"
        yield Finding("backlog", NOTICE, text, "see `fieldpost uplink status`")


def _silence(found: UplinkStatus, now: int) -> Iterator[Finding]:
    oldest = min((lane.oldest for lane in found.lanes if lane.oldest is not None), default=now)
    # A segment sealed just now need not be there yet. Times in the future are from a wrong clock.
    since = max((t for t in (found.last_upload, oldest) if t is not None and t <= now), default=now)
    silent = (now - since) / 1000
    if silent < SILENCE:
        return
    failure = found.failure
    reason = "" if failure is None else f" ({failure.name}: {failure.text})"
    text = f"the centre has not accepted a segment for {duration(silent)}{reason}"
    verdict = NOTICE if silent < LONG_SILENCE else WRONG
    yield Finding("uplink", verdict, text, "check the link; see `fieldpost uplink status`")
