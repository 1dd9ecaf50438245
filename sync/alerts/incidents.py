"""Incidents: periods in which a subject has a problem, each with an alert at its start and end.

Pure. A subject is a gateway, queue, limit or sensor, the fleet, or the ingest. If it fails
repeatedly, the intervals between its alerts grow. An alert about a problem that is known from
delayed segments is delayed, because the problem may have ended meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from sync.alerts.rules import AllClear, Kind, Problem, Subject, Verdict, format_iso
from sync.alerts.state import DAY_MS

REPEAT_MS: Final = 3_600_000
"""Minimum time in ms from the first alert of a subject to the second. The minimum doubles with each
further alert, up to `MAX_REPEAT_MS`."""

MAX_REPEAT_MS: Final = DAY_MS
"""Time in ms after which a subject's next alert is always allowed: a day."""

CALM_MS: Final = 2 * MAX_REPEAT_MS
"""Time in ms without an alert after which a subject no longer counts as failing repeatedly."""

HOLD_MS: Final = 3_600_000
"""Delay in ms of an alert if delayed segments show the problem: a day's backlog arrives in this
time, and may show its end. Segments of a gateway whose clock is behind seem delayed, too."""

FORGET_MS: Final = 30 * DAY_MS
"""Time in ms without new data after which a subject is no longer monitored, and its alert ends."""

_CENTRE_CLOCK: Final[tuple[Kind, ...]] = ("silent", "ingest_behind", "unmonitored")
"""Kinds of problem whose times are by the centre's clock; all other kinds use the gateway's."""

FORGOTTEN_TEXT: Final = "No data has arrived for 30 days, so this problem is no longer monitored."


State = Literal["raised", "recovered"]


class Alert(msgspec.Struct, frozen=True):
    """An alert. Times are ISO 8601 in UTC; `at` is when the problem or its end was noticed.

    `since` and `until` are by the gateway's clock; for the kinds `silent`, `ingest_behind` and
    `unmonitored`, by the centre's. `id` is the same for start and end of an incident, and for
    repeated deliveries. `held` counts the problems of this subject that ended without an alert
    after its last one.
    """

    id: str
    state: State
    kind: Kind
    gateway: str
    subject: str
    since: str
    until: str
    at: str
    text: str
    remedy: str
    held: int


class Incident(
    msgspec.Struct,
    rename={  # the names in the state file
        "noticed_day": "noticed",
        "pending_since": "pending",
        "suppressed": "damped",
        "raised_at": "raised",
        "min_interval": "pause",
        "ended_at": "ended",
        "suppressed_count": "held",
        "fixed_id": "named",
    },
):
    """The incident of a subject, active while `since` (ms) is set.

    `noticed_day` is the start of the day on which the problem was last noticed. `pending_since` is
    when a problem without an alert was noticed; `suppressed` is true if its alert waits because the
    last one is recent. `suppressed_count` is the number of problems, after the last alert, that
    ended while their alert waited. `raised_at` is the time of the last alert, `min_interval` the
    minimum time from it to the next one, `ended_at` the end of the previous incident; all times are
    in ms. `fixed_id` is the id of an active incident whose `since` was changed after its alert;
    otherwise it is empty.
    """

    kind: Kind
    gateway: str
    subject: str
    since: int | None = None
    noticed_day: int = 0
    pending_since: int | None = None
    suppressed: bool = False
    raised_at: int = -CALM_MS
    min_interval: int = 0
    ended_at: int = 0
    suppressed_count: int = 0
    fixed_id: str = ""

    @property
    def key(self) -> Subject:
        """The subject that has the incident."""
        return Subject(self.kind, self.gateway, self.subject)


