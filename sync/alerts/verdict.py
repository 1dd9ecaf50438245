"""What a rule says of a subject, and how an alert's text is written. Judges nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from sync.reports.shared import remedies

Kind = Literal["silent", "queue_stuck", "refusals", "sensor_silent", "ingest_behind"]

REMEDIES: Final[dict[Kind, str]] = {
    "silent": remedies.SILENT,
    "queue_stuck": remedies.QUEUE_STUCK,
    "refusals": remedies.REFUSALS,
    "sensor_silent": remedies.SENSOR_SILENT,
    "ingest_behind": "See whether `fieldpost-fleet ingest --continuous` runs at the centre, and "
    "why not: until it does, gateways that are gone are the only other thing told.",
}
"""What to do about each kind. That nothing arrives from anybody has a remedy of its own."""


class Subject(NamedTuple):
    """What an alert is about: `gateway` is "" where it is of the centre."""

    kind: Kind
    gateway: str
    subject: str


class Problem(NamedTuple):
    """Something is wrong `since` then, as is known up to `until` (ms since 1970 UTC).

    `late` says that this is known from what was held up on its way, and may be over long ago.
    """

    key: Subject
    since: int
    until: int
    late: bool
    text: str
    remedy: str


class AllClear(NamedTuple):
    """A subject is as it should be, as was known `until` then."""

    key: Subject
    until: int
    text: str


Verdict = Problem | AllClear
"""A subject of which nothing is said is not known: what was told of it stays so."""


def problem(key: Subject, since: int, until: int, text: str, *, late: bool = False) -> Problem:
    """Say what is wrong, with the remedy of its kind."""
    return Problem(key, since, until, late, text, REMEDIES[key.kind])


def format_time(ms: int) -> str:
    """Write a time for people, to the second, with the word UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_iso(ms: int) -> str:
    """Write a time for programs: ISO 8601, UTC, to the millisecond."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + (
        f".{ms % 1000:03d}+00:00"
    )


def format_duration(ms: float) -> str:
    """Write a length of time in whole seconds, minutes or hours, rounded down."""
    for unit, size in (("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * size:
            return f"{ms // size:.0f} {unit}"
    return f"{ms // 1000:.0f} s"
