"""The findings of one gateway without problems, for tests that change a detail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sync.reports import availability, completeness
from sync.reports.shared.findings import Findings, Rows

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
BEGIN = NOON.timestamp()

LANE: dict[str, Any] = (
    dict.fromkeys((column.name for column in completeness.TABLE.columns), 0)
    | {"gateway": "gw.example", "epoch": "01A", "lane": "logs", "state": "open", "since": NOON}
    | {"first_seq": 1, "last_seq": 20_000, "expected": 20_000, "received": 20_000}
)
GATEWAY: dict[str, Any] = (
    dict.fromkeys((column.name for column in availability.TABLE.columns), 0)
    | {"gateway": "gw.example", "state": "running", "running_share": 0.99999, "running_s": 3600.0}
    | dict.fromkeys(("first_seen", "last_seen", "last_arrival"), NOON)
    | {"longest_gap_s": None, "longest_silence_s": None}
    | {"reachable_share": 1.0, "silent_after_s": 750.0}
)
LATENCY = {"p50_ms": 12, "p95_ms": 80, "p99_ms": 500, "max_ms": 61_000}
DELIVERY = {"gateway": "gw.example", "qos": 2, "events": 20_000} | LATENCY


def findings(as_of: datetime = NOON, **tables: Rows) -> Findings:
    """Return findings with only these tables."""
    return Findings(as_of, tables)


def sound_findings(**changes: Rows) -> Findings:
    """Return the findings of a fleet without problems, except for the tables in `changes`."""
    place = {"gateway": "gw.example", "begin": int(BEGIN)}
    tables: dict[str, Rows] = {
        "availability": [GATEWAY],
        "completeness": [LANE],
        "delivery": [DELIVERY],
        "totals": [{"lane": "logs", "kind": "log", "events": 20_000}],
        "files_by_fate": [{"fate": "accepted", "files": 10}],
        "stretches": [place | {"end": BEGIN + 3600, "state": "running"}],
        "activity": [place | {"lane": "logs", "step_s": 3600, "events": 20_000}],
    }
    return Findings(NOON, tables | changes)