class IncidentTracker:
    """Tracks all active and recent incidents."""

    def __init__(self, incidents: Iterable[Incident] = ()) -> None:
        self._incidents = {each.key: each for each in incidents}

    def incidents(self) -> list[Incident]:
        """Return the incidents, sorted by subject."""
        return [each for _, each in sorted(self._incidents.items())]

    def active(self) -> dict[Subject, int]:
        """Return when each active incident began (ms since 1970 UTC), by subject."""
        return {key: each.since for key, each in self._incidents.items() if each.since is not None}

    def cap_times(self, now: int) -> None:
        """Set times after `now` to `now`, in case the centre's clock was set back.

        Otherwise pending alerts would wait until the clock has reached these times again. An active
        incident keeps its id.
        """
        for each in self._incidents.values():
            each.noticed_day = min(each.noticed_day, now)
            each.raised_at = min(each.raised_at, now)
            if each.pending_since is not None:
                each.pending_since = min(each.pending_since, now)
            if each.kind in _CENTRE_CLOCK:
                each.ended_at = min(each.ended_at, now)
                if each.since is not None and each.since > now:
                    each.fixed_id = each.fixed_id or alert_id(each.key, each.since)
                    each.since = now

    def update(self, verdicts: Iterable[Verdict], now: int) -> list[Alert]:
        """Apply verdicts at `now` (ms since 1970 UTC); return the alerts that they cause."""
        alerts: list[Alert] = []
        for verdict in verdicts:
            if isinstance(verdict, Problem):
                incident = self._incidents.setdefault(verdict.key, Incident(*verdict.key))
                alerts += _begin(incident, verdict, now)
            elif verdict.key in self._incidents:
                alerts += _end(self._incidents[verdict.key], verdict, now)
        for incident in self._incidents.values():
            if incident.since is not None and now - incident.noticed_day > FORGET_MS:
                alerts += _end(incident, AllClear(incident.key, now, FORGOTTEN_TEXT), now)
        self._incidents = {
            key: each for key, each in self._incidents.items() if not _is_over(each, now)
        }
        return alerts


def _begin(incident: Incident, verdict: Problem, now: int) -> Iterator[Alert]:
    incident.noticed_day = now - now % DAY_MS
    if incident.since is not None:
        return
    if incident.pending_since is None:
        incident.pending_since = now
    if verdict.late and now - incident.pending_since < HOLD_MS:
        return
    incident.suppressed = now - incident.raised_at < incident.min_interval
    if incident.suppressed:
        return
    is_calm = now - incident.raised_at >= CALM_MS
    incident.min_interval = REPEAT_MS if is_calm else min(2 * incident.min_interval, MAX_REPEAT_MS)
    incident.since = max(verdict.since, incident.ended_at)
    incident.raised_at = now
    incident.pending_since, incident.suppressed, incident.fixed_id = None, False, ""
    yield _alert("raised", incident, incident.since, verdict, now)
    incident.suppressed_count = 0


def _end(incident: Incident, verdict: AllClear, now: int) -> Iterator[Alert]:
    incident.suppressed_count += incident.suppressed
    incident.pending_since, incident.suppressed = None, False
    if incident.since is None:
        return
    yield _alert("recovered", incident, incident.since, verdict, now)
    incident.since, incident.ended_at = None, verdict.until


def _alert(state: State, incident: Incident, since: int, verdict: Verdict, now: int) -> Alert:
    return Alert(
        id=incident.fixed_id or alert_id(incident.key, since),
        state=state,
        **incident.key._asdict(),
        since=format_iso(since),
        until=format_iso(verdict.until),
        at=format_iso(now),
        text=verdict.text,
        remedy=verdict.remedy if isinstance(verdict, Problem) else "",
        held=incident.suppressed_count,
    )


def _is_over(incident: Incident, now: int) -> bool:
    is_open = incident.since is not None or incident.pending_since is not None
    return not is_open and now - incident.raised_at >= CALM_MS


def alert_id(key: Subject, since: int) -> str:
    """Return the id of an incident: 16 hexadecimal digits of a hash of its subject and start."""
    text = "\0".join((*key, str(since)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
