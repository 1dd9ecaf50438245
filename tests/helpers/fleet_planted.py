"""Compare the problems of a report with the faults of a simulated fleet: kind, place and time.

`report` is report.json, `truth` is truth.json. The report must have each simulated fault once, in
its place, and no other problem. Times in the report must be right by the gateway's clock, within
`TOLERANCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sync.reports.shared.formats import plain as format_value

Json = dict[str, Any]

_time = datetime.fromisoformat

WHERE = {
    **dict.fromkeys(("unexplained", "declared", "fork"), "{gateway}, {lane} lane, epoch {epoch}"),
    **dict.fromkeys(("queue_stuck", "queue_dead"), "{gateway}, queue {queue}"),
    **dict.fromkeys(
        ("sensor_silent", "sensor_flat", "sensor_anomaly"), "{gateway}, {source}, {sensor}"
    ),
    **dict.fromkeys(("refusals", "repeats"), "{gateway}, {source}"),
    "torn": "{gateway}, epoch {epoch}",
    "bad_segment": "landing",
    "version_errors": "version {version}",
}
"""The place of a problem in the report by kind; of other kinds it is the gateway."""

HOUR = 3_600.0


class Span(NamedTuple):
    """The begin and end that a report states; None if it does not state one."""

    begin: datetime | None = None
    end: datetime | None = None


class Tolerance(NamedTuple):
    """Seconds by which a stated begin and end may be off."""

    begin: float = 0.0
    end: float = 0.0


class Case(NamedTuple):
    """A simulated fault, and what it is compared with."""

    entry: Json
    truth: Json
    tables: Json

    def rows(self, table: str, **of: Any) -> list[Json]:
        """Return the rows of a table that have these values and are of the gateway."""
        chosen = {"gateway": self.entry["gateway"], **of}
        return [
            row
            for row in self.tables[table]
            if all(row[name] == value for name, value in chosen.items())
        ]

    def row(self, table: str, **of: Any) -> Json:
        """Return the only row with these values."""
        rows = self.rows(table, **of)
        assert len(rows) == 1, (self.entry, table, rows)
        return rows[0]

    @property
    def interval(self) -> float:
        """Maximum seconds between two readings of a sensor."""
        sensors, jitter = 8, 1.2
        return sensors * jitter * 86_400 / float(self.truth["readings"])

    @property
    def lost_seconds(self) -> float:
        """Seconds in which readings of the gateway were lost."""
        shares = {"gap": 0.05, "evictions": 0.15}
        rows = (row for row in self.truth["planted"] if row["gateway"] == self.entry["gateway"])
        return self.length * sum(shares.get(row["fault"], 0.0) for row in rows)

    @property
    def length(self) -> float:
        """Seconds that were simulated."""
        return float(self.truth["days"]) * 86_400

    @property
    def sealing(self) -> float:
        """Maximum seconds from an event of the system lane to the next sealing."""
        return float(self.truth["seal"]) + float(self.truth["heartbeat"])


def _moment(text: str | None) -> datetime | None:
    return None if text is None else _time(text)


def _span(row: Json, begin: str | None = None, end: str | None = None) -> Span:
    return Span(_moment(row[begin]) if begin else None, _moment(row[end]) if end else None)


def _outage(case: Case) -> Span:
    row = case.row("outages")
    assert row["ended"] == "restarted"
    return _span(row, "begin", "end")


def _unsynchronised(case: Case) -> Span:
    """Check the duration, by heartbeats; the report does not state when."""
    row = case.row("clocks", state="unsynchronised")
    length = (_time(case.entry["to"]) - _time(case.entry["from"])).total_seconds()
    assert abs(row["unsynchronised_s"] - length) <= 4 * case.truth["heartbeat"], case.entry
    return Span(end=_moment(row["last_step"]))


def _step(case: Case) -> Span:
    row = case.row("clocks", state="stepping", odd_steps=1, step_max_s=case.entry["size"])
    return _span(row, "last_step", "last_step")


def _drift(case: Case) -> Span:
    """Check the drift, within a tenth; it lasts all the time."""
    row = case.row("clocks", state="drifting")
    drift_ppm = row["gain_ppm"] if row["drift_ppm"] is None else row["drift_ppm"]
    assert abs(drift_ppm - case.entry["size"]) <= case.entry["size"] / 10, case.entry
    return Span()


def _refused(case: Case, *, fork: bool) -> Span:
    place = case.entry["place"]
    lane = (case.entry["gateway"], place["epoch"], place["lane"]) if fork else ()
    under = "/".join(["landing", *lane])
    arrived = sorted(
        row["arrived"]
        for row in case.tables["quarantine"]
        if (row["reason"] == "fork") == fork and (not fork or row["path"].startswith(under + "/"))
    )
    return Span(_moment(arrived[0]), _moment(arrived[-1]) if fork else None)


def _evicted(case: Case) -> Span:
    """Check the time of the last eviction, which is reported when most of the window is over."""
    case.row("completeness", **case.entry["place"])
    evicted = _time(case.row("growth")["last_evicted"])
    assert _time(case.entry["clock_from"]) < evicted <= _time(case.entry["clock_to"]), case.entry
    return Span(end=evicted)


def _queue_stuck(case: Case) -> Span:
    row = case.row("queues", state="stuck", **case.entry["place"])
    return _span(row, "since", "last_told")


def _queue_dead(case: Case) -> Span:
    row = case.row("queues", **case.entry["place"])
    assert 0 < row["dead"] <= row["dead_items"], case.entry
    return _span(case.row("notices", kind="message", name="queue_dead"), "since", "until")


def _flat(case: Case) -> Span:
    row = case.row("anomalies", state="flat", **case.entry["place"])
    return _span(row, "flat_since", "flat_until")


def _anomaly(case: Case) -> Span:
    row = case.row("anomalies", state="anomalous", **case.entry["place"])
    begin, end = _time(case.entry["clock_from"]), _time(case.entry["clock_to"])
    worst = _time(row["worst_at"])
    hours = (end - begin).total_seconds() / HOUR
    assert abs(row["anomalous_hours"] - hours) <= 2, case.entry
    assert begin - timedelta(hours=1) <= worst <= end, case.entry
    return Span()


def _refusals(case: Case) -> Span:
    rows = [row for row in case.tables["refusals"] if row["which"] == case.entry["gateway"]]
    place = case.entry["place"]
    assert [(row["source"], row["rule"]) for row in rows] == [(place["source"], place["rule"])]
    return _span(rows[0], "since", "until")


def _full(case: Case) -> Span:
    """Check the day on which storage is full, within a twelfth of the time until then.

    The interval of the trend is one of 90 %, and a little too narrow. Storage whose backlog was
    full in the last day is full.
    """
    if case.entry["fault"] == "evictions":
        case.row("growth", state="full")
        return Span()
    row = case.row("growth", state="soon")
    grown = row["trend_day"]
    assert abs(grown - case.entry["size"]) <= case.entry["size"] / 20, case.entry
    assert row["trend_low"] / 1.01 <= case.entry["size"] <= row["trend_high"] * 1.01, case.entry
    left = (row["cap"] - row["disk_used"]) / case.entry["size"]
    assert abs(row["days_left"] - left) <= left / 12, case.entry
    return Span()


def _version(case: Case) -> Span:
    version = case.entry["place"]["version"]
    [row] = [row for row in case.tables["versions"] if row["version"] == version]
    assert row["worse"]
    return _span(row, "first_seen", "last_seen")


def _torn(case: Case) -> Span:
    row = case.row("completeness", state="torn", lane="system", **case.entry["place"])
    return _span(row, "since")


def _counted(table: str, **of: int) -> Callable[[Case], Span]:
    """Check a count; the report does not state when."""

    def check(case: Case) -> Span:
        case.row(table, **of, **case.entry["place"])
        return Span()

    return check


CHECKS: dict[str, Callable[[Case], Span]] = {
    "outage": _outage,
    "unclean_restart": _counted("availability", unclean_restarts=1),
    "silent": lambda case: _span(case.row("availability", state="silent"), "last_arrival"),
    "torn": _torn,
    "unexplained": _counted("completeness"),
    "declared": _evicted,
    "fork": lambda case: _refused(case, fork=True),
    "bad_segment": lambda case: _refused(case, fork=False),
    "clock_step": _step,
    "clock_unsynchronised": _unsynchronised,
    "clock_drift": _drift,
    "misdated": lambda case: _span(case.row("dates"), "since"),
    "disk_full_soon": _full,
    "queue_stuck": _queue_stuck,
    "queue_dead": _queue_dead,
    "sensor_silent": lambda case: _span(
        case.row("sensors", state="silent", **case.entry["place"]), "last"
    ),
    "sensor_flat": _flat,
    "sensor_anomaly": _anomaly,
    "refusals": _refusals,
    "repeats": lambda case: _span(
        case.row("duplicates", what="offers", **case.entry["place"]), "since", "until"
    ),
    "version_errors": _version,
}
"""The function that checks each kind of problem, and returns when it was by the report."""

TOLERANCES: dict[str, Callable[[Case], Tolerance]] = {
    "outage": lambda case: Tolerance(case.truth["heartbeat"], case.truth["heartbeat"]),
    "silent": lambda case: Tolerance(case.sealing),
    "torn": lambda case: Tolerance(case.sealing),
    "declared": lambda case: Tolerance(end=0.05 * case.length),
    "fork": lambda case: Tolerance(3 * HOUR + case.sealing, 3 * HOUR + case.sealing),
    "bad_segment": lambda case: Tolerance(2 * case.sealing),
    "clock_step": lambda _: Tolerance(1.0, 1.0),
    "clock_unsynchronised": lambda _: Tolerance(end=1.0),
    "misdated": lambda case: Tolerance(case.truth["heartbeat"]),
    "queue_stuck": lambda case: Tolerance(1.0, case.sealing + 600),
    "queue_dead": lambda _: Tolerance(HOUR, 2 * HOUR),
    "sensor_silent": lambda case: Tolerance(2 * case.interval),
    "sensor_flat": lambda case: Tolerance(
        2 * case.interval + case.lost_seconds, case.sealing + 2 * case.interval
    ),
    "refusals": lambda _: Tolerance(HOUR, 2 * HOUR),
    "repeats": lambda _: Tolerance(HOUR, 2 * HOUR),
    "version_errors": lambda case: Tolerance(0.07 * case.length, 2 * case.sealing),
}
"""How far a stated time may be off: events come with heartbeats; what was not sealed does not
arrive; segments of a copy come an hour later, and its logs are few; refusals of a device are
reported hourly; a version is rolled out over hours; lost readings leave gaps."""


def where(entry: Json) -> tuple[str, str, str]:
    """Return kind, gateway and place of the problem that the report must have."""
    place = WHERE.get(entry["kind"], "{gateway}")
    named = {name: format_value(value) for name, value in entry["place"].items()}
    return entry["kind"], entry["gateway"], place.format(gateway=entry["gateway"], **named)


def check_problems(truth: Json, report: Json) -> None:
    """Require that the report has all simulated faults, in their places, and nothing else."""
    reported = [(each["kind"], each["gateway"], each["where"]) for each in report["problems"]]
    planted = {where(entry) for entry in truth["planted"] if entry["kind"]}
    assert set(reported) == planted, set(reported) ^ planted
    assert len(reported) == len(planted), reported


def check_times(truth: Json, report: Json) -> None:
    """Require that the report's times are those of the simulated faults."""
    clocks = {
        entry["gateway"]
        for entry in truth["planted"]
        if entry["fault"] in ("clock-step", "clock-years")
    }
    for entry in truth["planted"]:
        if not entry["kind"]:
            continue
        case = Case(entry, truth, report["tables"])
        span = CHECKS[entry["kind"]](case)
        tolerance = TOLERANCES[entry["kind"]](case) if entry["kind"] in TOLERANCES else Tolerance()
        set_once = entry["kind"] == "queue_stuck" and entry["gateway"] in clocks
        if span.begin is not None and not set_once:  # then the report begins at the step
            _near(entry, "from", span.begin, tolerance.begin)
        if span.end is not None:
            _near(entry, "to", span.end, tolerance.end)


def _near(entry: Json, which: str, reported: datetime, tolerance: float) -> None:
    """Compare a time with the simulated one: by the gateway's clock or by the centre's."""
    by_centre = entry["kind"] in ("silent", "fork", "bad_segment", "version_errors")
    planted = _time(entry[which if by_centre else f"clock_{which}"])
    off = abs((reported - planted).total_seconds())
    assert off <= tolerance, f"{entry['kind']} of {entry['gateway']}: {reported}, not {planted}"
