"""Rows of an invented fleet, always the same, from which `sample_findings` is assembled.

The place of a gateway in the fleet determines its problem.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

NOW: Final = datetime(2025, 11, 28, 6, tzinfo=UTC)
DAYS: Final = 7
STEP_S: Final = 6 * 3600
_MIB: Final = 2**20

Row = dict[str, Any]

SILENT, OUTAGE, GAP, FORK, STUCK, FULL, CLOCK, FLAT = range(8)
"""Problems of the first gateways, one each; the others have none."""


def ago(hours: float) -> datetime:
    """Return the time a number of hours before the report."""
    return NOW - timedelta(hours=hours)


def availability(name: str, at: int) -> Row:
    silent, out = at == SILENT, at == OUTAGE
    running, outage = (DAYS * 86_400.0, 0.0) if not out else (561_600.0, 43_200.0)
    times = {"running_s": running, "stopped_s": 0.0, "outage_s": outage, "unknown_s": 0.0}
    return (
        {"gateway": name, "state": "silent" if silent else "running", "first_seen": ago(24 * DAYS)}
        | {"last_seen": ago(9.5 if silent else 0.01), "last_arrival": ago(9.5 if silent else 0.02)}
        | {"running_share": running / (running + outage)}
        | times
        | {"outages": 2 if out else 0, "longest_gap_s": 28_800.0 if out else None}
        | {"restarts": 3 if out else 1, "unclean_restarts": 2 if out else 0}
        | {"clock_steps": 2 if at == CLOCK else 0, "silent_after_s": 750.0}
        | {"reachable_share": 0.943 if silent else 1.0, "silences": 1 if silent else 0}
        | {"longest_silence_s": 34_200.0 if silent else None}
    )


def outages(name: str, at: int) -> list[Row]:
    periods = ((40, 36, "restarted"), (100, 92, "went_on")) if at == OUTAGE else ()
    return [
        {"gateway": name, "begin": ago(begin), "end": ago(end), "ended": ended}
        | {"seconds": (begin - end) * 3600.0}
        for begin, end, ended in periods
    ]


def duplicates(name: str, at: int) -> list[Row]:
    segments = {"what": "segments", "source": "readings", "times": 3}
    offers = {"what": "offers", "source": f"pump1@{name}", "times": 260}
    rows = (offers, segments) if at == OUTAGE else ()
    return [{"gateway": name, "since": ago(90), "until": ago(36)} | each for each in rows]


def completeness(name: str, at: int, chance: random.Random) -> list[Row]:
    rows = []
    for lane, events in (("logs", 21_000), ("readings", 410_000), ("system", 11_500)):
        last = events + chance.randrange(events // 10)
        missing = {(GAP, "readings"): 400, (FULL, "logs"): 2_000}.get((at, lane), 0)
        declared = missing if at == FULL else 0
        rows.append(
            {"gateway": name, "epoch": "01JD0000000000000000000000", "lane": lane, "state": "open"}
            | {"since": ago(9.5 if at == SILENT else 0.02)}
            | {"first_seq": 1, "last_seq": last, "expected": last, "received": last - missing}
            | {"missing": missing, "declared": declared, "unexplained": missing - declared}
            | {"duplicates": 0, "chain_breaks": 0, "repeated_segments": 3 if at == OUTAGE else 0}
            | {"forks": 1 if (at, lane) == (FORK, "readings") else 0}
        )
    return rows


def delivery(name: str, at: int, chance: random.Random) -> list[Row]:
    slow = 20 if at == STUCK else 1
    p50 = (8 + chance.randrange(6)) * slow
    figures = {"p50_ms": p50, "p95_ms": p50 * 4, "p99_ms": p50 * 11, "max_ms": p50 * 160}
    return [
        {"gateway": name, "qos": 0, "events": 90_000}
        | dict.fromkeys(figures, 0)
        | {"max_ms": 2 * slow},
        {"gateway": name, "qos": 2, "events": 320_000} | figures,
    ]


def lag(name: str, at: int, chance: random.Random) -> list[Row]:
    p50 = 150.0 + chance.randrange(20)
    late = 12 if at == OUTAGE else 1
    figures = {"p50_s": p50, "p95_s": p50 * 2, "p99_s": p50 * 2 * late, "max_s": p50 * 3 * late}
    return [{"gateway": name, "clock": True, "events": 430_000} | figures]


def notices(name: str, at: int) -> list[Row]:
    if at != STUCK:
        return []
    row = {"gateway": name, "since": ago(60), "until": ago(3)}
    return [
        row | {"kind": "limit", "name": "rate", "times": 1_240},
        row | {"kind": "message", "name": "dead", "times": 3},
    ]


def sessions(name: str, at: int) -> list[Row]:
    lost = 212 if at == OUTAGE else 3
    row = {"gateway": name, "since": ago(24 * DAYS), "until": ago(1)}
    return [
        row | {"protocol": protocol, "version": version, "transport": transport}
        | {"devices": devices, "sessions": sessions, "lost": lost, "failed": failed}
        | {"which": f"{device}@{name}"}
        for protocol, version, transport, devices, sessions, failed, device in (
            ("mqtt", "3.1.1", None, 1, 230, 0, "meter"),
            ("mqtt", "5.0", None, 1, 240, 0, "door"),
            ("mqtt", "5.0", "websocket", 1, 35, 4, "panel"),
            ("xmpp", None, None, 2, 410, 1, "pump1"),
        )
    ]  # fmt: skip


def queues(name: str, at: int) -> list[Row]:
    stuck = at == STUCK
    rows = []
    for queue, usual in (("jobs/print", 8), ("$share:label:labels/+", 5)):
        worst, depth = stuck and queue == "jobs/print", usual * (9 if stuck else 1)
        rows.append(
            {"gateway": name, "queue": queue, "state": "stuck" if worst else "ok"}
            | {"since": ago(7) if worst else None, "dead": 2 if worst else 0}
            | {"depth": depth, "depth_max": usual * 12}
            | {"ready": depth - 2, "locked": 1, "delayed": 1}
            | {"oldest_s": 25_200.0 if stuck else 12.0, "members": 0 if stuck else 2}
            | {"delivered": 4_000 + at, "redelivered": 12, "timeouts": 10}
            | {"dead_items": 2 if stuck else 0, "purged": 0, "unlocked": 0, "requeued": 0}
            | {"stuck": 1 if stuck else 0, "longest_stuck_s": 25_200.0 if stuck else None}
            | {"recovered": 0, "last_told": ago(0.05)}
        )
    return rows


def trends(name: str, at: int, chance: random.Random) -> Row:
    seconds = (DAYS - 1) * 86_400.0 + 6 * 3_600
    zero = {"missing": 0, "unexplained": 0, "duplicates": 0, "forks": 0, "bad_segments": 0}
    figures: Row = {"events": 215_000, "segments": 1_000, "outages": 0, "running_s": seconds}
    figures |= zero | {"judged_s": seconds}
    before = figures | {"events": 205_000 + chance.randrange(10_000), "segments": 990}
    if at == OUTAGE:
        figures |= {"outages": 2, "running_s": seconds - 43_200}
    if at == GAP:
        figures |= {"missing": 400, "unexplained": 400}
        before |= {"outages": 1, "running_s": seconds - 14_400}
    if at == FULL:
        figures |= {"missing": 1_400}
        before |= {"missing": 600}
    if at == FORK:
        figures |= {"forks": 1}
    return {
        "gateway": name,
        "known_since": ago(24 * 5 * DAYS),
        "state_before": "stopped" if at == FLAT else "running",
        **figures,
        **{f"{figure}_before": value for figure, value in before.items()},
    }


def clock(name: str, at: int, chance: random.Random) -> Row:
    odd = at == CLOCK
    zero = ("steps", "odd_steps", "step_sum_s", "unsynchronised_share", "unsynchronised_s")
    row: Row = {"gateway": name, "state": "ok", "synchronised": True, "step_max_s": None}
    row |= {"last_step": None, "worst_day_s": 0.0, **dict.fromkeys(zero, 0)}
    if odd:
        row |= {"state": "unsynchronised", "synchronised": False}
        row |= {"skew_s": 12.4, "drift_ppm": 38.0, "gain_ppm": 36.5}
        row |= {"steps": 2, "step_sum_s": 14.5, "step_max_s": -11.9, "last_step": ago(50)}
        shares = {"unsynchronised_share": 0.31, "unsynchronised_s": 187_000.0}
        return row | shares | {"worst_day_s": 61_000.0}
    row["skew_s"] = -0.4 - chance.random()
    return row | {"drift_ppm": chance.uniform(-4, 4), "gain_ppm": chance.uniform(-4, 4)}


def growth(name: str, at: int, chance: random.Random) -> Row:
    soon = at == FULL
    used, cap = (3_700 if soon else 610 + chance.randrange(300)) * _MIB, 4_096 * _MIB
    trend = (44.0 if soon else chance.uniform(4, 12)) * _MIB
    low, high = trend * 0.8, trend * 1.25
    free = cap - used
    return (
        {"gateway": name, "state": "soon" if soon else "ok", "days": DAYS}
        | {"shipped_day": 3.1 * _MIB + chance.randrange(_MIB), "events_day": 62_000.0}
        | {"disk_used": used, "cap": cap, "cap_from": "gateway"}
        | {"trend_day": trend, "trend_low": low, "trend_high": high}
        | {"days_left": free / trend, "days_low": free / high, "days_high": free / low}
        | {"evicted": 2_000 if soon else 0, "last_evicted": ago(30) if soon else None}
    )


def stretches(name: str, at: int) -> list[Row]:
    cuts = [(24 * DAYS, "running")]
    if at == OUTAGE:
        cuts += [(100, "outage"), (92, "running"), (40, "outage"), (36, "running")]
    if at == GAP:
        cuts += [(70, "unknown"), (66, "running")]
    if at == FLAT:
        cuts += [(30, "stopped"), (24, "running")]
    ends = [begin for begin, _ in cuts[1:]] + [9.5 if at == SILENT else 0]
    return [
        {"gateway": name, "state": state}
        | {"begin": ago(begin).timestamp(), "end": ago(end).timestamp()}
        for (begin, state), end in zip(cuts, ends, strict=True)
    ]


def activity(name: str, at: int, chance: random.Random) -> list[Row]:
    first = int(ago(24 * DAYS).timestamp())
    last = 24 * DAYS * 3600 // STEP_S - (2 if at == SILENT else 0)
    return [
        {
            "gateway": name,
            "begin": first + step * STEP_S,
            "lane": lane,
            "step_s": STEP_S,
            "events": int(events * (0.8 + 0.3 * (step % 4 in (1, 2)) + 0.1 * chance.random())),
        }
        for step in range(last)
        for lane, events in (("readings", 14_500), ("logs", 2_200), ("system", 410))
    ]


def depths(name: str, at: int, chance: random.Random) -> list[Row]:
    return [
        {
            "gateway": name,
            "queue": queue,
            "at": ago(hours).timestamp(),
            "depth": most // 3
            + chance.randrange(most)
            + (most * (8 - hours) if at == STUCK and hours < 8 else 0),
        }
        for queue, most in (("jobs/print", 9), ("$share:label:labels/+", 6))
        for hours in range(48, 0, -2)
    ]


def offsets(name: str, at: int, chance: random.Random) -> list[Row]:
    slope = 3.1 / 24 if at == CLOCK else 0.0
    return [
        {
            "gateway": name,
            "at": ago(hours).timestamp(),
            "skew_s": slope * ((24 * DAYS - hours) % 96) - 0.3 - 0.4 * chance.random(),
        }
        for hours in range(24 * DAYS, 0, -6)
    ]
